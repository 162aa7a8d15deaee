"""Test the laws that every model must obey, for the layers and models of this package and for your own.

Each `check_...(model, theta, x, rng)` takes a model, parameters theta : (P,) or (E, P), a batch x : (N, *input_shape)
and a numpy.random.Generator that draws directions.  If it fails, its AssertionError states the law, both values and the
tolerance.  `check_layer` checks every law for one layer at several positions in small networks.

The tolerances are derived from rounding errors.  Let eps be the spacing of floats at 1, and m = 4 (sum of all layer
sizes + N + 8) an estimate of the number of roundings on a path through the network and back.  A tolerance is m eps
times the size of the terms: |u| |J| |v| for <u, J v>, |J_i| |J_j| for entries of J J', and |f| + |J| |theta| for f.

To define a layer, write a frozen dataclass and register its shape rule and its finite rule.  The page "Extending" in
the documentation gives an example and shows how `check_layer` reports a mistake.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from minintk import spec as s
from minintk.arrays import Array, Host, array_namespace, to_host, to_library
from minintk.doors import through
from minintk.layers.contract import Contraction
from minintk.models.empirical import ntk, ntk_full
from minintk.models.jacobian import Jacobian
from minintk.models.model import Model
from minintk.models.network import Network
from minintk.models.wrappers import Centred
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import Shape, out_shape

__all__ = [
    "assert_close", "check_adjoint", "check_blocks", "check_derivative", "check_ensemble", "check_float32",
    "check_gram", "check_kernel", "check_layer", "check_model", "check_stacked", "roundings",
]  # fmt: skip


def roundings(model: Model, theta: Array, x: Array) -> float:
    """Return m eps, the relative rounding error that a path through the network and back can accumulate.

    >>> import minintk as mn
    >>> net, x = mn.Network(mn.Dense(2), (3,)), np.ones((4, 3))             # layer sizes 3 and 2
    >>> round(roundings(net, net.init(np.random.default_rng(0)), x) / 2**-52)
    68
    """
    return float(4 * (model.footprint[0] + x.shape[0] + 8) * np.finfo(str(theta.dtype)).eps)


def assert_close(law: str, got: Any, want: Any, tolerance: Any) -> None:
    """Raise AssertionError, naming the worst entry, unless |got - want| <= tolerance everywhere.  NaN always fails.

    >>> assert_close("1 + 1 = 2", np.array([1.0, 3.0]), np.array([1.0, 2.0]), 1e-15)
    Traceback (most recent call last):
        ...
    AssertionError: 1 + 1 = 2: 3 against 2 at (1,), off by 1, rounding explains 1e-15
    """
    assert_shape(law, np.asarray(got), np.shape(want))
    off = np.atleast_1d(np.abs(got - want))
    excess = np.atleast_1d(off - tolerance - np.finfo(np.result_type(got, np.float32)).tiny)  # products may underflow
    if off.size and not bool((excess <= 0).all()):
        at = np.unravel_index(int(np.argmax(np.where(np.isnan(excess), np.inf, excess))), off.shape)
        a, b, t = (float(np.broadcast_to(k, off.shape)[at]) for k in (got, want, tolerance))
        where = f" at {tuple(int(i) for i in at)}" if off.size > 1 else ""
        off_by = f"off by {abs(a - b):.2g}, rounding explains {t:.1g}"
        raise AssertionError(f"{law}: {a:.10g} against {b:.10g}{where}, {off_by}")


def assert_shape(law: str, a: Any, want: tuple[int, ...]) -> None:
    """Raise AssertionError unless `a` has the shape `want`."""
    if a.shape != want:
        raise AssertionError(f"{law}: expected shape {want}, got {a.shape}")


def check_model(model: Model, theta: Array, x: Array, rng: np.random.Generator) -> None:
    """Check every law below that applies, except that of `check_float32`.  `check_derivative` requires float64, and
    `check_ensemble` an ensemble.  The laws of kernels are not checked if examples interact, as in BatchNorm.

    >>> import minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(4, b_std=0.1), mn.Erf(), mn.Dense(2)), (3,))
    >>> rng = np.random.default_rng(0)
    >>> check_model(net, net.init(rng, ensemble=2), rng.standard_normal((5, 3)), rng)
    """
    check_adjoint(model, theta, x, rng)
    check_stacked(model, theta, x, rng)
    if not model.coupled:
        check_gram(model, theta, x, rng)
        check_kernel(model, theta, x, rng)
        check_blocks(model, theta, x, rng)
    if theta.dtype == np.float64:
        check_derivative(model, theta, x, rng)
    if theta.ndim == 2:
        check_ensemble(model, theta, x, rng)


def check_adjoint(model: Model, theta: Array, x: Array, rng: np.random.Generator) -> None:
    """Check that vjp is the transpose of jvp, i.e. that <u, J v> = <J' u, v> for random u and v."""
    f, J = model.linearize(theta, x)
    u, v = _normal(rng, f.shape, theta), _normal(rng, theta.shape, theta)
    lead = J.lead
    buffer = array_namespace(theta).full(tuple(theta.shape), float("nan"), dtype=theta.dtype)  # += would leave NaN
    Jv, Ju = to_host(J.jvp(v)), to_host(J.vjp(u, buffer))
    u, v = to_host(u), to_host(v)
    forwards = (u * Jv).reshape((*lead, -1)).sum(axis=-1)
    backwards = (Ju * v).sum(axis=-1)
    size = _norm(u.reshape((*lead, -1))) * _norm(_rows(J).reshape((*lead, -1))) * _norm(v)
    law = "adjoint <u, J v> = <J' u, v>" + (" (a gradient is not written with =)" if np.isnan(Ju).any() else "")
    assert_close(law, forwards, backwards, roundings(model, theta, x) * size)


def check_derivative(model: Model, theta: Array, x: Array, rng: np.random.Generator) -> None:
    """Check J v by fourth-order finite differences, (8 (f_1 - f_-1) - (f_2 - f_-2)) / 12 h, f_k = f(theta + k h v).

    theta must be float64 and not at a kink.  Rounding changes the results by up to m eps T 1.5 / h, where T = |f| + |J|
    |theta| is the size of the terms in f.  Truncation errors, h^4 / 30 times a fifth derivative, are ten thousand times
    smaller at the steps below.  A kink of ReLU can lie inside one stencil, so the law must hold at only one of three
    steps, h = 2^-12, 2^-15, 2^-18.  `minintk.Centred` computes alpha (f - f_0).  Because f and f_0 can nearly cancel, T
    is then alpha times the sum of their sizes.
    """
    if theta.dtype != np.float64:
        raise TypeError(f"check_derivative expects theta in float64, got {theta.dtype}")
    _, J = model.linearize(theta, x)
    v = _normal(rng, theta.shape, theta)
    v /= to_library(_norm(to_host(v))[..., None], array_namespace(theta))
    got = to_host(J.jvp(v))
    size = _terms(model, theta, x)
    failures = []
    for h in (2.0**-12, 2.0**-15, 2.0**-18):
        f1, f_1, f2, f_2 = (to_host(model(theta + k * h * v, x)) for k in (1, -1, 2, -2))
        want = (8 * (f1 - f_1) - (f2 - f_2)) / (12 * h)
        try:
            rounded = 1.5 / h * roundings(model, theta, x) * size
            assert_close(f"derivative J v = df/ds (step {h:.2g})", got, want, rounded)
        except AssertionError as error:
            failures.append(error)
        else:
            return
    raise failures[0]


def check_gram(model: Model, theta: Array, x: Array, rng: np.random.Generator) -> None:
    """Check J J', its trace over outputs and J S J' against the dense J, for one batch and between two batches."""
    N, C = x.shape[0], model.outputs
    _, J = model.linearize(theta, x)
    _, J2 = model.linearize(theta, x[::-1][: (N + 1) // 2])
    a, b = _rows(J), _rows(J2)
    for law, other, right in (("with itself", None, a), ("between two batches", J2, b)):
        M = right.shape[-2] // C
        want = a @ right.swapaxes(-1, -2)
        size = _norm(a)[..., :, None] * _norm(right)[..., None, :]
        tolerance = roundings(model, theta, x) * size
        shape = (*J.lead, N, C, M, C)
        got = to_host(J.gram(other))
        assert_shape(f"gram {law}", got, shape)
        assert_close(f"gram = J J' {law}", got, want.reshape(shape), tolerance.reshape(shape))
        got = to_host(J.trace_gram(other))
        assert_shape(f"trace_gram {law}", got, (*J.lead, N, M))
        trace = [np.einsum("...ncmc->...nm", k.reshape(shape)) for k in (want, tolerance)]
        assert_close(f"trace_gram = trace of J J' {law}", got, *trace)
        scales = {t.name: float(2 + i) for i, t in enumerate(model.layout.tensors)}
        if (S := model.layout.learning_rate_scales(scales)) is not None:
            kernel = Contraction(True, S, model.layout)
            got, want = to_host(J.gram_by(other, kernel)), (a * S) @ right.swapaxes(-1, -2)
            assert_close(f"contraction = J S J' {law}", got, want.reshape(shape), S.max() * tolerance.reshape(shape))


def check_kernel(model: Model, theta: Array, x: Array, rng: np.random.Generator) -> None:
    """Check that the tangent kernel is symmetric and has no negative eigenvalue, up to rounding."""
    _, J = model.linearize(theta, x)
    n = x.shape[0] * model.outputs
    k = to_host(J.gram()).reshape((*J.lead, n, n))
    scale = np.trace(k, axis1=-2, axis2=-1)[..., None]
    tolerance = roundings(model, theta, x) * np.abs(scale)
    assert_close("kernel = its transpose", k, k.swapaxes(-1, -2), tolerance[..., None])
    low = np.linalg.eigvalsh(k)[..., :1]
    assert_close("smallest eigenvalue of the kernel >= 0", np.minimum(low, 0), np.zeros_like(low), tolerance)


def check_stacked(model: Model, theta: Array, x: Array, rng: np.random.Generator) -> None:
    """Check that jvp for v : (K, [E], P) and vjp for u : (K, [E], N, C) equal the results of K separate calls."""
    f, J = model.linearize(theta, x)
    v, u = _normal(rng, (3, *theta.shape), theta), _normal(rng, (3, *f.shape), theta)
    size = roundings(model, theta, x) * _norm(_rows(J)).max()
    for law, one, many in (("jvp", J.jvp, v), ("vjp", J.vjp, u)):
        want = np.stack([to_host(one(part)) for part in many])
        tolerance = size * float(np.sqrt((to_host(many) ** 2).sum()))
        assert_close(f"{law} of 3 stacked arguments = one after the other", to_host(one(many)), want, tolerance)


def check_ensemble(model: Model, theta: Array, x: Array, rng: np.random.Generator) -> None:
    """Check that f, J v, J' u and the kernel of each member equal those of the member alone.  theta : (E, P)."""
    if theta.ndim != 2:
        raise ValueError(f"check_ensemble expects theta of shape (E, P), got {tuple(theta.shape)}")
    f, J = model.linearize(theta, x)
    v, u = _normal(rng, theta.shape, theta), _normal(rng, f.shape, theta)
    together = _results(model, f, J, v, u)
    rows, m = _norm(_rows(J)).max(axis=-1), roundings(model, theta, x)
    for e in range(theta.shape[0]):
        one = slice(e, e + 1)
        part = model.members(one)
        pick: Any = e if part is model else one  # without the member axis, unless theta_0 or mask keys have one
        apart = _results(model, *part.linearize(theta[pick], x), v[pick], u[pick])
        sizes = _sizes(model, _terms(part, theta[pick], x), float(rows[e]), v[e], u[e])
        for name, alone in apart.items():
            law = f"member {e} of {name} = the member alone"
            assert_close(law, together[name][pick], alone, m * sizes[name])


def check_blocks(model: Model, theta: Array, x: Array, rng: np.random.Generator) -> None:
    """Check that ntk and ntk_full under memory limits of 2^24 bytes or less equal the kernels computed in one piece."""
    _, J = model.linearize(theta, x)
    m, largest = roundings(model, theta, x), float(_norm(_rows(J)).max()) ** 2
    other = x[::-1][: (x.shape[0] + 1) // 2]
    _, J2 = model.linearize(theta, other)
    plain = dict.fromkeys(model.layout.slices, 1.0)  # valid for any learning rates
    for x2, right in ((None, None), (other, J2)):
        full, trace = to_host(J.gram(right)), to_host(J.trace_gram(right)) / model.outputs
        for name, kernel, want in (("ntk_full", ntk_full, full), ("ntk", ntk, trace)):
            memory = 2**24
            while memory:
                try:
                    k = to_host(kernel(model, theta, x, x2, scales=plain, memory=memory))
                except MemoryError:
                    break
                assert_close(f"{name} within {memory} bytes = in one piece", k, want, m * largest)
                memory //= 2


def check_float32(model: Model, theta: Array, x: Array, rng: np.random.Generator) -> None:
    """Check that f, J v, J' u and the kernel are float32 for float32 inputs, and equal those in float64 up to rounding.

    The model must accept both dtypes, as a Network does.  The tolerance is m eps times (size of the terms + response to
    a relative change of theta).  The response is estimated from four random relative changes of size 2^-12.
    """
    small = np.float32
    xp = array_namespace(theta, x)
    theta, x = (xp.astype(xp.astype(a, small), np.float64) for a in (theta, x))  # the same numbers in both dtypes
    f, J = model.linearize(theta, x)
    v, u = _normal(rng, theta.shape, theta), _normal(rng, f.shape, theta)

    def results(point: Array, dtype: Any) -> dict[str, Host]:
        f, J = model.linearize(xp.astype(point, dtype), xp.astype(x, dtype))
        return _results(model, f, J, xp.astype(v, dtype), xp.astype(u, dtype))

    change = 2.0**-12
    moved = [results(theta * (1 + change * _normal(rng, theta.shape, theta)), np.float64) for _ in range(4)]
    m = roundings(model, xp.astype(theta, small), x)
    J_norm, f_norm, theta_norm = (float(_norm(to_host(a).ravel())) for a in (J.dense(), f, theta))
    sizes, double = _sizes(model, f_norm + J_norm * theta_norm, J_norm, v, u), results(theta, np.float64)
    for name, a in results(theta, small).items():
        if a.dtype != small:
            raise AssertionError(f"float32: {name} expects float32 for float32 inputs, got {a.dtype}")
        response = max(float(_norm((other[name] - double[name]).ravel())) for other in moved) / change
        assert_close(f"float32: {name} = float64's", a, double[name], m * (sizes[name] + response))


def _results(model: Model, f: Array, J: Jacobian, v: Array, u: Array) -> dict[str, Host]:
    """Return f, J v and J' u on the host, and the kernels if examples do not interact."""
    found = {"f": f, "J v": J.jvp(v), "J' u": J.vjp(u)}
    if not model.coupled:
        found |= {"gram": J.gram(), "trace_gram": J.trace_gram()}
    return {name: to_host(a) for name, a in found.items()}


def _sizes(model: Model, f: float, J: float, v: Array, u: Array) -> dict[str, float]:
    """Return, for each entry of `_results`, the size of the terms that it sums.  f, J : the sizes of f and J."""
    v_norm, u_norm = (float(_norm(to_host(a).ravel())) for a in (v, u))
    return {"f": f, "J v": J * v_norm, "J' u": J * u_norm, "gram": J**2, "trace_gram": model.outputs * J**2}


def _terms(model: Model, theta: Array, x: Array) -> float:
    """Return |f| + |J| |theta|, the size of the terms in f, including the terms that cancel in `Centred`."""
    if isinstance(model, Centred):
        return float(model.alpha * (_terms(model.model, theta, x) + _terms(model.model, model.theta0, x)))
    f, J = model.linearize(theta, x)
    return float(np.abs(to_host(f)).max() + _norm(_rows(J)).max() * _norm(to_host(theta)).max())


def _normal(rng: np.random.Generator, shape: Sequence[int], like: Array) -> Array:
    """Draw values from N(0, 1) on the host and return an array of the library and dtype of `like`."""
    return to_library(rng.standard_normal(tuple(shape)).astype(str(like.dtype)), array_namespace(like))


def _norm(a: Host) -> Host:
    """Return |a| along the last axis, in float64 because |a|^2 can underflow in float32."""
    a = np.abs(a.astype(np.float64))
    top = np.max(a, axis=-1, keepdims=True, initial=np.finfo(np.float64).tiny)
    return np.asarray(top[..., 0] * np.sqrt(((a / top) ** 2).sum(axis=-1)))


def _rows(J: Jacobian) -> Host:
    """Return J as a matrix on the host, ([E], N C, P), in float64."""
    dense = to_host(J.dense()).astype(np.float64)
    return dense.reshape((*J.lead, dense.shape[-3] * dense.shape[-2], J.size))


def check_layer(layer: s.Layer, shape: Sequence[int], parametrization: Parametrization | None = None) -> None:
    """Check every law for small networks with this layer first, in the middle and last, and in a residual branch.

    shape : an example's shape, ``(d,)``, ``(L, C)`` or ``(H, W, C)``.  The branch is omitted if the shape changes.  The
    AssertionError gives the broken law and the findings of `minintk.grade.diagnose_layer`: the wrong map and its error.

    >>> import minintk as mn
    >>> check_layer(mn.Dense(4, b_std=0.5), (3,))
    >>> check_layer(mn.Flatten(), (2, 2, 3))
    """
    if not getattr(vars(kind := type(layer)).get("__dataclass_params__"), "frozen", not kind.__annotations__):
        raise TypeError(f"{kind.__name__} expects @dataclass(frozen=True) before its class")
    try:
        _laws(layer, shape, parametrization)
    except Exception as error:
        said = ""
        if (diagnose := through("diagnosis")) is not None:
            with suppress(Exception):  # a layer can be too broken to diagnose
                said = str(diagnose(layer, shape, parametrization) or "")
        if not said:
            raise
        raise AssertionError(f"{error}\n{said}") from error


def _laws(layer: s.Layer, shape: Sequence[int], parametrization: Parametrization | None) -> None:
    after = out_shape(layer, shape := tuple(shape))
    end = [s.Flatten()] if len(after) > 1 else []
    networks = [
        s.Sequential(layer, *end, s.Dense(2)),
        s.Sequential(weights(shape), layer, weights(after), *end, s.Dense(2)),
        s.Sequential(weights(shape), layer, *end),
    ]
    networks += [s.Sequential(weights(shape), s.Residual(layer), *end, s.Dense(2))] * (after == shape)
    for number, spec in enumerate(networks):
        rng = np.random.default_rng(number)
        network, x = Network(spec, shape, parametrization), rng.standard_normal((4, *shape))
        theta = network.init(rng, ensemble=2)
        theta += 0.5 * rng.standard_normal(theta.shape)  # moves biases away from zero
        check_model(network, theta, x, rng)
        check_model(network, theta[0], x[:1], rng)
        check_float32(network, theta[0], x, rng)


def weights(shape: Shape) -> s.Layer:
    """Return a shape-preserving layer with weights.  Its gradient requires that the layers after it return u dy/dx."""
    if len(shape) == 1:
        return s.Dense(shape[-1], b_std=0.5)
    return (s.Conv1d if len(shape) == 2 else s.Conv2d)(shape[-1], 1, b_std=0.5)
