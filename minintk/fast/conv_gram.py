"""Compute a convolution's contribution to the tangent kernel without the full Jacobian, in one of two ways.

gradients   dW_n = sum_p P_p(x_n)' u_p for each example and output, and G = m^2 dW . dW' + c^2 db . db'
pairs       G = sum over pairs of positions p, q of (u_p . v_q) * (m^2 P_p(x) P_q(x')' + c^2)

There are N examples, C outputs, p positions, windows of K inputs, and n output channels.  The first way needs N C p K n
multiplications to form the gradients and N^2 D K n to contract them; D = C, or C^2 for all output pairs.  The second
way needs N^2 p^2 (K + D n), which is less for few positions and many channels.  Blocks of dW are rarely larger than u.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from minintk.arrays import Array, array_namespace, matmul_into, on_host
from minintk.fast.numba_here import loops
from minintk.fast.patches import Patches, nothing_before
from minintk.layers.contract import Contraction, WeightAndBias
from minintk.thresholds import THRESHOLDS


def conv_gram(
    p: WeightAndBias, windows: Patches, x: Array, a: Array, z: Array, b: Array, kernel: Contraction
) -> Array | float:
    """Sum (a dy/dw)(b dy'/dw) over the weights w, contracted by `kernel`.  If both batches are the same, pass b = a.

    windows : the patches with one window per row, B = 1.  x : ([E], N, H, W, C_in), z : ([E], M, H, W, C_in).
    a, b : (C, [E], N, positions, n), (C, [E], M, positions, n), the cotangents of the outputs at x and z.
    """
    if pairs_are_cheaper(windows, a, b, kernel):
        return by_pairs(p, windows, x, a, z, b, kernel)
    return by_gradients(p, windows, x, a, z, b, kernel)


def pairs_are_cheaper(windows: Patches, a: Array, b: Array, kernel: Contraction) -> bool:
    """Return True if summing over pairs of positions takes fewer multiplications than using gradients."""
    C, N, M, p, n = a.shape[0], a.shape[-3], b.shape[-3], a.shape[-2], a.shape[-1]
    K, each = windows.K, C**2 if kernel.full else C  # number of output pairs to contract
    gradients = (N if b is a else N + M) * C * p * K * n + N * M * each * K * n
    return bool(N * M * p**2 * (K + each * n) < gradients)


def by_gradients(
    p: WeightAndBias, windows: Patches, x: Array, a: Array, z: Array, b: Array, kernel: Contraction
) -> Array | float:
    """Compute S_W m^2 dW . dW' + S_b c^2 db . db', with the kernel's scales S, in blocks of output channels."""
    n, (W, c) = a.shape[-1], p.squares(kernel)
    step = max(1, a.shape[-2] * n // windows.K)  # keeps dW of a block no larger than a
    step = step // 16 * 16 or step
    compiled = a.shape[0] * max(a.shape[-3], b.shape[-3]) * windows.work >= THRESHOLDS.compiled  # for both batches
    total: Array | float = 0.0
    for i in range(0, n, step):
        dW = gradient_rows(windows, x, a[..., i : i + step], compiled)
        total = total + kernel(dW, dW if b is a else gradient_rows(windows, z, b[..., i : i + step], compiled), W)
    if c:
        db = a.sum(axis=-2)
        total = total + kernel(db, db if b is a else b.sum(axis=-2), c)
    return total


def gradient_rows(windows: Patches, x: Array, u: Array, compiled: bool) -> Array:
    """Return P(x)' u : (C, [E], N, n K) per example and output, flattened from (n, K), or from (K, n) if compiled."""
    xp = array_namespace(u)
    N, step = x.shape[-4], max(1, windows.step(x) // 4)  # products are computed image by image
    fits = replace(windows, channels=(x.shape[-1], u.shape[-1])).direct and u.ndim == 4 and on_host(xp)  # no ensemble
    if fits and compiled and (direct := loops()) is not None:
        v = np.ascontiguousarray(u).reshape((*u.shape[:2], *windows.windows.out, u.shape[-1]))
        found = np.zeros((N, u.shape[0], *windows.windows.window, x.shape[-1], u.shape[-1]), u.dtype)
        how = nothing_before(x)
        direct.add_gradient(np.ascontiguousarray(x), windows.frame, how, v, windows.windows.strides, found)
        return found.reshape((*found.shape[:2], -1)).swapaxes(0, 1)
    u = xp.moveaxis(u, 0, -3).swapaxes(-1, -2)  # ([E], N, C, n, positions)
    dW = xp.empty((*u.shape[:-1], windows.K), dtype=u.dtype)
    P = None
    for i in range(0, N, step):
        at = slice(i, min(i + step, N))
        P = windows.read(x[..., at, :, :, :], P)
        each = P.reshape((*P.shape[:-2], -1, 1, windows.R, windows.K))
        matmul_into(u[..., at, :, :, :], each, dW[..., at, :, :, :])
    return xp.moveaxis(dW.reshape((*dW.shape[:-2], -1)), -2, 0)


def by_pairs(p: WeightAndBias, windows: Patches, x: Array, a: Array, z: Array, b: Array, kernel: Contraction) -> Array:
    """Compute sum_pq (a_p . b_q) * (S_W m^2 P_p P_q' + S_b c^2), with the kernel's scales S, in blocks of examples."""
    xp, same, (W, c) = array_namespace(a), b is a, p.squares(kernel)
    C, N, M, R = a.shape[0], a.shape[-3], b.shape[-3], a.shape[-2]
    lead, Q = a.shape[1:-3], windows.read(z).swapaxes(-1, -2)
    b = b.reshape((*b.shape[:-3], M * R, b.shape[-1]))
    step = max(1, a.size // (prod(lead) * R * R * M * (C**2 if kernel.full else 1)))
    blocks = []
    for i in range(0, N, step):
        at = slice(i, min(i + step, N))
        g = windows.read(x[..., at, :, :, :]) @ Q
        g *= W
        g += c
        part = a[..., at, :, :]
        k = kernel(part.reshape((*part.shape[:-3], -1, part.shape[-1])), b, g)
        if kernel.full:
            blocks.append(k.reshape((*lead, -1, R, C, M, R, C)).sum(axis=(-5, -2)))
        else:
            blocks.append(k.reshape((*lead, -1, R, M, R)).sum(axis=(-3, -1)))
    G = blocks[0] if len(blocks) == 1 else xp.concat(blocks, axis=-4 if kernel.full else -2)
    if same:  # makes the result exactly symmetric
        G = (G + (xp.moveaxis(G, (-4, -3), (-2, -1)) if kernel.full else G.swapaxes(-1, -2))) / 2
    return G
