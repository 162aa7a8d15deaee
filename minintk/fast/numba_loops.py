"""Run convolutions (without patches) and BatchNorm in loops compiled by Numba (`pip install minintk[fast]`).

    y[p, o] = sum_taps sum_k x[tap + p s, k] W[tap, k, o]          a convolution, and its gradient with respect to x
    dW[k, o] = sum_positions x[position + k] u[position, o]        its gradient with respect to W

Each formula is a sum of products of a scalar and a row vector.  `tile` computes several rows of the result at a time
and keeps them in registers.  Adjacent pixels are contiguous in memory, so `k` runs over a whole row of a window.
"""

from __future__ import annotations

from functools import cache, wraps
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit, types

from minintk.fast.compiled import NUMBA_OPTIONS, address, call, compiled, intrinsic

VECTOR = 64 if binding.get_host_cpu_features().get("avx512f") else 32
"""Number of bytes in a vector register."""

CHANNELS = 16
"""The number of channels of a result must be a multiple of 16, so that channels fill whole vectors in either dtype."""

TERMS = 4
"""Number of terms per iteration of the innermost loop.  An iteration reads the addresses of 16 rows only once."""

CACHED = 2**18
"""Number of weights that fit a core's cache."""


@intrinsic(prefer_literal=True)
def tile(context: Any, item: Any, most: Any, vectors: Any, i: Any, rows: Any, o: Any, x: Any, W: Any, y: Any, z: Any,
         step: Any, taps: Any, T: Any) -> Any:  # fmt: skip
    """Compute y[r out + c] = z[r first + c] + sum_tk x[taps[t, 0] + r row + k along] W[taps[t, 1] + k wide + c]

    for `rows` <= `most` rows r starting at i, and `vectors` vectors of columns c starting at o.  item (size in bytes),
    most and vectors are literals.  x, W, y, z, step and taps are addresses.  step : (row, along, wide, out, K, first),
    where k < K.  taps : (T, 2), flat.  Sums stay in registers throughout; a loop over arrays does not guarantee this.
    """
    size, n, lanes = item.literal_value, vectors.literal_value, VECTOR // item.literal_value
    signature = types.void(item, most, vectors, i, rows, o, x, W, y, z, step, taps, T)

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        number, i32, i64 = ir.FloatType() if size == 4 else ir.DoubleType(), ir.IntType(32), ir.IntType(64)
        vector = ir.VectorType(number, lanes)
        nothing, every = ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(i32, lanes), [0] * lanes)

        def moved(p: Any, *steps: Any) -> Any:
            for by in steps:
                p = builder.gep(p, [by if isinstance(by, ir.Value) else i64(by)])
            return p

        def load(p: Any) -> Any:
            found = builder.load(builder.bitcast(p, vector.as_pointer()))
            found.align = size
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

        i, rows, o = values[3:6]
        x_, W_, y_, z_ = (builder.inttoptr(value, number.as_pointer()) for value in values[6:10])
        step_, taps_ = (builder.inttoptr(value, i64.as_pointer()) for value in values[10:12])
        row, along, wide, out, K, first = (builder.load(moved(step_, k)) for k in range(6))
        end = builder.shl(values[12], i64(1))
        x_, W_ = moved(x_, builder.mul(i, row)), moved(W_, o)
        y_, z_ = (moved(p, builder.mul(i, by), o) for p, by in ((y_, out), (z_, first)))

        def sums_of(m: int) -> None:
            """Emit LLVM code for the loops that compute m rows."""
            places = [builder.mul(row, i64(r)) for r in range(m)]
            targets, starts = (
                [moved(moved(corner, builder.mul(by, i64(r))), lanes * v) for r in range(m) for v in range(n)]
                for corner, by in ((y_, out), (z_, first))
            )
            sums, before = [load(start) for start in starts], builder.block
            head, tap, done = map(builder.append_basic_block, ("head", "tap", "done"))

            builder.branch(head)
            builder.position_at_end(head)  # for t in range(T)
            t, *sums = loop([i64(0), *sums], before)
            builder.cbranch(builder.icmp_signed("<", t, end), tap, done)

            builder.position_at_end(tap)
            corners = (moved(p, builder.load(moved(taps_, t, i))) for i, p in enumerate((x_, W_)))
            state = [i64(0), *corners, *sums]
            for count in (TERMS, 1) if n == 1 else (1,):  # for k in range(K): several k at a time, then the rest
                test, body, rest = map(builder.append_basic_block, ("test", "body", "rest"))
                before = builder.block
                builder.branch(test)
                builder.position_at_end(test)
                k, p, q, *new = state = loop(state, before)
                following = builder.add(k, i64(count))
                builder.cbranch(builder.icmp_signed("<=", following, K), body, rest)

                builder.position_at_end(body)
                # the step is read in every iteration; otherwise, the compiler keeps an address for each of 64 terms
                step = along if n > 1 else builder.load_atomic(moved(step_, 1), "monotonic", 8)
                (*lefts, p), (*rights, q) = (
                    [moved(corner, builder.mul(by, i64(c))) for c in range(count + 1)]
                    for corner, by in ((p, step), (q, wide))
                )
                right = [[load(moved(corner, lanes * v)) for v in range(n)] for corner in rights]
                for r in range(m):
                    for c in range(count):
                        left = everywhere(moved(lefts[c], places[r]))
                        for v in range(n):
                            term = builder.fmul(left, right[c][v], flags=("contract",))
                            new[r * n + v] = builder.fadd(new[r * n + v], term, flags=("contract",))
                again(state, [following, p, q, *new])
                builder.branch(test)
                builder.position_at_end(rest)
            again([t, *sums], [builder.add(t, i64(2)), *state[3:]])
            builder.branch(head)

            builder.position_at_end(done)
            for target, total in zip(targets, sums, strict=True):
                builder.store(total, builder.bitcast(target, vector.as_pointer())).align = size

        over = builder.append_basic_block("end")
        switch = builder.switch(rows, over)
        for m in range(1, most.literal_value + 1):
            builder.position_at_end(builder.append_basic_block(f"rows{m}"))
            switch.add_case(m, builder.block)
            sums_of(m)
            builder.branch(over)
        builder.position_at_end(over)
        return context.get_dummy_value()

    return signature, emit


@cache
def products(dtype: Any) -> int:
    """Return the address of a loop over `tile`, compiled once per dtype, for any number of rows and whole vectors."""
    item, lanes = dtype.itemsize, VECTOR // dtype.itemsize

    def product(rows: Any, columns: Any, x: Any, W: Any, y: Any, z: Any, step: Any, taps: Any, T: Any) -> None:
        wide, narrow = -(-rows // 12), -(-rows // 16)
        for o in range(0, columns - lanes, 2 * lanes):
            for j in range(wide):
                i = j * rows // wide
                tile(item, 12, 2, i, (j + 1) * rows // wide - i, o, x, W, y, z, step, taps, T)
        if columns // lanes % 2:
            for j in range(narrow):
                i = j * rows // narrow
                tile(item, 16, 1, i, (j + 1) * rows // narrow - i, columns - lanes, x, W, y, z, step, taps, T)

    return address(compiled(product), 9)


def usual(a: Any) -> Any:
    """Copy an array argument if it is read-only or non-contiguous, so that Numba need not compile the loop again."""
    fits = not isinstance(a, np.ndarray) or (a.flags.c_contiguous and a.flags.writeable)
    return a if fits else np.require(a, requirements=("C", "W"))


def looped(f: Any) -> Any:
    """Return f as a compiled loop whose arguments are converted by `usual`."""
    loop = compiled(f)
    return wraps(f)(lambda *args: loop(*map(usual, args)))


def with_products(f: Any) -> Any:
    """Return f compiled by `looped`, with products(x.dtype) inserted as its first argument."""
    loop = looped(f)
    return wraps(f)(lambda x, *others: loop(products(x.dtype), x, *others))


@intrinsic
def at(context: Any, a: Any, i: Any) -> Any:
    """Return the address of a[i] for a one-dimensional array `a`."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = context.make_array(a)(context, builder, value=values[0]).data
        return builder.ptrtoint(builder.gep(data, [values[1]]), ir.IntType(64))

    return types.int64(a, i), emit


@njit(nogil=True, forceinline=True, **NUMBA_OPTIONS)
def framed(frame: Any, shape: Any, before: Any) -> bool:
    """Return True if images of this shape must be copied into a frame, because of padding or a map `before`."""
    height, width, down, right = frame
    same = height == shape[1] and width == shape[2] and down[0, 2] == height and right[0, 2] == width
    return not same or before[0].size > 0


@njit(nogil=True, forceinline=True, **NUMBA_OPTIONS)
def filled(frame: Any) -> Any:
    """Return the range of the rows of a frame that contain pixels, as (start, stop).  Products skip the other rows."""
    down = frame[2]
    return down[0, 0], down[-1, 0] + down[-1, 2]


@njit(nogil=True, forceinline=True, **NUMBA_OPTIONS)
def put(x: Any, i: int, frame: Any, before: Any, canvas: Any) -> None:
    """Copy image i of x : (N, H, W, C) into the flat frame `canvas`, leaving its padding unchanged.

    before : (mean, r, floor), with mean, r : (L,) for L / C pixels.  Write max(r (x - mean), floor), or x if L = 0.
    """
    (_, width, down, right), (_, H, W, C), flat, (mean, scale, floor) = frame, x.shape, x.ravel(), before
    for d in range(down.shape[0]):
        for r in range(down[d, 2]):
            for e in range(right.shape[0]):
                to = ((down[d, 0] + r) * width + right[e, 0]) * C
                start = ((i * H + down[d, 1] + r) * W + right[e, 1]) * C
                inside, image = canvas[to : to + right[e, 2] * C], flat[start : start + right[e, 2] * C]
                for k in range(0 if mean.size else inside.size):
                    inside[k] = image[k]
                for k in range(0, inside.size if mean.size else 0, max(1, mean.size)):
                    some, those = inside[k : k + mean.size], image[k : k + mean.size]
                    for c in range(some.size):
                        one = scale[c] * (those[c] - mean[c])
                        some[c] = floor if one < floor else one


@with_products
def correlate(product: int, x: Any, frame: Any, before: Any, W: Any, stride: Any, b: Any, y: Any, place: Any) -> None:
    """Compute y[i, a + p down, c + q right] = b + sum_rk X[i, p s + r, q s + k] W[r, k] for the framed images X.

    x : (N, H, W, C).  frame : see `Frame` in `minintk.fast.patches`.  W : (K_h, K_w, C, n), one group from `columns`.
    b : (n_y,).
    y : (N, H_y, W_y, n_y), written at place : (a, c, down, right, first column).
    """
    (K_h, K_w, C, n), (height, width, _, _), (first, left, down, right, o) = W.shape, frame, place
    R, S = (height - K_h) // stride[0] + 1, (width - K_w) // stride[1] + 1
    (line, inside), (top, bottom), n_y = (width * C, framed(frame, x.shape, before)), filled(frame), y.shape[3]
    canvas, taps = np.zeros(height * line if inside else 0, x.dtype), np.empty(2 * K_h, np.int64)
    u, v, w = canvas if inside else x.ravel(), W.ravel(), y.ravel()
    step = np.array((stride[1] * C, 1, n, right * n_y, K_w * C, 0))
    for i in range(x.shape[0]):
        if inside:
            put(x, i, frame, before, canvas)
        image = 0 if inside else i * height * line
        for p in range(R):
            T = 0
            for r in range(max(0, top - p * stride[0]), min(K_h, bottom - p * stride[0])):
                taps[2 * T], taps[2 * T + 1] = r * line, r * K_w * C * n
                T += 1
            c = ((i * y.shape[1] + first + p * down) * y.shape[2] + left) * n_y + o
            start = image + p * stride[0] * line
            call(product, (S, n, at(u, start), at(v, 0), at(w, c), at(b, o), at(step, 0), at(taps, 0), T))


def columns(W: Any) -> Any:
    """Return [(first column, copy)] for groups of columns of W : (K_h, K_w, C, n) that fit into a core's cache."""
    most = max(2, CACHED // (W.size // W.shape[3] * CHANNELS)) * CHANNELS
    return [(o, np.ascontiguousarray(W[..., o : o + most])) for o in range(0, W.shape[3], most)]


@with_products
def add_gradient(product: int, x: Any, frame: Any, before: Any, u: Any, stride: Any, dW: Any) -> None:
    """Compute dW[i, l, r, k] += sum_pq X[i, p s + r, q s + k]' u[l, i, p, q], with X as in `correlate`.

    u : (L, N, R, S, n).  dW : (N, L, K_h, K_w, C, n), or (1, L, ...) for the sum over i.
    """
    (L, N, R, S, n), (M, _, K_h, K_w, C, _), (height, width, _, _) = u.shape, dW.shape, frame
    (line, inside), (top, bottom) = (width * C, framed(frame, x.shape, before)), filled(frame)
    step, taps = np.array((1, stride[1] * C, n, n, S, n)), np.empty(2 * R, np.int64)
    canvas = np.zeros(height * line if inside else 0, x.dtype)
    v, w, g = canvas if inside else x.ravel(), u.ravel(), dW.ravel()
    for i in range(N):
        if inside:
            put(x, i, frame, before, canvas)
        image = 0 if inside else i * height * line
        for j in range(L * K_h):
            T, first, r = 0, j // K_h * N + i, j % K_h
            for k in range(R):
                if top <= k * stride[0] + r < bottom:
                    taps[2 * T], taps[2 * T + 1] = image + k * stride[0] * line, (first * R + k) * S * n
                    T += 1
            to = ((i if M > 1 else 0) * L * K_h + j) * K_w * C * n
            y = at(g, to)
            call(product, (K_w * C, n, at(v, r * line), at(w, 0), y, y, at(step, 0), at(taps, 0), T))


@looped
def column_sums(a: Any, shift: Any, b: Any, other: Any, floor: Any, total: Any) -> None:
    """Add (sum_i A_i, sum_i A_i (b_i - other)) to total : (2, L), float64; A = a - shift if b - other > floor, else 0.

    a, b : (M C,), M rows of C values.  shift, other : (L,), C values repeated L / C times.  total[:, j] sums every (L /
    C)-th row; the caller adds the L / C parts.  Blocks of 64 terms are summed in the precision of `a`.
    """
    part, L, zero = np.empty((2, shift.size), a.dtype), shift.size, a.dtype.type(0)
    for start in range(0, a.size, 64 * L):
        part[:] = 0
        for i in range(start, min(start + 64 * L, a.size), L):
            some, those = a[i : i + L], b[i : i + L]
            for c in range(some.size):
                one, two = some[c] - shift[c], those[c] - other[c]
                one = zero if two <= floor else one
                part[0, c] += one
                part[1, c] += one * two
        total += part


@looped
def centre(a: Any, mean: Any, b: Any, other: Any, slope: Any, r: Any, floor: Any) -> None:
    """Set `a` to r (A - mean - (b - other) slope), where A = a if b - other > floor, else 0; see `column_sums`."""
    L, zero = mean.size, a.dtype.type(0)
    for i in range(0, a.size, L):
        some, those = a[i : i + L], b[i : i + L]
        for c in range(some.size):
            one, two = some[c], those[c] - other[c]
            one = one if two > floor else zero
            two = two if slope[c] != zero else zero  # avoids NaN from 0 times infinity
            some[c] = r[c] * (one - mean[c] - two * slope[c])
