"""Compute empirical kernels of a model at theta.  Tangent kernels are computed in blocks, within a memory limit.

    ntk_full   Theta[n, c, m, e] = sum_p S_p df_c(x_n)/dtheta_p df_e(x_m)/dtheta_p      (N, C, M, C)
    ntk        1/C sum_c Theta[n, c, m, c]                                              (N, M)
    nngp       1/C sum_c f_c(x_n) f_c(x_m)                                              (N, M)

S is the diagonal matrix of learning-rate scales.  A small gradient step changes theta by -lr S J' dL/df, and therefore
f by -lr J S J' dL/df, so J S J' governs training.  By default, the parametrization gives S (S = 1 for NTK, Standard,
PyTorch).  `scales` replaces entries of S; `J.gram` has S = 1.  The full Jacobian is never formed.  Besides the result,
mainly activations, cotangents and kernel of two blocks are stored.  For an ensemble, each kernel has a leading axis E.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from minintk.arrays import Array, array_namespace, available_memory, check_finite
from minintk.layers.contract import Contraction, Params
from minintk.layers.norm import UNCALIBRATED
from minintk.models.model import Model, check_model
from minintk.validate import number


def ntk(
    model: Model, theta: Array, x1: Array, x2: Array | None = None, *, scales: Mapping[str, float] | None = None,
    memory: int | None = None, params: Params = None,
) -> Array:  # fmt: skip
    """Compute the tangent kernel averaged over outputs, ([E], N, M): 1/C sum_c J_c(x1) S J_c(x2)'  (Lee 2019, eq. 4).

    It is the trace of `ntk_full` over the outputs c = c', divided by C.  For C > 1, the largest stable learning rate
    depends on the full kernel (see `max_learning_rate`).

    x1 : (N, *input_shape), x2 : (M, *input_shape), default x1.
    scales : {tensor name: scale}, which replaces the parametrization's scales of these tensors, like `lr_scales` of
    `train`.  Raises ValueError if `scales` omits a tensor and the parametrization has rates only for Adam.
    params : names of the trained tensors, or patterns such as "*.b", by default all.  With "last", only the last layer
    is trained.  If it is a Dense, the kernel with NTK() approaches `analytic.kernel(spec).nngp` as the width grows.
    memory : limit in bytes, by default half of the free memory.  Raises MemoryError if more is needed.
    Raises ValueError or TypeError if theta or the inputs do not fit the model, or contain NaN or infinities.

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(16), mn.ReLU(), mn.Dense(2)), (3,))
    >>> k = ntk(net, net.init(np.random.default_rng(0)), np.eye(3))
    >>> k.shape, bool(np.linalg.eigvalsh(k)[0] > 0)
    ((3, 3), True)
    >>> top = ntk(net, net.init(np.random.default_rng(0)), np.eye(3), params="last")  # the last layer's part
    >>> bool(np.all(np.diag(top) < np.diag(k)))
    True
    """
    k = blocks(model, theta, x1, x2, contraction(False, model, scales, params), memory)
    k /= model.outputs
    return k


def ntk_full(
    model: Model, theta: Array, x1: Array, x2: Array | None = None, *, scales: Mapping[str, float] | None = None,
    memory: int | None = None, params: Params = None,
) -> Array:  # fmt: skip
    """Compute the tangent kernel for all pairs of outputs, ([E], N, C, M, C): J(x1) S J(x2)'.  Arguments: see `ntk`.

    ``k.reshape(N * C, M * C)`` is the Gram matrix.  `ntk` is its trace over c = c', divided by C.

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(16), mn.ReLU(), mn.Dense(2)), (3,))
    >>> theta = net.init(np.random.default_rng(0))
    >>> k = ntk_full(net, theta, np.eye(3))
    >>> k.shape, bool(np.allclose(np.einsum("icjc->ij", k) / 2, ntk(net, theta, np.eye(3))))
    ((3, 2, 3, 2), True)
    """
    return blocks(model, theta, x1, x2, contraction(True, model, scales, params), memory)


def nngp(model: Model, theta: Array, x1: Array, x2: Array | None = None) -> Array:
    """Compute the empirical NNGP kernel, ([E], N, M): 1/C sum_c f_c(x1) f_c(x2).

    theta : ([E], P), x1 : (N, *input_shape), x2 : (M, *input_shape), default x1.  As the width grows, the mean over
    many outputs or networks approaches `analytic.kernel(spec).nngp`.  Raises the same errors for theta and x as `ntk`.

    >>> import numpy as np, minintk as mn
    >>> spec, x = mn.Sequential(mn.Dense(2000, w_std=2**0.5), mn.ReLU(), mn.Dense(2000)), np.eye(2)
    >>> net = mn.Network(spec, (2,))
    >>> limit = [[1 / 2, 1 / (2 * np.pi)], [1 / (2 * np.pi), 1 / 2]]
    >>> bool(np.allclose(nngp(net, net.init(np.random.default_rng(0)), x), limit, atol=0.1))
    True
    """
    check_kernel(model, theta, x1, x2)
    f1 = model(theta, x1)
    f2 = f1 if x2 is None else model(theta, x2)
    return f1 @ f2.swapaxes(-1, -2) / model.outputs


def contraction(full: bool, model: Model, scales: Mapping[str, float] | None, params: Params = None) -> Contraction:
    """Return the `Contraction` for J S J' with these scales.  full : True for all pairs of outputs, else the trace."""
    check_model(model)
    S = model.layout.learning_rate_scales(scales, "sgd", "scales", params=params)
    return Contraction(full, S, model.layout)


def blocks(
    model: Model, theta: Array, x1: Array, x2: Array | None, kernel: Contraction, memory: int | None,
    dtype: Any = None,
) -> Array:  # fmt: skip
    """Compute the kernel in blocks, by default in the dtype of theta.  If x2 is None, use the kernel's symmetry."""
    check_kernel(model, theta, x1, x2)
    xp = array_namespace(theta, x1)
    lead, C = tuple(theta.shape[:-1]), model.outputs
    other = x1 if x2 is None else x2
    N, M, trace = x1.shape[0], other.shape[0], not kernel.full
    shape, c = ((*lead, N, M), 1) if trace else ((*lead, N, C, M, C), C)
    budget = available_memory(xp) // 2 if memory is None else int(number("memory", memory))
    dtype = np.dtype(theta.dtype if dtype is None else dtype)
    size = block_size(model, theta, max(N, M), trace, dtype.itemsize * prod(shape), budget)
    if x2 is None:  # smaller blocks compute fewer entries below the diagonal
        size = min(size, max(1024, -(-N // 16)))
    if size >= max(N, M):
        J1 = model.jacobian(theta, x1)
        whole = J1.gram_by(None if x2 is None else model.jacobian(theta, x2), kernel)
        return xp.astype(whole, dtype, copy=False)
    k = xp.empty((*lead, N, c, M, c), dtype=dtype)
    for i in range(0, N, size):
        J1 = model.jacobian(theta, x1[i : i + size])
        for j in range(i if x2 is None else 0, M, size):
            same = x2 is None and i == j
            block = J1.gram_by(None if same else model.jacobian(theta, other[j : j + size]), kernel)
            rows, columns = slice(i, i + size), slice(j, j + size)
            k[..., rows, :, columns, :] = block.reshape(k[..., rows, :, columns, :].shape)
            if x2 is None and not same:
                k[..., columns, :, rows, :] = xp.moveaxis(k[..., rows, :, columns, :], (-4, -3), (-2, -1))
    return k.reshape(shape)


def check_kernel(model: Model, theta: Array, x1: Array, x2: Array | None) -> None:
    """Raise TypeError or ValueError unless this model has a kernel at theta and these inputs."""
    check_model(model)
    if model.coupled:
        raise ValueError(UNCALIBRATED)
    model.check(theta, x1)
    check_finite("theta", theta)
    if x2 is not None:
        model.check(theta, x2)


def block_size(model: Model, theta: Array, N: int, trace: bool, result: int, budget: int) -> int:
    """Return a block size such that the result, two blocks of examples and three of the kernel fit in `budget`."""
    item = theta.dtype.itemsize * prod(theta.shape[:-1])  # bytes of one number for all members
    layers, widest = model.footprint
    per_example = 2 * item * (layers + 4 * model.outputs * widest)
    per_pair = 3 * item * (1 if trace else model.outputs**2)
    size = N
    while size > 1 and size * per_example + size**2 * per_pair > budget - result:
        size = (size + 1) // 2
    need = result + size * per_example + size**2 * per_pair
    if need > budget:
        asked = f"at least {need / 2**30:.3g} GiB ({result / 2**30:.3g} GiB for the result)"
        remedy = "pass fewer examples or a larger memory=, or use mn.ntk, C^2 times smaller than mn.ntk_full"
        raise MemoryError(f"this kernel needs {asked}, but the bound is {budget / 2**30:.3g} GiB: {remedy}")
    return size
