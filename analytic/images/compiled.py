"""What the passes by Numba share (`pip install minintk[fast]`): how they are compiled, and formulas as their code."""

from __future__ import annotations

from ast import literal_eval
from functools import cache
from inspect import getsource
from math import factorial, log
from typing import Any
from zlib import crc32

import numpy as np
from llvmlite import ir
from numba import cfunc, njit, types

from analytic.images import symbols
from analytic.images.symbols import Code, Symbol
from analytic.vectors import arcs, scalar_forms
from minintk.fast.direct import NUMBA_OPTIONS, VECTOR, compiled, intrinsic

__all__ = ["call", "compiled", "jit", "steps_of_form"]

jit = njit(nogil=True, **NUMBA_OPTIONS)


# ----------------------------------------------------------------------------------------- formulas as code


EXPONENTIAL_TERMS = {4: 6, 8: 12}
"""By bytes per number: so many terms behind r of e^r - 1, |r| <= log(2) / 2, leave less than a rounding error."""


class Vectors(Code):
    """Instructions of LLVM on whole vector registers."""

    def __init__(self, dtype: Any, builder: Any) -> None:
        super().__init__(dtype)
        self.builder, size = builder, self.dtype.itemsize
        self.lanes, self.integer = VECTOR // size, ir.IntType(8 * size)
        self.number = {4: ir.FloatType(), 8: ir.DoubleType()}[size]
        self.vector = ir.VectorType(self.number, self.lanes)

    def value(self, a: Any) -> Any:
        """A symbol's value, or a number in all places of a vector."""
        return a.name if isinstance(a, Symbol) else ir.Constant(self.vector, [self.number(float(a))] * self.lanes)

    def write(self, operation: str, *arguments: Any) -> Symbol:
        if operation in ("+", "-") and (found := self.fused(operation, *arguments)) is not None:
            return found
        build, values = self.builder, [self.value(a) for a in arguments]
        if operation == ">":
            return Symbol(self, build.fcmp_ordered(">", *values))
        if operation == "where":
            return Symbol(self, build.select(*values))
        if operation in ("sqrt", "fmuladd"):
            name = f"llvm.{operation}.v{self.lanes}f{8 * self.dtype.itemsize}"
            kind = ir.FunctionType(self.vector, [self.vector] * len(values))
            return Symbol(self, build.call(build.module.declare_intrinsic(name, (), kind), values))
        how = {"+": build.fadd, "-": build.fsub, "*": build.fmul, "/": build.fdiv}[operation]
        return Symbol(self, how(*values), arguments if operation == "*" else ())

    def fused(self, operation: str, a: Any, b: Any) -> Symbol | None:
        """a + b or a - b in one instruction, if one of them is a product, which the compiler then drops if it can.

        Left to itself, it would fuse where a product is used once, and D would differ with Theta beside it.
        """
        if isinstance(a, Symbol) and a.factors:
            b = b if operation == "+" else self.write("*", b, -1.0)
            return self.write("fmuladd", *a.factors, b)
        if isinstance(b, Symbol) and b.factors:
            x, y = b.factors
            return self.write("fmuladd", x if operation == "+" else self.write("*", x, -1.0), y, a)
        return None

    def power_of_two(self, turn: Any) -> tuple[Any, Any]:
        """Next to 1.5 2^m, m the digits of a number, are whole numbers alone: n stands in the last digits."""
        digits = {4: 23, 8: 52}[self.dtype.itemsize]
        moved = turn + 1.5 * 2.0**digits
        whole = ir.VectorType(self.integer, self.lanes)
        shift, one = ([self.integer(v)] * self.lanes for v in (digits, {4: 127, 8: 1023}[self.dtype.itemsize]))
        bits = self.builder.bitcast(self.value(moved), whole)
        bits = self.builder.shl(self.builder.add(bits, ir.Constant(whole, one)), ir.Constant(whole, shift))
        return moved - 1.5 * 2.0**digits, Symbol(self, self.builder.bitcast(bits, self.vector))

    def expm1(self, x: Any) -> Any:
        """2^n (e^r - 1) + (2^n - 1),  r = x - n log 2, its log 2 in two parts, of which n times the first is exact."""
        half = np.float32 if self.dtype.itemsize == 8 else np.float16
        first = float(half(log(2)))
        x = self.largest(x, log(self.tiny) + 2)
        n, power = self.power_of_two(x * (1 / log(2)))
        r = x - n * first - n * (log(2) - first)
        terms = tuple(1 / factorial(k) for k in range(EXPONENTIAL_TERMS[self.dtype.itemsize] + 1, 1, -1))
        return power * (r * r * self.polynomial(r, terms) + r) + (power - 1.0)

    def load(self, pointer: Any, at: Any) -> Symbol:
        """The vector from a place on."""
        found = self.builder.load(self.builder.bitcast(self.builder.gep(pointer, [at]), self.vector.as_pointer()))
        found.align = self.dtype.itemsize
        return Symbol(self, found)

    def store(self, symbol: Any, pointer: Any, at: Any) -> None:
        """Write it from a place on."""
        to = self.builder.bitcast(self.builder.gep(pointer, [at]), self.vector.as_pointer())
        self.builder.store(self.value(symbol), to).align = self.dtype.itemsize

    def spread(self, pointer: Any, at: int) -> Symbol:
        """The number at a place, in all places of a vector."""
        one = self.builder.load(self.builder.gep(pointer, [ir.IntType(64)(at)]))
        first = self.builder.insert_element(ir.Constant(self.vector, ir.Undefined), one, ir.IntType(32)(0))
        every = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return Symbol(self, self.builder.shuffle_vector(first, first, every))


@intrinsic(prefer_literal=True)
def advance(context: Any, key: Any, d: Any, theta: Any, one: Any, two: Any, stride: Any, n: Any, k: Any) -> Any:
    """The entries from n on, as many as a vector has, through the form that the constant `key` names.

    All but n and stride are addresses: of D and Theta; of the first number of x and of x', each `stride` numbers
    after the one before; of the form's k.
    """
    name, item, tangent, numbers, constants, _ = literal_eval(key.literal_value)
    form: Any = scalar_forms.FORMS[name]

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        m = Vectors({4: "float32", 8: "float64"}[item], builder)
        _, d, theta, one, two, k = (
            builder.inttoptr(values[i], m.number.as_pointer()) if i else None for i in (0, 1, 2, 3, 4, 7)
        )
        stride, n = values[5], values[6]
        at = [builder.add(n, builder.mul(stride, ir.IntType(64)(i))) for i in range(numbers)]
        sides = (tuple(m.load(side, a) for a in at) for side in (one, two))
        factors = tuple(m.spread(k, i) for i in range(constants))
        after, slope = form.through(m, m.load(d, n), m.load(theta, n) if tangent else None, *sides, factors)
        m.store(after, d, n)
        if tangent:
            m.store(slope, theta, n)
        return context.get_dummy_value()

    return types.void(key, d, theta, one, two, stride, n, k), emit


@cache
def version() -> int:
    """A number for the text of all forms: Numba's cache on disk knows no other files than this one."""
    return crc32("".join(getsource(module) for module in (arcs, scalar_forms, symbols)).encode())


@cache
def steps_of_form(name: str, dtype: Any, tangent: bool, numbers: int, constants: int) -> Any:
    """A form compiled: called, by its `address`, with addresses as in `advance`, and with the size for n.

    Without `NUMBA_OPTIONS`: where the compiler may fuse a b + c, D would not be the same with Theta beside it.
    """
    item = dtype.itemsize
    key, lanes = repr((name, item, bool(tangent), numbers, constants, version())), VECTOR // item

    def run(d: Any, theta: Any, one: Any, two: Any, stride: Any, size: Any, k: Any) -> None:
        for n in range(0, size, lanes):
            advance(key, d, theta, one, two, stride, n, k)

    signature = types.void(*[types.int64] * 7)
    try:
        return cfunc(signature, cache=True)(run)
    except RuntimeError:  # see `compiled`
        return cfunc(signature)(run)


@intrinsic
def call(context: Any, address: Any, d: Any, theta: Any, one: Any, two: Any, stride: Any, size: Any, k: Any) -> Any:
    """The function at an address, with these arguments."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 7)
        builder.call(builder.inttoptr(values[0], kind.as_pointer()), values[1:])
        return context.get_dummy_value()

    return types.void(address, d, theta, one, two, stride, size, k), emit
