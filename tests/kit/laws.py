"""Define laws that must fail on planted errors (see `planted`). A failing law raises AssertionError with the values.

The networks of `points` run plain layers, not the fast ones, so that an error planted in `minintk.layers` takes effect.
Further laws in `planted_laws_images` compare fast networks with plain networks.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import analytic as an
import analytic.recursion.rules
import minintk as mn
from minintk import testing
from minintk.models.network import Network, as_written
from minintk.testing import assert_close
from tests.kit.montecarlo import assert_mean, inputs

infinite: Any = import_module("analytic.kernels")  # the module, not the function `analytic.kernel`

Array = mn.Array
Patch = pytest.MonkeyPatch
EPS = float(np.finfo(float).eps)

# ------------------------------------------------------------------------------------ what the laws run on

ACTIVATIONS = (mn.Tanh(), mn.ReLU(), mn.GELU(), mn.Sigmoid(), mn.Softplus(2.0, 1.5), mn.Erf(), mn.Sin())


def plain(spec: mn.spec.Layer, shape: tuple[int, ...]) -> mn.Network:
    """Build a network that runs its plain layers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Network, "speed", staticmethod(as_written))
        return Network(spec, shape)


def chain(*activations: mn.spec.Activation) -> mn.Network:
    """Build a network with four features in all but the last two layers, and every kind of bias and shortcut.

    With equal widths, a transposed weight matrix has the right shape, so only a law can detect the transposition.
    """
    layers: list[mn.spec.Layer] = [mn.Dense(4, w_std=1.4, b_std=0.3)]
    for phi in activations:
        layers += [phi, mn.Dense(4, w_std=1.4, b_std=0.5, b_init="zeros")]
    layers += [mn.Residual(mn.Sequential(mn.Tanh(), mn.Dense(4))), mn.Residual(mn.Dense(3), shortcut=mn.Dense(3))]
    return plain(mn.Sequential(*layers, mn.Dense(2, b_std=0.2)), (3,))


X, Y = inputs(5), inputs(5, 2, seed=1)
NETWORKS = [chain(phi) for phi in ACTIVATIONS] + [chain(mn.Tanh(), mn.Sin())]


def points(ensemble: int | None = None) -> list[tuple[mn.Network, Array]]:
    """Return (network, theta) for each of NETWORKS. All parameters differ from their initial values."""
    rng = np.random.default_rng(3)
    found = []
    for net in NETWORKS:
        theta = net.init(rng, ensemble=ensemble)
        found.append((net, theta + 0.3 * rng.standard_normal(theta.shape)))
    return found


# ------------------------------------------------------------------------------------------- the laws


def adjoint() -> None:
    """<u, J v> = <J' u, v>"""
    for net, theta in points():
        testing.check_adjoint(net, theta, X, np.random.default_rng(0))


def derivative() -> None:
    """J v = df/ds"""
    for net, theta in points():
        testing.check_derivative(net, theta, X, np.random.default_rng(0))


def gram() -> None:
    """gram = J J'"""
    for net, theta in points():
        testing.check_gram(net, theta, X, np.random.default_rng(0))


def ensemble() -> None:
    """an ensemble computed together = its members computed separately"""
    for net, theta in points(3):
        testing.check_ensemble(net, theta, X, np.random.default_rng(0))


def blocks() -> None:
    """ntk in blocks = ntk in one piece"""
    for net, theta in points():
        testing.check_blocks(net, theta, X, np.random.default_rng(0))


def float32() -> None:
    """float32 = float64 to rounding"""
    for net, theta in points():
        testing.check_float32(net, theta, X, np.random.default_rng(0))


def centred() -> None:
    """gram of the centred model = J J'"""
    for net, theta in points():
        testing.check_gram(mn.Centred(net, theta, 3.0), theta, X, np.random.default_rng(0))


def linearized() -> None:
    """J of the linearised model = df_lin/ds"""
    for net, theta in points():
        model = mn.Linearized(net, theta)
        testing.check_derivative(model, theta + 0.5, X, np.random.default_rng(0))
        assert_close("f_lin(theta_0) = f(theta_0)", model(theta, X), net(theta, X), 0.0)


def constant() -> None:
    """J of the linearised model is constant"""
    for net, theta in points():
        J0, J = (mn.Linearized(net, theta).linearize(at, X)[1].dense() for at in (theta, theta + 0.5))
        assert_close("J(theta) = J(theta_0)", J, J0, 0.0)


def commute() -> None:
    """Centred o Linearized = Linearized o Centred"""
    for net, theta in points():
        one = mn.Centred(mn.Linearized(net, theta), theta, 2.0)(theta + 0.5, X)
        other = mn.Linearized(mn.Centred(net, theta, 2.0), theta)(theta + 0.5, X)
        assert_close("Centred o Linearized = Linearized o Centred", one, other, 1000 * EPS * np.abs(one).max())


def starts_at_zero() -> None:
    """the centred model is 0 at theta_0"""
    for net, theta in points():
        f = mn.Centred(net, theta, 3.0)(theta, X)
        assert_close("alpha (f(theta_0) - f(theta_0))", f, np.zeros_like(f), 0.0)


def loss_cotangents() -> None:
    """cotangent = dL/df"""
    f, v = inputs(5, 2, seed=4), inputs(5, 2, seed=5)
    y, h = np.abs(Y) / np.abs(Y).sum(axis=1, keepdims=True), 1e-3
    for loss in (mn.mse, mn.softmax_cross_entropy):
        values = [loss(f + k * h * v, y) for k in (1, -1, 2, -2)]
        want = (8 * (values[0] - values[1]) - (values[2] - values[3])) / (12 * h)
        assert_close(f"dL/df of {loss}", (loss.cotangent(f, y) * v).sum(), want, 1e-10)


def steps(model: mn.Model, theta: Array, count: int = 12, **options: Any) -> Array:
    """Train on the squared loss, and return theta initially and after each step."""
    options = {"optimizer": mn.SGD(lr=0.005), "loss": mn.mse} | options
    return np.stack([snap.theta for snap in mn.train(model, theta, X, Y, steps=count, **options)])


def loop() -> None:
    """train = the formulas of SGD in a loop"""
    net, theta = points()[0]
    scales = {"0.W": 0.0, "0.b": 0.5}
    path = steps(net, theta, optimizer=mn.SGD(lr=0.05, momentum=0.9, weight_decay=0.1), lr_scales=scales)
    s = np.concatenate([np.full(t.size, scales.get(t.name, 1.0)) for t in net.layout.tensors])
    v = np.zeros_like(theta)
    for after in path[1:]:
        f, J = net.linearize(theta, X)
        v = 0.9 * v + s * np.einsum("ncp,nc->p", J.dense(), (f - Y) / 5) + 0.1 * (s > 0) * theta
        theta = theta - 0.05 * v
        assert_close("theta", after, theta, 1e-12)


def untouched() -> None:
    """train leaves the caller's theta unchanged"""
    net, theta = points()[0]
    before = theta.copy()
    steps(net, theta)
    assert_close("theta after training", theta, before, 0.0)


def epochs() -> None:
    """mini-batches contain each example once per epoch"""
    net, theta = points()[0]
    run = mn.train(
        net, theta, X, Y, loss=mn.mse, optimizer=mn.SGD(lr=1e-300), steps=20, batch_size=1, rng=np.random.default_rng(0)
    )
    sums = np.array([snap.f.sum() for snap in run][:20]).reshape(4, 5).sum(axis=1)
    assert_close("sum of f over an epoch", sums, np.full(4, net(theta, X).sum()), 1e-12)


def every_one() -> None:
    """relinearising at every step = gradient descent"""
    for net, theta in points():
        iterated = mn.IterativelyLinearized(net, theta, every=1)
        assert_close("theta, K = 1", steps(iterated, theta), steps(net, theta), 0.0)


def together() -> None:
    """an ensemble trains like its members"""
    for net, theta in points(3):
        path = steps(net, theta)
        for e in range(3):
            assert_close(f"theta of member {e}", path[:, e], steps(net, theta[e]), 0.0)


def bound() -> None:
    """train warns above 2 (1 + m) N / lambda_max and not below"""
    net, theta = points()[0]
    critical = an.max_learning_rate(mn.ntk_full(net, theta, X), momentum=0.5)
    warned = []
    for factor in (0.98, 1.05):
        with pytest.MonkeyPatch.context() as patch:
            said: list[str] = []
            patch.setattr("minintk.training.train.warnings.warn", lambda text, *_, said=said, **__: said.append(text))
            next(mn.train(net, theta, X, Y, loss=mn.mse, optimizer=mn.SGD(lr=factor * critical, momentum=0.5), steps=1))
            warned.append(float(bool(said)))
    assert_close("warned below and above the bound", np.array(warned), np.array([0.0, 1.0]), 0.0)


def resumed() -> None:
    """a run resumed at any step = the uninterrupted run"""
    rng = np.random.default_rng(5)
    net, theta = points()[0]
    x, y = rng.standard_normal((7, 3)), rng.standard_normal((7, 2))

    def run(resume: mn.State | None = None) -> list[mn.Snapshot]:
        model = mn.IterativelyLinearized(net, theta, every=4)
        how: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(lr=mn.Cosine(0.02, 9), momentum=0.9), "steps": 9}
        rng = np.random.default_rng(1)
        return list(mn.train(model, theta, x, y, **how, batch_size=2, rng=rng, resume=resume))

    whole = run()
    for step in (1, 5):
        assert_close(f"theta, resumed at step {step}", run(whole[step].state)[-1].theta, whole[-1].theta, 0.0)


def times() -> None:
    """t of a schedule = the sum of its rates, also in training"""
    net, theta = points()[0]
    for lr in (mn.StepDecay(0.02, 3, 0.5), mn.Cosine(0.02, 5), mn.WarmUp(4, mn.Cosine(0.02, 5))):
        rates = np.array([lr(s) for s in range(9)])
        assert_close(f"t of {lr}", np.array(lr.t(9)), rates.sum(), 1e-15)
        snaps = list(mn.train(net, theta, X, Y, loss=mn.mse, optimizer=mn.SGD(lr=lr), steps=9))
        assert_close("t of the snapshot", np.array(snaps[-1].t), rates.sum(), 1e-15)
        for rate, a, b in zip(rates, snaps, snaps[1:]):
            gradient = net.linearize(a.theta, X)[1].vjp(mn.mse.cotangent(a.f, Y))
            assert_close(f"step of {lr}", b.theta, a.theta - rate * gradient, 1e-12)


def moved() -> None:
    """a shift by (dy, dx) moves pixel (i, j) to (i + dy, j + dx)"""
    x = np.arange(1.0, 61.0).reshape((3, 4, 5, 1))
    by = np.array([[1, 0], [0, 2], [-2, -1]])
    found = mn.Shift(2)(x, by)
    for n, (dy, dx) in enumerate(by):
        for i, j in np.ndindex(4, 5):
            inside = 0 <= i - dy < 4 and 0 <= j - dx < 5
            want = x[n, i - dy, j - dx, 0] if inside else 0.0
            assert_close(f"pixel {i}, {j} of image {n}", found[n, i, j], np.array([want]), 0.0)


def draws() -> None:
    """tensors are drawn with the standard deviation of their row"""
    net = mn.Network(mn.Sequential(mn.Dense(20, w_std=3.0, b_std=0.5), mn.Dense(1)), (4,), mn.Standard())
    theta = net.layout.unpack(net.init(np.random.default_rng(0), ensemble=500))
    for name, std in (("0.W", 3.0 / 2), ("0.b", 0.5), ("1.W", 1 / 20**0.5)):
        assert_mean(f"variance of {name}", theta[name].reshape(-1, 1) ** 2, np.array([std**2]))


def independent() -> None:
    """members are drawn independently"""
    net = mn.Network(mn.Dense(400), (10,))
    theta = net.init(np.random.default_rng(0), ensemble=4)
    products = np.stack([theta[i] * theta[j] for i in range(4) for j in range(i)], axis=1)
    assert_mean("correlation of members", products, np.zeros(6))


def zero_start() -> None:
    """a zero-initialised bias starts at 0"""
    net = mn.Network(mn.Dense(3, b_std=0.5, b_init="zeros"), (2,))
    start = net.layout.unpack(net.init(np.random.default_rng(0)))["0.b"]
    assert_close("b at the start", start, np.zeros(3), 0.0)


def flat_coordinates(optimizer: mn.training.optimizers.Optimizer, parametrization: Any) -> Callable[[], None]:
    """muP: the change of every layer is independent of the width"""

    def law() -> None:
        x, y = mn.datasets.digits().subset(32, np.random.default_rng(0)).one_hot()
        told: dict[str, Any] = {"loss": mn.mse, "optimizer": optimizer, "widths": (64, 128, 256), "seeds": 16}
        named = import_module("minintk.lab.experiments.named")  # a module of a satellite
        found = mn.coordinate_check(named.spec_of_width("mlp", 10, 2), x, y, parametrization=parametrization(), **told)
        assert found.verdict != "fail", found.report().splitlines()[-1]

    law.__doc__ = f"{flat_coordinates.__doc__} ({parametrization.__name__}, {type(optimizer).__name__})"
    return law


mup_by_descent = flat_coordinates(mn.SGD(lr=0.1), mn.SpectralMuP)
mup_by_adam = flat_coordinates(mn.Adam(lr=0.01), mn.SpectralMuP)
mean_field = flat_coordinates(mn.SGD(lr=0.1), mn.MeanField)


def equivalent() -> None:
    """a + s, b - s, c - 2 s (Adam: c - s) give the same network at every step"""
    spec, x, y = mn.Sequential(mn.Dense(9, b_std=0.3), mn.Tanh(), mn.Dense(9), mn.Tanh(), mn.Dense(2)), X, Y
    for rule, optimizer in (("sgd", mn.SGD(lr=0.02, momentum=0.5)), ("adam", mn.Adam(lr=0.01, eps=1e-60))):
        one = mn.ABC((0, 0.5, 0.5), (0, 0, 0), (0, 0.25, 0), rule)  # type: ignore[arg-type]
        ends = []
        for abc in (one, one.shifted(0.5, -0.5, 0.25)):
            net = mn.Network(spec, (3,), abc)
            theta = net.init(np.random.default_rng(0))
            *_, last = mn.train(net, theta, x, y, loss=mn.mse, optimizer=optimizer, steps=5)
            ends.append(last.f)
        assert_close(f"f after 5 steps, {rule}", ends[1], ends[0], 1e-11)


def subsets() -> None:
    """ntk(scales=) = J S J' with an explicit J"""
    net, theta = points()[0]
    names, J = [t.name for t in net.layout.tensors], net.linearize(theta, X)[1].dense()
    for name in names:
        S = net.layout.learning_rate_scales(dict.fromkeys(names, 0.0) | {name: 2.0})
        got = mn.ntk_full(net, theta, X, scales=dict.fromkeys(names, 0.0) | {name: 2.0})
        assert_close(f"the part of {name}", got, np.einsum("ncp,p,mep->ncme", J, np.asarray(S), J), 1e-11)


def on_a_kernel() -> None:
    """train on Linearized = kernel_descent, batch by batch"""
    net, theta = points()[0]
    lin, kernel = mn.Linearized(net, theta), mn.ntk_full(net, theta, X, X[:4])
    how: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(0.01, momentum=0.9), "steps": 20, "batch_size": 2}
    run = mn.train(lin, theta, X[:4], Y[:4], rng=np.random.default_rng(0), **how)
    for snap, end in zip(run, mn.kernel_descent(kernel, net(theta, X), Y[:4], rng=np.random.default_rng(0), **how)):
        assert_close(f"f after {snap.step} steps", end.f, lin(snap.theta, X), 1e-11)


def hierarchy_in_time() -> None:
    """the hierarchy of order k has errors of t^(k - 1) in the kernel and of t^k in the outputs"""
    spec = mn.Sequential(mn.Dense(8, b_std=0.3), mn.Tanh(), mn.Dense(8), mn.Erf(), mn.Dense(2))
    net = mn.Network(spec, (3,), mn.SpectralMuP())
    theta, times = net.init(np.random.default_rng(0)), (2e-3, 4e-3)
    how: dict[str, Any] = {"loss": mn.mse, "times": times, "by": mn.Solver(1e-12, 1e-14)}
    truth = list(mn.flow(net, theta, X, Y, **how))[1:]
    for order in (2, 3, 4):
        f, k = [], []
        for moment, true in zip(list(mn.hierarchy(net, theta, X, Y, order=order, **how))[1:], truth, strict=True):
            assert moment.kernel is not None
            assert true.theta is not None
            f.append(np.abs(moment.f - true.f).max())
            k.append(np.abs(moment.kernel - mn.ntk_full(net, true.theta, X)).max())
        for name, errors, power in (("kernel", k, order - 1), ("f", f, order)):
            found = float(np.log2(errors[1] / errors[0]))
            assert abs(found - power) < 0.25, f"power of time in the error of {name}, order {order}: {found:.2f}"


def sharpest() -> None:
    """sharpness = the largest eigenvalue of S^1/2 d(grad L)/dtheta S^1/2"""
    for loss, y in (
        (mn.mse, Y),
        (mn.softmax_cross_entropy, np.eye(2)[[0, 1, 1, 0, 0]]),
        (mn.logistic, np.sign(Y[:, :1])),
    ):
        spec = mn.Sequential(mn.Dense(4, b_std=0.3), mn.Tanh(), mn.Dense(y.shape[1]))
        net = mn.Network(spec, (3,), mn.SpectralMuP())
        theta, step = net.init(np.random.default_rng(0)), 1e-5
        ends = np.stack([theta + side * step * e for e in np.eye(net.size) for side in (1, -1)])
        f, J = net.linearize(ends, X)
        gradients = J.vjp(np.stack([loss.cotangent(each, y) for each in f]))
        S = np.concatenate([np.full(t.size, t.row.rate("sgd")) for t in net.layout.tensors])
        H = (gradients[::2] - gradients[1::2]) / (2 * step) * np.sqrt(np.outer(S, S))
        found = mn.diagnostics.sharpness(net, theta, X, y, loss=loss, rtol=1e-12)
        assert_close(f"sharpness of {loss}", np.array(found), np.linalg.eigvalsh((H + H.T) / 2)[-1], 1e-7)


def losses(kind: type[Any] = mn.Loss) -> list[Any]:
    """Return an instance of each public loss in minintk that is `kind` or a subclass of it."""
    inner = [loss for sub in kind.__subclasses__() for loss in losses(sub)]
    own = kind.__module__.startswith("minintk.") and not kind.__abstractmethods__ and not kind.__name__.startswith("_")
    return [*inner, kind()] if own else inner


def maps(loss: Any) -> dict[str, Any]:
    """Return L, dL/df and, if the loss has a Hessian, (d2L/df2) f as functions of f and y."""
    both = {"value": loss, "cotangent": loss.cotangent}
    smooth = type(loss).hessian is not mn.Loss.hessian
    return both | {"hessian": lambda f, y: loss.hessian(f, y, f)} if smooth else both


def floating_losses() -> None:
    """losses refuse integers, float16, masks and numpy.matrix"""
    f, y = np.array([[0.0], [20.0], [1.0]]), np.array([[1.0], [-1.0], [1.0]])
    spoil: list[Callable[[Any], Any]] = [
        partial(np.asarray, dtype=kind) for kind in (np.int8, np.int64, np.float16, bool)
    ]
    spoil += [lambda a: abs(a).astype(np.uint8), np.ma.masked_array, lambda a: a.view(np.matrix)]
    for loss in losses():
        for name, of in maps(loss).items():
            for change in spoil:
                for a, b in ((change(f), y), (f, change(y)), (change(f), change(y))):
                    try:
                        got = np.asarray(of(a, b)).ravel()
                    except TypeError:
                        continue
                    raise AssertionError(f"{loss}, {name} of {a.dtype}, {b.dtype}: {got} for {of(f, y).ravel()}")


def nan_losses() -> None:
    """losses, cotangents and Hessians of a NaN are NaN"""
    for loss in losses():
        for name, of in maps(loss).items():
            for spoilt in range(2):
                f, y = np.array([[0.5], [20.0]]), np.array([[1.0], [-1.0]])
                (f, y)[spoilt][0] = np.nan
                got = np.asarray(of(f, y))
                quiet = name == "hessian" and not (spoilt == 0 and loss.curvature is None)  # Hessians can ignore NaN
                bad = np.isnan(got.ravel()[0])
                assert bad or quiet, f"{loss}, {name} where {'fy'[spoilt]} is NaN: {got.ravel()[0]}"


def pickled() -> None:
    """an unpickled network, with its statistics or masks, computes the same bits"""
    spec = mn.Sequential(mn.Dense(4), mn.BatchNorm(), mn.ReLU(), mn.Dropout(0.5), mn.Dense(2))
    net = mn.Network(spec, (3,), mn.SpectralMuP())
    theta = net.init(np.random.default_rng(0))
    for each in (net, net.calibrate(theta, X), net.with_dropout(np.random.default_rng(0))):
        for bytes_ in (pickle.dumps(each), pickle.dumps(mn.Linearized(each, theta))):
            again = pickle.loads(bytes_)  # noqa: S301
            assert_close("f of a pickle", again(theta, X[:4]), each(theta, X[:4]), 0.0)


def stable_rates() -> None:
    """max_learning_rate = 2 (1 + m) / lambda_max(J S J' L'') from ntk_full, and training diverges above it"""
    for C in (1, 3, 10):
        for parametrization in (mn.NTK(), mn.SpectralMuP()):
            spec = mn.Sequential(mn.Dense(6, b_std=0.3), mn.Tanh(), mn.Dense(C))
            net, y = mn.Network(spec, (3,), parametrization), np.eye(C)[np.arange(5) % C]
            theta = net.init(np.random.default_rng(0))
            kernel, f = mn.ntk_full(net, theta, X).reshape(5 * C, 5 * C), net(theta, X)
            p = np.exp(f) / np.exp(f).sum(axis=1, keepdims=True)
            curved = np.zeros((5, C, 5, C))
            for n in range(5):
                curved[n, :, n] = (np.diag(p[n]) - np.outer(p[n], p[n])) / 5
            pairs: list[tuple[mn.Loss, Array]] = [(mn.mse, np.eye(5 * C) / 5), (mn.sum_of_squares, np.eye(5 * C) / 2.5)]
            pairs += [(mn.softmax_cross_entropy, curved.reshape(5 * C, 5 * C))] * (C > 1)
            for loss, H in pairs:
                want = 2 * 1.9 / np.linalg.eigvals(kernel @ H).real.max()
                got = mn.max_learning_rate(net, theta, X, loss, momentum=0.9, rtol=1e-12)
                assert_close(f"rate of {loss}, C = {C}, {parametrization}", np.array(got), want, 1e-9 * want)
            rate, lin, ends = mn.max_learning_rate(net, theta, X, mn.mse), mn.Linearized(net, theta), list[float]()
            for share in (0.95, 1.05):
                how: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(share * rate), "steps": 300, "every": 300}
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # train warns about a rate above the bound
                    ends += [float(snap.loss / mn.mse(f, y)) for snap in mn.train(lin, theta, X, y, **how)][1:]
            assert ends[0] < 1 < 1e6 < ends[1], f"loss over its start, .95 and 1.05 of {rate:.3g}: {ends}"
