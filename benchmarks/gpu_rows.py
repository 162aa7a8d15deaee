"""Define the rows of `benchmarks/gpu.py`: the inputs, the timed function and the reference for its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

import analytic as an
import minintk as mn
from analytic.training.dynamics import gradient_flow
from minintk.models.network import Network

Array = Any
To = Callable[[np.ndarray[Any, Any]], Array]
"""A function that copies a host array to the device and converts it to the measured dtype."""

Make = Callable[[To], tuple[Callable[[], Any], Callable[[Any], Array]]]
"""A function that returns (run, answer), given a `To`. The timed function is `run`; `answer` turns the result of `run`
into the array that is compared with the reference."""


@dataclass(frozen=True)
class Work:
    """One row: a function to time, and the reference for its result.

    per : the number of SGD steps or calls in one run. operations : the number of floating-point operations per step or
    call, counting only matrix products. roundings : the allowed error in units of eps times the reference's largest
    entry; the error must also be at most a thousandth of that entry. reference : another way to compute the answer, run
    by NumPy in float64; if it is None, `make` is used.
    """

    name: str
    make: Make
    operations: float
    roundings: float
    per: int = 1
    reference: Make | None = None


def normal(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return an array of this shape with entries drawn from N(0, 1) with the given seed."""
    return np.random.default_rng(seed).standard_normal(shape)


# ------------------------------------------------------------------------------------------------ kernels of vectors


def product(n: int, d: int, to: To) -> Any:
    """Return (run, answer) for the product x @ y' that every kernel needs. x, y : (n, d); `answer` returns one row."""
    x, y = to(normal(n, d)), to(normal(n, d, seed=1))
    return lambda: x @ y.T, lambda z: z[0]


def dense(phi: mn.spec.Activation, depth: int = 3) -> an.Kernel:
    """Return the kernel of a network with `depth` hidden layers and biases."""
    hidden = [layer for _ in range(depth) for layer in (mn.Dense(512, w_std=2**0.5, b_std=0.1), phi)]
    return an.kernel(mn.Sequential(*hidden, mn.Dense(1, w_std=2**0.5, b_std=0.1)))


def analytic_kernel(phi: mn.spec.Activation, n: int, d: int, to: To) -> Any:
    """Return (run, answer) for the NNGP and the NTK of `dense(phi)`; `answer` returns the NTK's first row."""
    kernel, x = dense(phi), to(normal(n, d))
    return lambda: kernel.both(x), lambda both: both[1][0]


def vectors(quick: bool) -> list[Work]:
    """Return the rows for kernels of fully connected networks.

    NumPy needs about ten seconds for the reference of a row.
    """
    n, pairs = (256, 256**2) if quick else (8192, 8192**2)
    return [
        Work(f"x @ y', {n} x 784", partial(product, n, 784), 2 * pairs * 784, 1e3),
        Work(f"NNGP + NTK, ReLU, N = {n}", partial(analytic_kernel, mn.ReLU(), n, 784), pairs * 784, 1e3),
        Work(f"NNGP + NTK, erf, N = {n}", partial(analytic_kernel, mn.Erf(), n, 784), pairs * 784, 1e3),
        Work(f"NNGP + NTK, GELU, N = {n}", partial(analytic_kernel, mn.GELU(), n, 784), pairs * 784, 1e3),
    ]


# ------------------------------------------------------------------------------------------------ kernels of images


def convolutional(phi: mn.spec.Activation, depth: int, outputs: int = 1) -> mn.Sequential:
    """Return a network of 3 x 3 convolutions and global pooling. Its kernel needs all pairs of pixels."""
    hidden = [layer for _ in range(depth) for layer in (mn.Conv2d(64, 3, w_std=2**0.5, b_std=0.1), phi)]
    return mn.Sequential(*hidden, mn.GlobalAvgPool(), mn.Dense(outputs))


def image_diagonals(n: int, size: int, depth: int, to: To) -> Any:
    """Return (run, answer) for the kernel of each image with itself. `answer` returns the first sixteen NTK values."""
    kernel, x = an.kernel(convolutional(mn.ReLU(), depth)), to(normal(n, size, size, 3))
    return lambda: kernel.diag(x), lambda both: both[1][:16]


def few_diagonals(size: int, depth: int, n: int, to: To) -> Any:
    """Return (run, answer) for only the first sixteen images of `image_diagonals`, as the reference for its answer."""
    return image_diagonals(n, size, depth, lambda a: to(a)[:16])


def images(quick: bool) -> list[Work]:
    """Return the rows for kernels of each image with itself. `gpu.image_kernel` measures pairs of images."""
    n, size, depth = (20, 8, 3) if quick else (1000, 32, 11)
    make, reference = partial(image_diagonals, n, size, depth), partial(few_diagonals, size, depth, n)
    return [Work(f"diagonal, {n} images of {size} x {size}, {depth} layers", make, 0.0, 1e3, reference=reference)]


# ------------------------------------------------------------------------------------------------- finite networks


def perceptron(sizes: tuple[int, ...]) -> Network:
    """Return a ReLU network with biases in the standard parametrization."""
    hidden = [layer for n in sizes[1:-1] for layer in (mn.Dense(n, w_std=2**0.5, b_std=0.1), mn.ReLU())]
    return mn.Network(mn.Sequential(*hidden, mn.Dense(sizes[-1])), sizes[:1], mn.Standard())


def steps(net: Network, n: int, ensemble: int | None, count: int, to: To) -> Any:
    """Return (run, answer) for `count` full-batch SGD steps with momentum by `mn.train`."""
    theta, x = to(net.init(np.random.default_rng(0), ensemble=ensemble)), to(normal(n, *net.input_shape))
    C = net(net.init(np.random.default_rng(0)), normal(1, *net.input_shape)).shape[1]
    y = to(np.eye(C)[np.random.default_rng(1).integers(0, C, n)])
    how: dict[str, Any] = {"loss": mn.softmax_cross_entropy, "optimizer": mn.SGD(lr=0.001, momentum=0.9)}

    def run() -> Array:
        *_, last = mn.train(net, theta, x, y, steps=count, every=count, **how)
        return last.f

    return run, lambda f: f


def weights(sizes: tuple[int, ...]) -> int:
    """Return the number of weights of a network, not counting biases."""
    return sum(a * b for a, b in pairwise(sizes))


def training(quick: bool) -> list[Work]:
    """Return the rows for training steps. NumPy needs at most a minute for the reference of a row."""
    mlp, batch = ((64, 128, 128, 10), 32) if quick else ((784, 2048, 2048, 10), 256)
    many, count = (64, 100, 100, 100, 100, 100, 2), 5 if quick else 50
    size, few, deep = (12, 2, 10) if quick else (28, 20, 128)
    lenet = mn.Network(mn.zoo.lenet5(1), (28, 28, 1), mn.PyTorch())
    cnn = mn.Network(convolutional(mn.ReLU(), 3, 10), (size, size, 3))
    resnet = mn.Network(mn.zoo.wide_resnet(10, 1), (32, 32, 3), mn.PyTorch())
    rows = [
        Work(f"SGD step, {'-'.join(map(str, mlp))}, batch {batch}", partial(steps, perceptron(mlp), batch, None, count),
             6 * batch * weights(mlp), 1e4, count),
        Work("SGD step of 20 networks, 5 x 100, N = 200", partial(steps, perceptron(many), 200, 20, count),
             20 * 6 * 200 * weights(many), 1e4, count),
        Work(f"SGD step, 3 convolutions of 64 channels, {size} x {size}, batch {deep}",
             partial(steps, cnn, deep, None, few), 6 * deep * size**2 * 9 * (3 * 64 + 2 * 64**2), 1e4, few),
    ]  # fmt: skip
    images = [("LeNet-5", lenet, batch, few) for batch in ((16,) if quick else (32, 256))]
    images.append(("WRN-10-1 with BatchNorm", resnet, 4 if quick else 64, 2))
    return rows + [
        Work(f"SGD step, {name}, batch {batch}", partial(steps, net, batch, None, count), 0.0, 1e5, count)
        for name, net, batch, count in images
    ]


def empirical(net: Network, n: int, to: To) -> Any:
    """Return (run, answer) for the empirical tangent kernel of a network, averaged over outputs."""
    theta, x = to(net.init(np.random.default_rng(0))), to(normal(n, *net.input_shape))
    return lambda: mn.ntk(net, theta, x), lambda k: k


def tangents(quick: bool) -> list[Work]:
    """Return the rows for empirical tangent kernels."""
    sizes, n = ((64, 128, 128, 10), 16) if quick else ((784, 512, 512, 10), 512)
    lenet = mn.Network(mn.zoo.lenet5(1), (28, 28, 1), mn.PyTorch())
    cnn = mn.Network(convolutional(mn.ReLU(), 3), (8, 8, 3) if quick else (32, 32, 3))
    few = n if quick else 128
    return [
        Work(f"empirical NTK, {'-'.join(map(str, sizes))}, N = {n}", partial(empirical, perceptron(sizes), n),
             2 * n**2 * (sum(sizes[:-1]) + 10 * sum(sizes[1:])), 1e3),
        Work(f"empirical NTK, LeNet-5, N = {n}", partial(empirical, lenet, n), 0.0, 1e3),
        Work(f"empirical NTK, 3 convolutions of 64 channels, N = {few}", partial(empirical, cnn, few), 0.0, 1e3),
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- solves


def flow(n: int, to: To) -> Any:
    """Return (run, answer) for gradient flow until t = 10, by an eigendecomposition in float64 for every dtype."""
    z = normal(n, 2 * n)
    k, y = to(z @ z.T / (2 * n)), to(normal(n, 1))
    return lambda: gradient_flow(k, y, lr=float(n)).predict(10.0), lambda f: f


RIDGE = 0.1


def regression(n: int, to: To) -> Any:
    """Return x : (n, 20), y : (n, 10) and 500 test inputs. The targets y are smooth functions of x."""
    x, w = normal(n + 500, 20), normal(20, 10, seed=1)
    return to(x[:n]), to(np.sin(x[:n] @ w)), to(x[n:])


def posterior(n: int, std: bool, to: To) -> Any:
    """Return (run, answer) for the posterior mean at the test inputs or, if `std`, for the standard deviation.

    The Cholesky factor is in float64 for every dtype.
    """
    x, y, x_test = regression(n, to)
    return lambda: an.posterior(dense(mn.ReLU()), x, y, ridge=RIDGE).predict(
        x_test, std=std
    ), lambda found: found[1] if std else found


def solves(quick: bool) -> list[Work]:
    """Return the rows for gradient flow and for posteriors, which mainly time factorisations and solves.

    NumPy needs twenty seconds for the posterior mean at N = 20,000.
    """
    eigen, n = (128, 200) if quick else (4096, 20_000)
    mean = partial(posterior, n, False)
    return [
        Work(f"gradient flow, N = {eigen}, one time", partial(flow, eigen), 0.0, 1e5),
        Work(f"posterior, N = {n}: mean at 500", mean, n**3 / 3, 1e5),
        Work(f"posterior, N = {n}: spread at 500", partial(posterior, n, True), n**3 / 3 + 500 * n**2, 1e5),
    ]
