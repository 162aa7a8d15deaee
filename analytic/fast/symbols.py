"""Turn formulas into code: a `Form` runs once on symbols, and each operation writes one instruction.

NumPy, LLVM (`analytic.fast.llvm`) and CUDA (`analytic.fast.gpu_kernels`) therefore share the formulas.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import pi
from typing import Any

import numpy as np

from analytic.recursion.arcs import arc_series
from analytic.recursion.scalar_forms import Arithmetic


class Symbol:
    """A number in the generated code.   name : its name in the code.   factors : its factors if it is a product."""

    def __init__(self, code: Code, name: Any, factors: tuple[Any, ...] = ()) -> None:
        self.code, self.name, self.factors = code, name, factors

    def __add__(self, other: Any) -> Symbol:
        return self.code.write("+", self, other)

    def __sub__(self, other: Any) -> Symbol:
        return self.code.write("-", self, other)

    def __mul__(self, other: Any) -> Symbol:
        return self.code.write("*", self, other)

    def __truediv__(self, other: Any) -> Symbol:
        return self.code.write("/", self, other)

    def __gt__(self, other: Any) -> Symbol:
        return self.code.write(">", self, other)

    def __radd__(self, other: float) -> Symbol:
        return self.code.write("+", other, self)

    def __rsub__(self, other: float) -> Symbol:
        return self.code.write("-", other, self)

    def __rmul__(self, other: float) -> Symbol:
        return self.code.write("*", other, self)

    def __rtruediv__(self, other: float) -> Symbol:
        return self.code.write("/", other, self)


class Code(Arithmetic, ABC):
    """Instructions in one precision, collected while a formula runs on symbols."""

    def __init__(self, dtype: Any) -> None:
        super().__init__(np, dtype)
        self.dtype = np.dtype(dtype)
        self.P, self.R = (tuple(map(float, series)) for series in arc_series(self.dtype))

    @abstractmethod
    def write(self, operation: str, *arguments: Any) -> Symbol:
        """Write one instruction on symbols and Python numbers; return its result.   fmuladd : a b + c, fused or not."""

    @abstractmethod
    def expm1(self, x: Any) -> Any:
        """Return e^x - 1 for a symbol x <= 0, without cancellation near 0."""

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        return self.write("where", condition, a, b)

    def largest(self, a: Any, b: Any) -> Any:
        return self.where(a > b, a, b)

    def smallest(self, a: Any, b: Any) -> Any:
        return self.where(a > b, b, a)

    def sqrt(self, x: Any) -> Any:
        return self.write("sqrt", x)

    def polynomial(self, z: Any, coefficients: tuple[float, ...]) -> Any:
        """Evaluate a polynomial at z.   coefficients : from the highest power to the constant."""
        total: Any = coefficients[0]
        for c in coefficients[1:]:
            total = self.write("fmuladd", total, z, c)
        return total

    def asin(self, p: Any, s: Any) -> Any:
        return s * self.polynomial(p * 4.0 - 1.0, self.P)

    def angle(self, y: Any, x: Any) -> Any:
        longer, shorter = self.largest(y, x), self.smallest(y, x)
        s = shorter / self.largest(self.sqrt(longer * longer + shorter * shorter), self.tiny)
        h = self.asin(s * s, s)
        return self.where(y > x, pi / 2 - h, h)

    def lag(self, p: Any, s: Any) -> Any:
        return p * (s * self.polynomial(p * 4.0 - 1.0, tuple(-c for c in self.R)))
