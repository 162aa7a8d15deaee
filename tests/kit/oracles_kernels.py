"""Compute infinite-width kernels independently of the library, by recursions in high precision and by quadrature."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import mpmath as mp
import numpy as np

import minintk as mn
import minintk.spec
from tests.kit.oracles_duals import LONG, closed_dual

DIGITS = 70

Array = Any


def dual(layer: mn.spec.Layer, q1: Any, q2: Any, k: Any) -> tuple[Any, Any]:
    """Return E phi(u) phi(v) and E phi'(u) phi'(v) for (u, v) ~ N(0, [[q1, k], [k, q2]]) by formulas."""
    if isinstance(layer, mn.ReLU | mn.LeakyReLU | mn.Abs):
        down = {mn.ReLU: mp.mpf(0), mn.Abs: mp.mpf(-1)}.get(type(layer), mp.mpf(getattr(layer, "slope", 0)))
        if q1 == 0 or q2 == 0:  # phi'(0) is the slope for LeakyReLU and 0 for the others
            at_zero = down if isinstance(layer, mn.LeakyReLU) else mp.mpf(0)
            return mp.mpf(0), at_zero * (at_zero if q1 == q2 else (1 + down) / 2)
        norm = mp.sqrt(q1 * q2)
        c = max(mp.mpf(-1), min(mp.mpf(1), k / norm))
        # phi(x) = relu(x) - down relu(-x). Use Cho and Saul's J_1 and J_0 at the angle a and at pi - a.
        a = mp.acos(c)

        def j(a: Any) -> tuple[Any, Any]:
            return norm * (mp.sin(a) + (mp.pi - a) * mp.cos(a)) / (2 * mp.pi), (mp.pi - a) / (2 * mp.pi)

        (same, dsame), (cross, dcross) = j(a), j(mp.pi - a)
        return (1 + down**2) * same - 2 * down * cross, (1 + down**2) * dsame + 2 * down * dcross
    if isinstance(layer, mn.Erf):
        prod = (1 + 2 * q1) * (1 + 2 * q2)
        return 2 / mp.pi * mp.asin(2 * k / mp.sqrt(prod)), 4 / mp.pi / mp.sqrt(prod - 4 * k * k)
    if isinstance(layer, mn.GELU):
        prod = (1 + q1) * (1 + q2)

        def gelu(k: Any) -> Any:
            delta = mp.sqrt(prod - k * k)
            rest = (k * k + q1 * q2 * delta**2) / (prod * delta)
            return k / 4 + (k * mp.asin(k / mp.sqrt(prod)) + rest) / (2 * mp.pi)

        return gelu(k), mp.diff(gelu, k, h=mp.mpf(10) ** -30)
    if (found := closed_dual(layer, q1, q2, k)) is not None:
        return found
    raise TypeError(f"there is no exact dual of {layer!r} here: add its formula")


def exact_kernels(spec: mn.Sequential, x: Array) -> tuple[list[list[Any]], list[list[Any]]]:
    """Return the NNGP and the NTK for the pairs j >= i of rows of x : (N, d), with DIGITS digits.

    Row i starts at the diagonal. The spec is a chain of Dense layers and activations, in NTK parametrization, with any
    b_init. The entries of x are not rounded.
    """
    return _exact_kernels(spec, np.asarray(x, np.float64).tobytes(), x.shape, DIGITS)


@lru_cache(maxsize=256)  # cached because the tests of compiled kernels need the same values again
def _exact_kernels(spec: mn.Sequential, x: bytes, shape: tuple[int, ...], digits: int) -> Any:
    with mp.workdps(digits):
        rows = [[mp.mpf(float(v)) for v in row] for row in np.frombuffer(x).reshape(shape)]
        k = [[mp.fdot(a, b) / len(a) for b in rows[i:]] for i, a in enumerate(rows)]
        t = [[mp.mpf(0) for _ in row] for row in k]
        for layer in spec:
            if isinstance(layer, mn.Dense):
                w2, b2 = mp.mpf(layer.w_std) ** 2, mp.mpf(layer.b_std) ** 2
                drawn = b2 if layer.b_init == "normal" else mp.mpf(0)
                t = [[w2 * th + w2 * kk + b2 for th, kk in zip(*both)] for both in zip(t, k)]
                k = [[w2 * kk + drawn for kk in row] for row in k]
            else:
                q = [row[0] for row in k]
                both = [[dual(layer, q[i], q[i + j], kk) for j, kk in enumerate(row)] for i, row in enumerate(k)]
                k = [[value for value, _ in row] for row in both]
                t = [[th * slope for th, (_, slope) in zip(*pair)] for pair in zip(t, both)]
        return k, t


def largest_errors(got: tuple[Array, Array], truth: tuple[list[list[Any]], list[list[Any]]]) -> tuple[float, float]:
    """Return the largest errors of the NNGP and the NTK relative to sqrt(k(x, x) k(x', x')), or inf for a NaN."""
    worst = []
    with mp.workdps(DIGITS):
        for values, exact in zip(got, truth):
            errors = [0.0]
            for i, row in enumerate(exact):
                for j, want in enumerate(row, start=i):
                    scale = mp.sqrt(exact[i][0] * exact[j][0])
                    for value in {float(values[i, j]), float(values[j, i])}:
                        error = abs(mp.mpf(value) - want)
                        errors.append(float(error / scale) if scale > 0 else (0.0 if value == 0 else np.inf))
            worst.append(np.inf if np.isnan(errors).any() else max(errors))
    return worst[0], worst[1]


def degenerate_rows(rng: np.random.Generator, d: int = 6, dtype: Any = np.float64) -> Array:
    """Return rows that are equal, opposite, nearly parallel, collinear, zero or at other angles in the same plane.

    Nearly parallel rows have angles of 1e-3 to 1e-15. Collinear rows are 1e-6 to 1e6 times as long as the first row.
    """
    x = rng.normal(size=d)
    x *= np.sqrt(d) / np.linalg.norm(x)
    side = rng.normal(size=d)
    side -= x * (side @ x) / (x @ x)
    side *= np.sqrt(d) / np.linalg.norm(side)
    angles = [np.cos(a) * x + np.sin(a) * side for a in (1e-3, 1e-5, 1e-7, 1e-8, 1e-10, 1e-13, 1e-15)]
    others = [np.cos(a) * x + np.sin(a) * side for a in (0.03, 0.2, 1.0, 2.5, 3.1)]
    opposite = [-x, -angles[2], -angles[4]]
    scaled = [1e-6 * x, 1e6 * x, -3e5 * angles[1], 0 * x, 1.7 * x]
    return np.array([x, x.copy(), *angles, *opposite, *scaled, *others]).astype(dtype)


def gaussian_nodes(n_panels: int = 48, nodes: int = 12) -> tuple[Array, Array]:
    """Return nodes and weights for E f(z), z ~ N(0, 1), from panels of equal width on [-12, 12]."""
    t, w = np.polynomial.legendre.leggauss(nodes)
    ends = np.linspace(-12, 12, n_panels + 1)
    half = (ends[1] - ends[0]) / 2
    z = ((ends[1:] + ends[:-1])[:, None] / 2 + half * t).ravel()
    return z, np.tile(half * w, n_panels) * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)


def quadrature_dual(phi: Callable[[Array], Array], q1: float, q2: float, c: float) -> float:
    """Return E phi(u) phi(v) for smooth phi by quadrature over the plane; var u = q1, var v = q2, correlation c."""
    z, w = gaussian_nodes()
    u = np.sqrt(q1) * z
    v = np.sqrt(q2) * (c * z[:, None] + np.sqrt((1 - c) * (1 + c)) * z)
    return float((w * phi(u)) @ (phi(v) @ w))


# ------------------------------------------------------------------------------------------------ images

Long = np.longdouble
"""Extended precision. On x86, its significand has 64 bits, so arccos gives the angle 0 of equal pixels to 5e-10."""


def places(size: int, kernel: int, stride: int, padding: Any) -> list[list[int | None]]:
    """Return the input pixel at each position in the window, for each output pixel along one axis.

    Positions outside the image are None.
    """
    if isinstance(padding, str):
        out = size - kernel + 1 if padding == "valid" else size
        out = -(-out // stride)
        before = 0 if padding == "valid" else max((out - 1) * stride + kernel - size, 0) // 2
    else:
        before, after = (padding, padding) if isinstance(padding, int) else padding
        out = (size + before + after - kernel) // stride + 1
    found: list[list[int | None]] = []
    for p in range(out):
        window = [p * stride + s - before for s in range(kernel)]
        if padding == "circular":
            found.append([w % size for w in window])
        else:
            found.append([w if 0 <= w < size else None for w in window])
    return found


def window_matrices(layer: Any, grid: tuple[int, ...]) -> tuple[list[Array], tuple[int, ...]]:
    """Return ([matrix for each position in the window], grid of the outputs).

    Each 0/1 matrix (output pixels, input pixels) picks the input pixel at one position in the window.
    """

    def each(value: Any) -> tuple[Any, ...]:
        return value if isinstance(value, tuple) else (value,) * len(grid)

    kernel = each(getattr(layer, "kernel_size", None) or layer.window)
    stride = kernel if layer.stride is None else each(layer.stride)
    tables = [places(*four) for four in zip(grid, kernel, stride, each(layer.padding))]
    after = tuple(len(table) for table in tables)
    matrices = []
    for shift in np.ndindex(*kernel):
        matrix = np.zeros((int(np.prod(after)), int(np.prod(grid))), dtype=Long)
        for p, output in enumerate(np.ndindex(*after)):
            inputs = [table[o][s] for table, o, s in zip(tables, output, shift)]
            if None not in inputs:
                matrix[p, np.ravel_multi_index(tuple(inputs), grid)] = 1
        matrices.append(matrix)
    return matrices, after


def each_pixel(matrix: Array, k: Array) -> Array:
    """Return M K M' for each pair of examples, where M is the matrix and K is k : (N, P, N, P)."""
    return np.moveaxis(np.tensordot(matrix, np.tensordot(k, matrix, (3, 1)), (1, 1)), 0, 1)


def long_dual(layer: mn.spec.Layer, q1: Array, q2: Array, k: Array) -> tuple[Array, Array]:
    """Return E phi(u) phi(v) and E phi'(u) phi'(v) elementwise, by the formulas of the papers."""
    pi = np.arccos(Long(-1))
    if isinstance(layer, mn.Erf):
        prod = (1 + 2 * q1) * (1 + 2 * q2)
        return 2 / pi * np.arcsin(2 * k / np.sqrt(prod)), 4 / pi / np.sqrt(prod - 4 * k * k)
    if isinstance(layer, mn.GELU):
        prod = (1 + q1) * (1 + q2)
        delta = np.sqrt(prod - k * k)
        quarter = pi / 2 + np.arcsin(k / np.sqrt(prod))
        slope = quarter + k / delta * (1 / (1 + q1) + 1 / (1 + q2) + 1 / delta**2)
        return (k * quarter + (k * k + q1 * q2 * delta**2) / (prod * delta)) / (2 * pi), slope / (2 * pi)
    if (found := closed_dual(layer, q1, q2, k, LONG)) is not None:
        return found
    if not isinstance(layer, mn.ReLU | mn.LeakyReLU | mn.Abs):
        raise TypeError(f"there is no exact dual of {layer!r} here: add its formula")
    down = Long({mn.ReLU: 0.0, mn.Abs: -1.0}.get(type(layer), getattr(layer, "slope", 0.0)))
    at_zero = down if isinstance(layer, mn.LeakyReLU) else Long(0)
    norm = np.sqrt(q1 * q2)
    a = np.arccos(np.clip(k / np.where(norm > 0, norm, 1), -1, 1))
    same, cross = (norm * (np.sin(b) + (pi - b) * np.cos(b)) / (2 * pi) for b in (a, pi - a))
    slope = (1 + down**2) * (pi - a) / (2 * pi) + 2 * down * a / (2 * pi)
    one_zero = at_zero * np.where((q1 == 0) & (q2 == 0), at_zero, (1 + down) / 2)
    return (1 + down**2) * same - 2 * down * cross, np.where((q1 == 0) | (q2 == 0), one_zero, slope)


def image_kernels(spec: mn.spec.Layer, x: Array) -> tuple[Array, Array]:
    """Return the (N, N) NNGP and NTK of images, sequences or vectors x in extended precision and NTK parametrization.

    The function computes the covariances of all pairs of pixels of all examples, (N, P, N, P), layer by layer. The
    recursion uses no simplifications.
    """
    pixels = x.reshape(len(x), -1, x.shape[-1]).astype(Long)
    k = np.tensordot(pixels, pixels, (2, 2)) / Long(x.shape[-1])
    k, t, _ = through(parts(spec), k, 0 * k, x.shape[1:-1])
    return tuple(np.einsum("npmp->nm", v) / Long(k.shape[1]) for v in (k, t))


def parts(spec: mn.spec.Layer) -> tuple[mn.spec.Layer, ...]:
    """Return the layers of a spec as a tuple."""
    return spec.layers if isinstance(spec, mn.Sequential) else (spec,)


def through(layers: Any, k: Array, t: Array, grid: Any) -> tuple[Array, Array, tuple[int, ...]]:
    """Return the NNGP k, the NTK t and the grid of pixels after the layers."""
    for layer in layers:
        if isinstance(layer, mn.Sequential):
            k, t, grid = through(layer.layers, k, t, grid)
        elif isinstance(layer, mn.Residual):
            one, two = (through(parts(part), k, t, grid) for part in (layer.branch, layer.shortcut))
            k, t, grid = one[0] + two[0], one[1] + two[1], one[2]
        elif isinstance(layer, mn.spec.Branches):
            k, t, grid = together(layer, [through(parts(part), k, t, grid) for part in layer])
        elif isinstance(layer, mn.Dropout):
            own = np.ones(k.shape, dtype=Long)
            np.einsum("npnp->np", own)[...] /= 1 - Long(layer.rate)
            k, t = k * own, t * own
        elif isinstance(layer, mn.Scale):
            k, t = (Long(layer.factor) ** 2 * v for v in (k, t))
        elif isinstance(layer, mn.Dense | mn.Conv2d | mn.Conv1d):
            w2, b2 = Long(layer.w_std) ** 2, Long(layer.b_std) ** 2
            if not isinstance(layer, mn.Dense):
                matrices, grid = window_matrices(layer, grid)
                k, t = (sum(each_pixel(m, v) for m in matrices) / Long(len(matrices)) for v in (k, t))
            t = w2 * t + w2 * k + b2
            k = w2 * k + (b2 if layer.b_init == "normal" else Long(0))
        elif isinstance(layer, mn.AvgPool):
            matrices, grid = window_matrices(layer, grid)
            total: Any = sum(matrices)
            mean = total / (total.sum(axis=1, keepdims=True) if layer.normalize_edges else Long(len(matrices)))
            k, t = each_pixel(mean, k), each_pixel(mean, t)
        elif isinstance(layer, mn.GlobalAvgPool):
            all_pixels = np.full((1, k.shape[1]), 1 / Long(k.shape[1]))
            k, t, grid = each_pixel(all_pixels, k), each_pixel(all_pixels, t), ()
        elif isinstance(layer, mn.Flatten):
            k, t = (np.einsum("npmp->nm", v)[:, None, :, None] / Long(v.shape[1]) for v in (k, t))
            grid = ()
        elif isinstance(layer, mn.LayerNorm):
            q = np.einsum("npnp->np", k).reshape((len(k), *grid))
            over = tuple(a + q.ndim + 1 for a in layer.over if a != -1)
            q = np.broadcast_to(q.mean(axis=over, keepdims=True) if over else q, q.shape).reshape((len(k), -1))
            root = 1 / np.sqrt(q + Long(layer.eps))
            k, t = (v * root[:, :, None, None] * root for v in (k, t))
        elif not isinstance(layer, mn.Identity):
            q = np.einsum("npnp->np", k)
            k, slope = long_dual(layer, q[:, :, None, None], q[None, None], k)
            t = t * slope
    return k, t, grid


def together(layer: mn.spec.Branches, found: list[Any]) -> tuple[Array, Array, tuple[int, ...]]:
    """Return k, t and the grid of combined branches.

    The branches of a Concat must end in layers with weights. The weight of a branch is its share of the
    features.
    """
    k, t, grid = found[0]
    if isinstance(layer, mn.Concat):
        ends = [parts(part)[-1] for part in layer]
        n = [Long(getattr(end, "width", 0) or getattr(end, "channels", 0)) for end in ends]
        shares = [one / sum(n) for one in n]
        return (*(sum(c * one[i] for c, one in zip(shares, found)) for i in (0, 1)), grid)
    for other, theta, _ in found[1:]:
        k, t = (k * other, t * other + k * theta) if isinstance(layer, mn.Product) else (k + other, t + theta)
    return k, t, grid


def image_errors(got: tuple[Array, Array], truth: tuple[Array, Array]) -> tuple[float, float]:
    """Return the largest error of the NNGP and of the NTK relative to sqrt(k(x, x) k(x', x')), or inf for a NaN."""
    worst = []
    for values, exact in zip(got, truth):
        scale = np.sqrt(np.outer(exact.diagonal(), exact.diagonal()))
        error = np.where(scale > 0, np.abs(values - exact) / np.where(scale > 0, scale, 1), np.abs(values))
        worst.append(np.inf if np.isnan(error).any() else float(error.max()))
    return worst[0], worst[1]
