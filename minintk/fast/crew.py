"""The compiled loops of `minintk.fast.direct` on all cores, without the interpreter between them.

    lead    the caller's thread posts a task in the `board`, takes part in it, and returns when it is done
    serve   a thread of the pool looks for tasks without falling asleep: it would wake up later than many of them end

A task is a loop over pieces 0 ... pieces - 1, each for a thread that asks first; the caller's goes up, the others' go
down, so that a piece stays in the cache of its core from one loop to the next.  Where the others are busy elsewhere the
caller takes all pieces, and waits only for those that are begun.  Sums are those of fixed pieces, in order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils

from minintk.fast import direct
from minintk.fast.board import BACK, FAILED, INSIDE, LEFT, NEXT, OPEN, PIECES, STOP, TASK
from minintk.fast.direct import NUMBA_OPTIONS, compiled, intrinsic

INT, BYTES = ir.IntType(64), ir.IntType(8).as_pointer()
here: Any = cgutils.alloca_once_value
PIECE = ir.FunctionType(INT, [BYTES, INT, INT])
"""Of a task: whether it failed, from (address of its arguments, the piece, the number of pieces)."""


def number(signature: Any, emit: Any) -> Any:
    """An intrinsic whose LLVM code is emit(builder, the address of board[i], the other values)."""

    def place(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, value=values[0]).data
        return emit(builder, builder.gep(data, [values[1]]), values[2:])

    return signature, place


@intrinsic
def read(context: Any, board: Any, i: Any) -> Any:
    """board[i], as another thread has written it, and whatever it wrote before."""
    return number(types.int64(board, i), lambda builder, place, _: builder.load_atomic(place, "seq_cst", 8))


@intrinsic
def add(context: Any, board: Any, i: Any, value: Any) -> Any:
    """board[i] += value, in one for all threads; what was there before."""
    signature = types.int64(board, i, value)
    return number(signature, lambda builder, place, new: builder.atomic_rmw("add", place, *new, "seq_cst"))


@intrinsic
def write(context: Any, board: Any, i: Any, value: Any) -> Any:
    """board[i] = value, after all that was written before; what was there before."""
    signature = types.int64(board, i, value)
    return number(signature, lambda builder, place, new: builder.atomic_rmw("xchg", place, *new, "seq_cst"))


@intrinsic
def breathe(context: Any) -> Any:
    """Leave a core to its other thread for some cycles, where the processor has a word for that."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        if binding.get_default_triple().startswith("x86_64"):
            pause = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), pause), [])
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def task(typing: Any, f: Any, args: Any) -> Any:
    """(address of a PIECE that calls the compiled f(piece, pieces, *args), address of args), while the caller runs."""
    inner = f.get_call_type(typing, (types.int64, types.int64, *args.types), {})

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        made = f.dispatcher.get_compile_result(inner)
        context.active_code_library.add_linking_library(made.library)
        piece = ir.Function(builder.module, PIECE, builder.module.get_unique_name("minintk_piece"))
        piece.linkage = "internal"
        inside = ir.IRBuilder(piece.append_basic_block())
        packed = inside.load(inside.bitcast(piece.args[0], values[1].type.as_pointer()))
        each = [inside.extract_value(packed, i) for i in range(len(args.types))]
        status, _ = context.call_internal_no_propagate(inside, made.fndesc, inner, [*piece.args[1:], *each])
        inside.ret(inside.zext(status.is_error, INT))
        addresses = (builder.ptrtoint(p, INT) for p in (piece, here(builder, values[1])))
        return context.make_tuple(builder, signature.return_type, list(addresses))

    pair: Any = types.UniTuple
    return pair(types.int64, 2)(f, args), emit


@intrinsic
def call(context: Any, f: Any, args: Any, i: Any, pieces: Any) -> Any:
    """Piece i of a task."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        f, args, *which = values
        return builder.call(builder.inttoptr(f, PIECE.as_pointer()), [builder.inttoptr(args, BYTES), *which])

    return types.int64(f, args, i, pieces), emit


@njit(nogil=True, **NUMBA_OPTIONS)
def take(board: Any, leads: bool) -> None:
    """Pieces of the task that is posted, until none is left."""
    pieces, mine = board[PIECES], 0
    while add(board, NEXT, 1) < pieces:
        i = mine if leads else pieces - 1 - add(board, BACK, 1)
        mine += 1
        if call(board[TASK], board[TASK + 1], i, pieces):
            write(board, FAILED, 1)


@compiled
def serve(board: Any, looks: int) -> None:
    """Takes part in tasks, until so many looks in turn have found none, or it is told to stop."""
    idle = 0
    while idle < looks and read(board, STOP) == 0:
        idle += 1
        if read(board, OPEN) == 0 or read(board, NEXT) >= board[PIECES]:
            breathe()
            continue
        add(board, INSIDE, 1)
        if read(board, OPEN):  # still so, and now until this thread has left
            take(board, False)
            idle = 0
        add(board, INSIDE, -1)
    add(board, LEFT, 1)


@njit(nogil=True, **NUMBA_OPTIONS)
def lead(board: Any, what: Any, pieces: int) -> None:
    """Posts a task of so many pieces, and returns when all are done."""
    board[TASK], board[TASK + 1] = what
    board[PIECES] = pieces
    write(board, NEXT, 0)
    write(board, BACK, 0)
    write(board, OPEN, 1)
    take(board, True)
    write(board, OPEN, 0)
    while read(board, INSIDE):
        breathe()
    if write(board, FAILED, 0):
        raise MemoryError("no memory for a convolution's canvas: take smaller batches")


# ------------------------------------------------------------------------------------------- the loops in pieces


@njit(nogil=True, forceinline=True, **NUMBA_OPTIONS)
def bounds(i: int, pieces: int, count: int) -> Any:
    """Where piece i of `count` begins and ends."""
    return i * count // pieces, (i + 1) * count // pieces


@njit(nogil=True, **NUMBA_OPTIONS)
def some_correlate(i: int, pieces: int, x: Any, frame: Any, before: Any, W: Any, stride: Any, b: Any, y: Any,
                   place: Any) -> None:  # fmt: skip
    """Of some images."""
    (low, high), each = bounds(i, pieces, len(x)), b.size // len(x) if b.size > W.shape[3] else 0
    b = b[low * each : high * each] if each else b
    direct.correlate(x[low:high], frame, before, W, stride, b, y[low:high], place)


@compiled
def correlate(board: Any, cores: int, x: Any, frame: Any, before: Any, W: Any, stride: Any, b: Any, y: Any,
              place: Any) -> None:  # fmt: skip
    """As in `direct`."""
    lead(board, task(some_correlate, (x, frame, before, W, stride, b, y, place)), min(len(x), 4 * cores))


@njit(nogil=True, **NUMBA_OPTIONS)
def some_gradient(i: int, pieces: int, x: Any, frame: Any, before: Any, u: Any, stride: Any, parts: Any) -> None:
    """Of some images."""
    low, high = bounds(i, pieces, len(x))
    v = u[0][low:high].reshape((1, high - low, *u.shape[2:]))  # known to be in one piece
    direct.add_gradient(x[low:high], frame, before, v, stride, parts[i : i + 1])


@compiled
def add_gradient(board: Any, cores: int, x: Any, frame: Any, before: Any, u: Any, stride: Any, dW: Any) -> None:
    """As in `direct`, summed over the images."""
    pieces = min(len(x), cores)
    parts = np.zeros((pieces, *dW.shape[1:]), dW.dtype)
    lead(board, task(some_gradient, (x, frame, before, u, stride, parts)), pieces)
    for part in parts:
        dW[0] += part


@njit(nogil=True, **NUMBA_OPTIONS)
def some_sums(i: int, pieces: int, a: Any, shift: Any, b: Any, other: Any, floor: Any, parts: Any) -> None:
    """Of some rows."""
    low, high = bounds(i, pieces, a.size // shift.size + 1)
    at = slice(low * shift.size, high * shift.size)
    direct.column_sums(a[at], shift, b[at], other, floor, parts[i])


@compiled
def column_sums(board: Any, cores: int, a: Any, shift: Any, b: Any, other: Any, floor: Any, total: Any) -> None:
    """As in `direct`."""
    parts = np.zeros((cores, *total.shape), total.dtype)
    lead(board, task(some_sums, (a, shift, b, other, floor, parts)), cores)
    for part in parts:
        total += part


@njit(nogil=True, **NUMBA_OPTIONS)
def some_centre(i: int, pieces: int, a: Any, mean: Any, b: Any, other: Any, slope: Any, r: Any, floor: Any,
                onto: Any) -> None:  # fmt: skip
    """Of some rows."""
    low, high = bounds(i, pieces, a.size // mean.size + 1)
    at = slice(low * mean.size, high * mean.size)
    direct.centre(a[at], mean, b[at], other, slope, r, floor, onto[at])


@compiled
def centre(board: Any, cores: int, a: Any, mean: Any, b: Any, other: Any, slope: Any, r: Any, floor: Any,
           onto: Any) -> None:  # fmt: skip
    """As in `direct`."""
    lead(board, task(some_centre, (a, mean, b, other, slope, r, floor, onto)), 4 * cores)


LOOPS = {
    direct.correlate: correlate,
    direct.add_gradient: add_gradient,
    direct.column_sums: column_sums,
    direct.centre: centre,
}
"""What `minintk.fast.spread` takes for which loop."""
