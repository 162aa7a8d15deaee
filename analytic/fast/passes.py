"""Steps compiled: what a `Trace` says of one pair, done to all pairs of a tile at once (`pip install minintk[fast]`).

A tile in NumPy goes through a cache once for every operation; here once for a layer.  The pass is told the numbers of
the rows, so that it is compiled once for each text, some 20 ms, and serves all kernels whose layers are of that text.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import CFUNCTYPE, addressof, c_int64
from functools import lru_cache, partial
from itertools import count
from math import pi, sqrt
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from llvmlite import binding, ir

from analytic.fast.llvm import VECTOR, Vectors
from analytic.fast.symbols import Symbol
from analytic.fast.trace import SOURCES, Node, Trace, Untraceable, ours, stand_ins, traced, with_inner
from analytic.vectors.quadrature import Quadrature
from analytic.vectors.state import Block, Dual, Flat, Program, address, run_pairs
from minintk.arrays import Array

# ----------------------------------------------------------------------------------------- functions of numbers


def arcsin(m: Vectors, s: Any, p: Any = None) -> Any:
    """asin s, by the one of its angle and the rest to pi/2 that is below pi/4.   p : s^2, if that is what s is of."""
    wide = s > sqrt(0.5)
    rest = (1.0 - s) * (s + 1.0) if p is None else 1.0 - p
    near = m.where(wide, rest, s * s if p is None else p)
    h = m.asin(near, m.where(wide, m.sqrt(rest), s))
    return m.where(wide, pi / 2 - h, h)


def arctan2(m: Vectors, y: Any, x: Any) -> Any:
    """The angle of (x, y) for x >= 0."""
    size = m.largest(y, 0.0 - y)
    longer, shorter = m.largest(size, x), m.smallest(size, x)
    s = shorter / m.largest(m.sqrt(longer * longer + shorter * shorter), m.tiny)
    h = m.asin(s * s, s)
    h = m.where(size > x, pi / 2 - h, h)
    return m.where(m.write(">", 0.0, y), 0.0 - h, h)


FUNCTIONS: dict[str, Any] = {
    "add": lambda m, a, b: a + b,
    "subtract": lambda m, a, b: a - b,
    "multiply": lambda m, a, b: a * b,
    "divide": lambda m, a, b: a / b,
    "negative": lambda m, a: 0.0 - a,
    "abs": lambda m, a: m.largest(a, 0.0 - a),
    "minimum": Vectors.smallest,
    "maximum": Vectors.largest,
    "greater": lambda m, a, b: a > b,
    "less": lambda m, a, b: b > a,
    "equal": lambda m, a, b: m.write("==", a, b),
    "where": Vectors.where,
    "sqrt": Vectors.sqrt,
    "exp": Vectors.exp,
    "expm1": Vectors.expm1,
    "arcsin": arcsin,
    "arctan": lambda m, a: arctan2(m, a, Symbol(m, m.value(1.0))),
    "arctan2": arctan2,
}
"""What pairs may be asked for, by NumPy's names."""


# ------------------------------------------------------------------------------------------------ recipes


LINES, NODES = 1000, 4000
"""Code is compiled of at most so many lines, each of which takes .4 ms, from traces of so many nodes."""

MANY_PAIRS = 2**22
"""From so many on, a quadrature is compiled: its text depends on the rows, two or three lines for each degree."""

LITERAL = {-1.0, 0.0, 0.5, 1.0, 2.0}
"""Numbers that code is compiled with; others are told to it, so that it is the same for all."""


class Recipe(NamedTuple):
    """Steps on pairs as code, and what it needs.

    nodes : of the trace.   sides : those that NumPy computes for rows, in order, their places first.
    needs : places of what pairs need: numbers of the rows at left and at right, of all pairs, and matrix products.
    """

    nodes: tuple[Node, ...]
    sides: tuple[tuple[int, str, tuple[Any, ...]], ...]
    needs: tuple[tuple[int, ...], ...]
    code: Code


Part = tuple[int, int, "Recipe | None"]
"""Steps from one number to another, and how; None if NumPy is to run them."""


KEPT = 64
"""Programs whose recipes are kept, 20 kB each: one for every w_std that a fit goes through."""


@lru_cache(maxsize=KEPT)
def recipes(
    program: Program, texts: tuple[Any, ...], known: Any, dtype: Any, tangent: bool, quadratures: bool
) -> tuple[Part, ...]:
    """A program in parts, each up to an activation, for coefficients of which that much is `known`.

    texts : the methods `pairs` of all steps, inner ones too, so that nothing old is found where one was exchanged.
    quadratures : whether these are worth compiling.
    """
    ends = [k + 1 for k, step in enumerate(program) if isinstance(step, Dual) or k == len(program) - 1]
    found: list[Part] = []
    for start, end in zip((0, *ends), ends, strict=False):
        made = None
        if quadratures or not any(isinstance(step, Quadrature) for step in with_inner(program[start:end])):
            made = recipe(program, known, start, end, dtype, tangent)
        found.append((start, end, made))
    return tuple(found)


def recipe(program: Program, known: Any, start: int, end: int, dtype: Any, tangent: bool) -> Recipe | None:
    """That of the steps from `start` to `end`; None if they do what cannot be compiled."""
    trace = Trace(dtype, NODES)
    try:
        ends = traced(program[start:end], stand_ins(known, trace, count())[start:end], trace, tangent)
    except Untraceable:
        return None
    live = sorted(needed(trace, ends))
    pairs = [n for n in live if trace.kinds[n] == "pair" and trace.nodes[n][0] not in SOURCES]
    if len(pairs) > LINES or any(trace.nodes[n][0] not in FUNCTIONS for n in pairs):
        return None
    inputs = sorted({v for n in pairs for v in trace.nodes[n][1]}.union(ends))
    literal = {n for n in inputs if trace.nodes[n][0] == "number" and trace.nodes[n][1][0] in LITERAL}
    needs = [[n for n in inputs if trace.kinds[n] == kind and n not in literal] for kind in ("left", "right", "one")]
    needs.append([n for n in inputs if trace.nodes[n][0] == "matrix"])
    names: dict[int, Name] = {n: (kind, i) for kind, places in enumerate((*needs, pairs)) for i, n in enumerate(places)}
    names |= {n: trace.nodes[n] for n in live if n in literal or trace.nodes[n][0] in ("p", "tau")}
    lines = tuple((trace.nodes[n][0], *(names[v] for v in trace.nodes[n][1])) for n in pairs)
    code = machine_code(lines, tuple(names[n] for n in ends), tuple(map(len, needs)), dtype)
    sides = tuple((n, *trace.nodes[n]) for n in live if trace.kinds[n] != "pair")
    return Recipe(tuple(trace.nodes), sides, tuple(map(tuple, needs)), code)


def needed(trace: Trace, ends: list[int]) -> set[int]:
    """The places that these are computed from, and they themselves."""
    found: set[int] = set()
    todo = list(ends)
    while todo:
        place = todo.pop()
        if place not in found:
            found.add(place)
            operation, values = trace.nodes[place]
            todo += () if operation in SOURCES else values
    return found


# ------------------------------------------------------------------------------------------- machine code

Name = tuple[Any, Any]
"""A number of a pair: ("p", ()), ("tau", ()), or which of `Recipe.needs`, 4 for pairs, and the place among these."""

ARGUMENTS = "p", "tau", "matrices", "pitch", "n", "m", "rows", "stride", "i", "j", "numbers"
"""Addresses of p and of tau, n x m pairs, lines `pitch` apart; of a table of addresses of matrices of that shape; of
numbers of rows, each `stride` after the one before, of which the pairs' first are i and j; of numbers of all pairs."""


COMPILING = Lock()


def compiled(module: Any) -> Any:
    """An execution engine with the module's functions, for this machine."""
    with COMPILING:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        host = {"cpu": binding.get_host_cpu_name(), "features": binding.get_host_cpu_features().flatten()}
        machine = binding.Target.from_default_triple().create_target_machine(**host, opt=3, jit=True)
        parsed = binding.parse_assembly(str(module))
        rewriting = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=2))
        rewriting.getModulePassManager().run(parsed, rewriting)
        engine = binding.create_mcjit_compiler(parsed, machine)  # which owns both
        engine.finalize_object()
        return engine


def counted_loop(builder: Any, end: Any, step: int) -> tuple[Any, Callable[[], None]]:
    """Begin `for k in range(0, end, step)`, end > 0; returns k, and what ends it."""
    i64 = ir.IntType(64)
    before, body = builder.block, builder.append_basic_block()
    builder.branch(body)
    builder.position_at_end(body)
    k = builder.phi(i64)
    k.add_incoming(i64(0), before)

    def close() -> None:
        after, done = builder.add(k, i64(step)), builder.append_basic_block()
        k.add_incoming(after, builder.block)
        builder.cbranch(builder.icmp_signed("<", after, end), body, done)
        builder.position_at_end(done)

    return k, close


class Code:
    """Machine code, called with `ARGUMENTS`: all pairs, as many at a time as a register holds.

    lines : (operation, *names) for each new number of a pair.   ends : names of p, and of tau, at the end.
    counts : of the numbers of `Recipe.needs`.
    """

    def __init__(self, lines: tuple[Any, ...], ends: tuple[Name, ...], counts: tuple[int, ...], dtype: Any) -> None:
        module, i64 = ir.Module(), ir.IntType(64)
        run = ir.Function(module, ir.FunctionType(ir.VoidType(), [i64] * len(ARGUMENTS)), "run")
        builder = ir.IRBuilder(run.append_basic_block())
        m = Vectors(dtype, builder)
        at = dict(zip(ARGUMENTS, run.args, strict=True))
        p, tau, rows, numbers = (
            builder.inttoptr(at[k], m.number.as_pointer()) for k in ("p", "tau", "rows", "numbers")
        )
        table = builder.inttoptr(at["matrices"], i64.as_pointer())
        left, right, one, matrix = counts
        matrices = [
            builder.inttoptr(builder.load(builder.gep(table, [i64(k)])), m.number.as_pointer()) for k in range(matrix)
        ]
        found: dict[Name, Symbol] = {(2, k): m.spread(numbers, k) for k in range(one)}

        def place(k: int, row: Any) -> Any:
            return builder.add(builder.mul(i64(k), at["stride"]), row)

        i, next_row = counted_loop(builder, at["n"], 1)
        found |= {(0, k): m.spread(rows, place(k, builder.add(i, at["i"]))) for k in range(left)}
        j, next_pairs = counted_loop(builder, at["m"], m.lanes)
        here = builder.add(builder.mul(i, at["pitch"]), j)
        found |= {(1, k): m.load(rows, place(left + k, builder.add(j, at["j"]))) for k in range(right)}
        found |= {(3, k): m.load(matrices[k], here) for k in range(matrix)}
        found |= {(name, ()): m.load(to, here) for (name, to), _ in zip((("p", p), ("tau", tau)), ends, strict=False)}
        found |= {("number", (value,)): Symbol(m, m.value(value)) for value in LITERAL}
        for k, (operation, *names) in enumerate(lines):
            given = [found[name] for name in names]
            if operation == "arcsin" and names[0][0] == 4 and lines[names[0][1]][0] == "sqrt":
                given.append(found[lines[names[0][1]][1]])
            found[4, k] = FUNCTIONS[operation](m, *given)
        for end, to in zip(ends, (p, tau), strict=False):
            m.store(found[end], to, here)
        next_pairs()
        next_row()
        builder.ret_void()
        self.engine = compiled(module)
        self.run = CFUNCTYPE(None, *[c_int64] * len(ARGUMENTS))(self.engine.get_function_address("run"))


@lru_cache(maxsize=512)
def machine_code(lines: tuple[Any, ...], ends: tuple[Name, ...], counts: tuple[int, ...], dtype: Any) -> Code:
    """The Code of that text, compiled once."""
    return Code(lines, ends, counts, dtype)


# --------------------------------------------------------------------------------------------------- passes


class Pass:
    """Steps with their coefficients, ready for blocks.   found : the coefficients' arrays.   count : of all rows."""

    def __init__(self, of: Recipe, found: list[Array], count: int, dtype: Any) -> None:
        values: dict[int, Any] = {}
        for n, operation, given in of.sides:
            if operation == "rows":
                index, row, column, _ = given
                one = found[index]
                values[n] = one.T[column] if column is not None else one if row is None else one[row]
            else:
                values[n] = given[0] if operation == "number" else getattr(np, operation)(*[values[v] for v in given])
        left, right, one, matrix = of.needs
        self.code, self.rows = of.code, np.zeros((len(left) + len(right), count + VECTOR), dtype=dtype)
        for line, n in zip(self.rows[:, :count], left + right, strict=True):
            line[:] = values[n]
        self.numbers = np.array([values[n] for n in one], dtype=dtype)
        self.matrices = [tuple(found[i] for i in of.nodes[n][1]) for n in matrix]
        self.where = address(self.rows), self.rows.shape[1], address(self.numbers)

    def __call__(self, block: Block) -> None:
        p, tau, pitch, n, m = block.place
        rows, stride, numbers = self.where
        with block.scratch.borrow(len(self.matrices), (n, pitch)) as work:
            for (left, right), out in zip(self.matrices, work, strict=True):
                np.matmul(left[block.i], right[block.j].T, out=out[:, :m])
            table = (c_int64 * len(work))(*map(address, work)) if work else None
            at = 0 if table is None else addressof(table)
            self.code.run(p, tau, at, pitch, n, m, rows, stride, block.i.start, block.j.start, numbers)


def passes(
    program: Program, coefficients: tuple[Any, ...], flat: Flat, count: int, pairs: int, dtype: Any, tangent: bool
) -> list[Callable[[Block], None]]:
    """The program in parts: compiled, or by NumPy where that is not possible or does not pay.

    flat : the coefficients.   count, pairs : of all rows, and of what the kernel has of them.
    """
    steps = tuple(with_inner(program))
    find = recipes if all(map(ours, steps)) else recipes.__wrapped__  # others may not be hashable
    texts = tuple([type(step).pairs for step in steps])
    return [
        partial(run_pairs, program[start:end], coefficients=coefficients[start:end])
        if made is None
        else Pass(made, flat.arrays, count, dtype)
        for start, end, made in find(program, texts, flat.known, dtype, tangent, pairs >= MANY_PAIRS)
    ]
