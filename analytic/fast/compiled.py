"""Compile the kernels' Numba loops (`pip install minintk[fast]`) and the formulas that the loops call."""

from __future__ import annotations

from ast import literal_eval
from functools import cache
from inspect import getsource
from sys import modules
from typing import Any
from zlib import crc32

from llvmlite import ir
from numba import njit, types

from analytic.fast import llvm, symbols
from analytic.fast.llvm import VECTOR, Vectors
from analytic.recursion import arcs, scalar_forms
from minintk.fast.compiled import NUMBA_OPTIONS, address, call, compiled, intrinsic

__all__ = ["TEXTS", "call", "compiled", "jit", "steps_of_form"]

jit = njit(nogil=True, **NUMBA_OPTIONS)


# ----------------------------------------------------------------------------------------- formulas as code


TEXTS: dict[str, Any] = {name: form.through for name, form in scalar_forms.FORMS.items()}
"""{name: (arithmetic, D, Theta, numbers, numbers', constants) -> D', Theta'}; other modules add their formulas."""


@intrinsic(prefer_literal=True)
def advance(context: Any, key: Any, d: Any, theta: Any, one: Any, two: Any, stride: Any, n: Any, k: Any) -> Any:
    """Apply the formula that the constant `key` names to one vector of entries, starting at index `n`.

    d, theta, k : addresses of D, Theta and the formula's constants.   one, two : addresses of the first values of x and
    of x'; consecutive values are `stride` apart.   If `key` sets `row`, all pairs have the same x.
    """
    name, item, tangent, row, numbers, constants, _ = literal_eval(key.literal_value)

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        m = Vectors({4: "float32", 8: "float64"}[item], builder)
        _, d, theta, one, two, k = (
            builder.inttoptr(values[i], m.number.as_pointer()) if i else None for i in (0, 1, 2, 3, 4, 7)
        )
        stride, n = values[5], values[6]
        first = [builder.mul(stride, ir.IntType(64)(i)) for i in range(numbers)]
        left = tuple(m.spread(one, a) if row else m.load(one, builder.add(n, a)) for a in first)
        right = tuple(m.load(two, builder.add(n, a)) for a in first)
        factors = tuple(m.spread(k, i) for i in range(constants))
        after, slope = TEXTS[name](m, m.load(d, n), m.load(theta, n) if tangent else None, left, right, factors)
        m.store(after, d, n)
        if tangent:
            m.store(slope, theta, n)
        return context.get_dummy_value()

    return types.void(key, d, theta, one, two, stride, n, k), emit


@cache
def version(module: str) -> int:
    """Return a hash of a module's source and of the code that it uses, because Numba's cache checks only this file."""
    return crc32("".join(map(getsource, (arcs, scalar_forms, symbols, llvm, modules[module]))).encode())


@cache
def steps_of_form(name: str, dtype: Any, tangent: bool, numbers: int, constants: int, row: bool = False) -> int:
    """Compile a loop of `advance`, and return its address.  The loop's argument `size` is the number of entries.

    `NUMBA_OPTIONS` are not used: if the compiler fused a b + c, D would depend on whether Theta is computed.
    """
    item = dtype.itemsize
    written = version(getattr(TEXTS[name], "func", TEXTS[name]).__module__)
    key, lanes = repr((name, item, bool(tangent), row, numbers, constants, written)), VECTOR // item

    def run(d: Any, theta: Any, one: Any, two: Any, stride: Any, size: Any, k: Any) -> None:
        for n in range(0, size, lanes):
            advance(key, d, theta, one, two, stride, n, k)

    return address(compiled(run, {}), 7)
