"""Convolutions without patches, compiled by Numba (`pip install minintk[fast]`): images are read where they stand.

    y[p, o] = sum_taps sum_k x[tap + p s, k] W[tap, k, o]          a convolution, and its gradient in x
    dW[k, o] = sum_positions x[position + k] u[position, o]        its gradient in W

Both are sums of products of a row of numbers with one number, `tile`: some rows of the result stay in the registers
while the sum runs.  Pixels that stand side by side are neighbours in memory, so a row of a window is one run of k.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.extending import intrinsic as typed_intrinsic

VECTOR = 64 if binding.get_host_cpu_features().get("avx512f") else 32
"""Bytes of a vector register."""

CHANNELS = 16
"""The channels of a result are a multiple of this: whole vectors, in float32 and float64."""

NUMBA_OPTIONS: Any = {"error_model": "numpy", "fastmath": {"contract", "nsz"}}
"""No exception for a division by 0; the compiler may round a b + c once instead of twice, and reorder nothing."""

intrinsic: Any = typed_intrinsic  # its type does not count the arguments right


def compiled(f: Any) -> Any:
    """f compiled for this machine, and cached on disk if some folder can be written to."""
    try:
        return njit(nogil=True, cache=True, **NUMBA_OPTIONS)(f)
    except RuntimeError:  # neither this folder nor one of the user's can be written to
        return njit(nogil=True, **NUMBA_OPTIONS)(f)


@intrinsic(prefer_literal=True)
def tile(context: Any, most: Any, vectors: Any, rows: Any, x: Any, a: Any, W: Any, b: Any, y: Any, c: Any, step: Any,
         taps: Any) -> Any:  # fmt: skip
    """y[c + r out, :] += sum_t sum_k x[a + taps[t, 0] + r row + k along] W[b + taps[t, 1] + k wide, :]

    for `rows` rows r <= most and so many vectors of columns; most and vectors are constants.  step : (row, along, wide,
    out, the number of k).  taps : (T, 2), flat.  The sums stay in registers from the first term to the last, which no
    loop over arrays promises.
    """
    n, lanes = vectors.literal_value, VECTOR * 8 // x.dtype.bitwidth
    signature = types.void(most, vectors, rows, x, a, W, b, y, c, step, taps)

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        i32, i64, vector = ir.IntType(32), ir.IntType(64), ir.VectorType(context.get_data_type(x.dtype), lanes)
        nothing, every = ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(i32, lanes), [0] * lanes)
        row, along, wide, out, K = (builder.extract_value(values[9], i) for i in range(5))

        def array(i: int) -> Any:
            return context.make_array(signature.args[i])(context, builder, value=values[i])

        def moved(p: Any, by: Any) -> Any:
            return builder.gep(p, [by if isinstance(by, ir.Value) else i64(by)])

        def load(p: Any) -> Any:
            found = builder.load(builder.bitcast(p, vector.as_pointer()))
            found.align = x.dtype.bitwidth // 8
            return found

        def everywhere(p: Any) -> Any:
            return builder.shuffle_vector(builder.insert_element(nothing, builder.load(p), i32(0)), nothing, every)

        def loop(starts: list[Any], before: Any) -> list[Any]:
            found = [builder.phi(start.type) for start in starts]
            for phi, start in zip(found, starts, strict=True):
                phi.add_incoming(start, before)
            return found

        def again(phis: list[Any], values: list[Any]) -> None:
            for phi, value in zip(phis, values, strict=True):
                phi.add_incoming(value, builder.block)

        x_, W_, y_, taps_ = *(moved(array(i).data, values[i + 1]) for i in (3, 5, 7)), array(10)

        def sums_of(m: int) -> None:
            """The loops for m rows."""
            places = [builder.mul(row, i64(r)) for r in range(m)]
            corners = [moved(y_, builder.mul(out, i64(r))) for r in range(m)]
            targets = [moved(corner, lanes * v) for corner in corners for v in range(n)]
            sums, before = [load(target) for target in targets], builder.block
            head, tap, body, after, done = map(builder.append_basic_block, ("head", "tap", "body", "after", "done"))

            builder.branch(head)
            builder.position_at_end(head)  # for t in range(T)
            t, *sums = loop([i64(0), *sums], before)
            builder.cbranch(builder.icmp_signed("<", t, taps_.nitems), tap, done)

            builder.position_at_end(tap)
            starts = [moved(p, builder.load(moved(taps_.data, builder.add(t, i64(i))))) for i, p in enumerate((x_, W_))]
            builder.branch(body)

            builder.position_at_end(body)  # for k in range(K)
            k, p, q, *inner = phis = loop([i64(0), *starts, *sums], tap)
            right, new = [load(moved(q, lanes * v)) for v in range(n)], []
            for r in range(m):
                left = everywhere(moved(p, places[r]))
                for v in range(n):
                    product = builder.fmul(left, right[v], flags=("contract",))
                    new.append(builder.fadd(inner[r * n + v], product, flags=("contract",)))
            following = builder.add(k, i64(1))
            again(phis, [following, moved(p, along), moved(q, wide), *new])
            builder.cbranch(builder.icmp_signed("<", following, K), body, after)

            builder.position_at_end(after)
            again([t, *sums], [builder.add(t, i64(2)), *new])
            builder.branch(head)

            builder.position_at_end(done)
            for target, total in zip(targets, sums, strict=True):
                builder.store(total, builder.bitcast(target, vector.as_pointer())).align = x.dtype.bitwidth // 8

        end = builder.append_basic_block("end")
        switch = builder.switch(values[2], end)
        for m in range(1, most.literal_value + 1):
            builder.position_at_end(builder.append_basic_block(f"rows{m}"))
            switch.add_case(m, builder.block)
            sums_of(m)
            builder.branch(end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return signature, emit


@njit(nogil=True, forceinline=True, **NUMBA_OPTIONS)
def product(rows: int, columns: int, x: Any, a: int, W: Any, y: Any, c: int, step: Any, taps: Any) -> None:
    """`tile` by tile, for any number of rows and a multiple of a vector's columns."""
    lanes, row, out = VECTOR // x.itemsize, step[0], step[3]
    for o in range(0, columns - lanes, 2 * lanes):
        for i in range(0, rows, 8):
            tile(8, 2, min(8, rows - i), x, a + i * row, W, o, y, c + i * out + o, step, taps)
    if columns // lanes % 2:
        o = columns - lanes
        for i in range(0, rows, 16):
            tile(16, 1, min(16, rows - i), x, a + i * row, W, o, y, c + i * out + o, step, taps)


@compiled
def correlate(x: Any, W: Any, stride: Any, b: Any, y: Any) -> None:
    """y[i, p, q] = b + sum_rc x[i, p s + r, q s + c] W[r, c].

    x : (N, H, W, C), with its padding.  W : (K_h, K_w, C, n).  b : (n,).  y : (N, H_out, W_out, n), written to.
    """
    (N, R, S, n), (height, width, C, _), line = y.shape, W.shape, x.shape[2] * x.shape[3]
    step, taps = (stride[1] * C, 1, n, n, width * C), np.empty(2 * height, np.int64)
    for r in range(height):
        taps[2 * r], taps[2 * r + 1] = r * line, r * width * C * n
    u, v, w = x.ravel(), W.ravel(), y.ravel()
    for i in range(N * R):
        for j in range(i * S * n, (i + 1) * S * n, n):
            for o in range(n):
                w[j + o] = b[o]
        product(S, n, u, (i // R * x.shape[1] + i % R * stride[0]) * line, v, w, i * S * n, step, taps)


@compiled
def add_gradient(x: Any, u: Any, stride: Any, dW: Any) -> None:
    """dW[r, c] += sum_ipq x[i, p s + r, q s + c]' u[i, p, q]; shapes as for `correlate`, u that of y."""
    (N, R, S, n), (height, width, C, _), line = u.shape, dW.shape, x.shape[2] * x.shape[3]
    step, taps = (1, stride[1] * C, n, n, S), np.empty(2 * R, np.int64)
    v, w, g = x.ravel(), u.ravel(), dW.ravel()
    for i in range(N):
        for r in range(height):
            for k in range(R):
                taps[2 * k], taps[2 * k + 1] = (i * x.shape[1] + k * stride[0]) * line, (i * R + k) * S * n
            product(width * C, n, v, r * line, w, g, r * width * C * n, step, taps)


@compiled
def column_sums(a: Any, shift: Any, b: Any, other: Any) -> Any:
    """(sum_i (a_i - shift), sum_i (a_i - shift) (b_i - other)) : (2, C), in float64, for a, b : (M, C).

    64 rows at a time in their own precision, as exact as NumPy's pairwise sums.
    """
    part, total = np.empty((2, a.shape[1]), a.dtype), np.zeros((2, a.shape[1]))
    for start in range(0, a.shape[0], 64):
        part[:] = 0
        for i in range(start, min(start + 64, a.shape[0])):
            for c in range(a.shape[1]):
                one = a[i, c] - shift[c]
                part[0, c] += one
                part[1, c] += one * (b[i, c] - other[c])
        total += part
    return total


@compiled
def centre(a: Any, mean: Any, b: Any, slope: Any, r: Any, out: Any) -> None:
    """out = r (a - mean - b slope), row by row."""
    for i in range(a.shape[0]):
        for c in range(a.shape[1]):
            out[i, c] = r[c] * (a[i, c] - mean[c] - b[i, c] * slope[c])
