"""Compile formulas into instructions on whole vector registers with llvmlite (`pip install minintk[fast]`)."""

from __future__ import annotations

from decimal import Decimal
from math import factorial, log
from typing import Any

import numpy as np
from llvmlite import binding, ir

from analytic.fast.symbols import Code, Symbol

VECTOR = 64 if binding.get_host_cpu_features().get("avx512f") else 32
"""Number of bytes in a vector register."""

EXPONENTIAL_TERMS = {4: 6, 8: 12}
"""{bytes per number: number of terms of e^r - 1 after r, for an error below rounding at |r| <= log(2) / 2}."""


class Vectors(Code):
    """Write LLVM instructions on whole vector registers."""

    def __init__(self, dtype: Any, builder: Any) -> None:
        super().__init__(dtype)
        self.builder, size = builder, self.dtype.itemsize
        self.lanes, self.integer = VECTOR // size, ir.IntType(8 * size)
        self.number = {4: ir.FloatType(), 8: ir.DoubleType()}[size]
        self.vector = ir.VectorType(self.number, self.lanes)

    def value(self, a: Any) -> Any:
        """Return a symbol's value, or a vector with a constant in all lanes."""
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
        """Fuse a + b or a - b if a or b is a product, so that D does not depend on whether Theta is computed."""
        if isinstance(a, Symbol) and a.factors:
            b = b if operation == "+" else self.write("*", b, -1.0)
            return self.write("fmuladd", *a.factors, b)
        if isinstance(b, Symbol) and b.factors:
            x, y = b.factors
            return self.write("fmuladd", x if operation == "+" else self.write("*", x, -1.0), y, a)
        return None

    def power_of_two(self, turn: Any) -> tuple[Any, Any]:
        """Return n = round(turn) and 2^n.  With m mantissa bits, the lowest bits of turn + 1.5 * 2^m contain n."""
        digits = {4: 23, 8: 52}[self.dtype.itemsize]
        moved = turn + 1.5 * 2.0**digits
        whole = ir.VectorType(self.integer, self.lanes)
        shift, one = ([self.integer(v)] * self.lanes for v in (digits, {4: 127, 8: 1023}[self.dtype.itemsize]))
        bits = self.builder.bitcast(self.value(moved), whole)
        bits = self.builder.shl(self.builder.add(bits, ir.Constant(whole, one)), ir.Constant(whole, shift))
        return moved - 1.5 * 2.0**digits, Symbol(self, self.builder.bitcast(bits, self.vector))

    def expm1(self, x: Any) -> Any:
        """Compute e^x - 1 as 2^n (e^r - 1) + (2^n - 1) for r = x - n log 2.  Log 2 is split to make r accurate."""
        half = np.float32 if self.dtype.itemsize == 8 else np.float16
        first, exact = float(half(log(2))), Decimal(2).ln()
        x = self.largest(x, log(self.tiny) + 2)
        n, power = self.power_of_two(x * (1 / log(2)))
        r = x - n * first - n * float(exact - Decimal(first))
        terms = tuple(1 / factorial(k) for k in range(EXPONENTIAL_TERMS[self.dtype.itemsize] + 1, 1, -1))
        return power * (r * r * self.polynomial(r, terms) + r) + (power - 1.0)

    def load(self, pointer: Any, at: Any) -> Symbol:
        """Load the vector that starts at index `at`."""
        found = self.builder.load(self.builder.bitcast(self.builder.gep(pointer, [at]), self.vector.as_pointer()))
        found.align = self.dtype.itemsize
        return Symbol(self, found)

    def store(self, symbol: Any, pointer: Any, at: Any) -> None:
        """Store a vector, starting at index `at`."""
        to = self.builder.bitcast(self.builder.gep(pointer, [at]), self.vector.as_pointer())
        self.builder.store(self.value(symbol), to).align = self.dtype.itemsize

    def spread(self, pointer: Any, at: Any) -> Symbol:
        """Load the number at index `at` into all lanes of a vector."""
        one = self.builder.load(self.builder.gep(pointer, [ir.IntType(64)(at) if isinstance(at, int) else at]))
        first = self.builder.insert_element(ir.Constant(self.vector, ir.Undefined), one, ir.IntType(32)(0))
        every = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return Symbol(self, self.builder.shuffle_vector(first, first, every))
