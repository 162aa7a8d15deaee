"""What a convolution's weights add to the tangent kernel, never the full Jacobian; two ways to the same numbers.

gradients   dW_n = sum_p P_p(x_n)' u_p, each example's and output's own;   G = m^2 dW . dW' + c^2 db . db'
pairs       G = sum over pairs of positions p, q of  (u_p . v_q) * (m^2 P_p(x) P_q(x')' + c^2),   Dense at each position

With N examples, C outputs, p positions, K inputs and n outputs of a window, the first takes N C p K n multiplications
to form and N^2 C K n to contract (C^2 for all pairs of outputs), the second N^2 p^2 (K + C n).  Few positions and many
channels make the second the cheaper one.  Both go block by block, in memory like that of the cotangents.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from minintk.arrays import Array, array_namespace
from minintk.fast.blas import matmul_into
from minintk.layers.contract import Contraction

if TYPE_CHECKING:
    from minintk.layers.conv import ConvJacobian


def conv_gram(J: ConvJacobian, u: Array, other: ConvJacobian, v: Array, kernel: Contraction) -> Array:
    """sum over the weights w of (u dy/dw)(v dy'/dw), contracted by `kernel`."""
    same = other is J and v is u
    a = cotangents(J, u)
    b = a if same else cotangents(other, v)
    if pairs_are_cheaper(J, a, b, kernel):
        return by_pairs(J, a, other, b, kernel)
    return by_gradients(J, a, other, b, kernel)


def pairs_are_cheaper(J: ConvJacobian, a: Array, b: Array, kernel: Contraction) -> bool:
    """Whether pairs of positions take fewer multiplications than each example's gradients."""
    C, N, M, p, n = a.shape[0], a.shape[-3], b.shape[-3], a.shape[-2], a.shape[-1]
    K, each = prod(J.layer.shape[:-1]), C**2 if kernel.full else C  # pairs of outputs contracted
    gradients = (N if b is a else N + M) * C * p * K * n + N * M * each * K * n
    return bool(N * M * p**2 * (K + each * n) < gradients)


def cotangents(J: ConvJacobian, u: Array) -> Array:
    """u : (C, [E], N, positions, n)."""
    *positions, n = J.layer.after
    shape = (u.shape[0], *J.V.shape[:-2], J.x.shape[-4], *positions, n)
    return array_namespace(u).broadcast_to(u, shape).reshape((*shape[: -len(positions) - 1], prod(positions), n))


def by_gradients(J: ConvJacobian, a: Array, other: ConvJacobian, b: Array, kernel: Contraction) -> Array:
    """m^2 dW . dW' + c^2 db . db', some output channels at a time."""
    layer, K, n = J.layer, prod(J.layer.shape[:-1]), a.shape[-1]
    step = max(1, a.shape[-2] * n // K)  # dW no larger than u
    total: Array | float = 0.0
    for i in range(0, n, step):
        at = slice(i, min(i + step, n))
        dW = gradient_rows(J, a[..., at])
        total = total + kernel(dW, dW if b is a else gradient_rows(other, b[..., at]), layer.m**2)
    if layer.b is not None:
        db = a.sum(axis=-2)
        total = total + kernel(db, db if b is a else b.sum(axis=-2), layer.c**2)
    return total


def gradient_rows(J: ConvJacobian, u: Array) -> Array:
    """P(x)' u of each example and output, (C, [E], N, n K), in memory as ([E], N, C, n, K): ready to be contracted."""
    patches, x, xp = J.layer.windows, J.x, array_namespace(u)
    u = xp.moveaxis(u, 0, -3).swapaxes(-1, -2)  # ([E], N, C, n, positions)
    dW = xp.empty((*u.shape[:-1], patches.K), dtype=u.dtype)
    N, step = x.shape[-4], max(1, patches.step(x) // 4)  # the products are image by image
    for i in range(0, N, step):
        at = slice(i, min(i + step, N))
        P = patches.read(x[..., at, :, :, :], passing=True)
        P = P.reshape((*P.shape[:-2], -1, 1, patches.R, patches.K))
        matmul_into(u[..., at, :, :, :], P, dW[..., at, :, :, :])
    return xp.moveaxis(dW.reshape((*dW.shape[:-2], -1)), -2, 0)


def by_pairs(J: ConvJacobian, a: Array, other: ConvJacobian, b: Array, kernel: Contraction) -> Array:
    """sum_pq (u_p . v_q) * (m^2 P_p P_q' + c^2), some examples at a time."""
    layer, xp, windows, same = J.layer, array_namespace(a), J.layer.windows, b is a
    C, N, M, p = a.shape[0], a.shape[-3], b.shape[-3], a.shape[-2]
    lead, Q = a.shape[1:-3], windows.read(other.x).swapaxes(-1, -2)
    b = b.reshape((*b.shape[:-3], M * p, b.shape[-1]))
    step = max(1, a.size // (prod(lead) * p * p * M * (C**2 if kernel.full else 1)))
    blocks = []
    for i in range(0, N, step):
        at = slice(i, min(i + step, N))
        g = windows.read(J.x[..., at, :, :, :]) @ Q
        g *= layer.m**2
        if layer.b is not None:
            g += layer.c**2
        part = a[..., at, :, :]
        k = kernel(part.reshape((*part.shape[:-3], -1, part.shape[-1])), b, g)
        if kernel.full:
            blocks.append(k.reshape((*lead, -1, p, C, M, p, C)).sum(axis=(-5, -2)))
        else:
            blocks.append(k.reshape((*lead, -1, p, M, p)).sum(axis=(-3, -1)))
    G = blocks[0] if len(blocks) == 1 else xp.concat(blocks, axis=-4 if kernel.full else -2)
    if same:  # to the last bit
        G = (G + (xp.moveaxis(G, (-4, -3), (-2, -1)) if kernel.full else G.swapaxes(-1, -2))) / 2
    return G
