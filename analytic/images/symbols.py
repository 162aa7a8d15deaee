"""Formulas as code: a `Form` is run once with symbols for numbers, and each operation on them writes an instruction.

So NumPy, LLVM (`analytic.images.compiled`) and CUDA (`analytic.images.gpu_kernels`) follow one text of the formula.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import factorial, log
from typing import Any

import numpy as np

from analytic.vectors.arcs import arc_series
from analytic.vectors.scalar_forms import Arithmetic


class Symbol:
    """A number that exists when the code runs; `name` is what the code calls it.   factors : of a product."""

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


EXPONENTIAL_TERMS = {4: 6, 8: 12}
"""By bytes per number: so many terms behind r of e^r - 1, |r| <= log(2) / 2, leave less than a rounding error."""


class Code(Arithmetic, ABC):
    """Code that is being written, in a precision."""

    def __init__(self, dtype: Any) -> None:
        super().__init__(np, dtype)
        self.dtype = np.dtype(dtype)
        self.P, self.R = (tuple(map(float, series)) for series in arc_series(self.dtype))

    @abstractmethod
    def write(self, operation: str, *arguments: Any) -> Symbol:
        """The result of one more instruction, on symbols and Python's numbers.   fmuladd : a b + c, in whatever way."""

    @abstractmethod
    def power_of_two(self, turn: Any) -> tuple[Any, Any]:
        """n and 2^n, for the whole number n nearest to `turn`, a symbol."""

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        return self.write("where", condition, a, b)

    def largest(self, a: Any, b: Any) -> Any:
        return self.where(a > b, a, b)

    def smallest(self, a: Any, b: Any) -> Any:
        return self.where(a > b, b, a)

    def sqrt(self, x: Any) -> Any:
        return self.write("sqrt", x)

    def polynomial(self, z: Any, coefficients: tuple[float, ...]) -> Any:
        """Its value at z, highest power first."""
        total: Any = coefficients[0]
        for c in coefficients[1:]:
            total = self.write("fmuladd", total, z, c)
        return total

    def asin(self, p: Any, s: Any) -> Any:
        return s * self.polynomial(p * 4.0 - 1.0, self.P)

    def lag(self, p: Any, s: Any) -> Any:
        return p * (s * self.polynomial(p * 4.0 - 1.0, tuple(-c for c in self.R)))

    def expm1(self, x: Any) -> Any:
        """2^n (e^r - 1) + (2^n - 1),  r = x - n log 2, its log 2 in two parts, of which n times the first is exact."""
        half = np.float32 if self.dtype.itemsize == 8 else np.float16
        first = float(half(log(2)))
        x = self.largest(x, log(self.tiny) + 2)
        n, power = self.power_of_two(x * (1 / log(2)))
        r = x - n * first - n * (log(2) - first)
        terms = tuple(1 / factorial(k) for k in range(EXPONENTIAL_TERMS[self.dtype.itemsize] + 1, 1, -1))
        return power * (r * r * self.polynomial(r, terms) + r) + (power - 1.0)
