"""What the passes by Numba share (`pip install minintk[fast]`): how they are compiled, and functions for their loops.

Where these functions are called in a loop over arrays, the loop becomes vector instructions.
"""

from __future__ import annotations

from typing import Any

import numba
from numba import njit

from minintk.fast.direct import NUMBA_OPTIONS, compiled, intrinsic

__all__ = ["apart", "compiled", "jit", "polynomial", "where"]

jit = njit(nogil=True, **NUMBA_OPTIONS)


class Apart(numba.core.compiler.Compiler):
    """Compiles functions whose arrays never overlap: else loops over many arrays would not become vector code."""

    def define_pipelines(self) -> Any:
        self.state.flags.noalias = True
        return super().define_pipelines()  # type: ignore[no-untyped-call]


apart = njit(nogil=True, pipeline_class=Apart, **NUMBA_OPTIONS)


@intrinsic
def where(context: Any, condition: Any, a: Any, b: Any) -> Any:
    """a if condition else b, both computed: a branch would keep the compiler from vector instructions."""
    return a(condition, a, b), lambda context, builder, signature, values: builder.select(*values)


@intrinsic
def polynomial(context: Any, z: Any, coefficients: Any) -> Any:
    """The value at z, by Horner's rule, written out: a loop over a tuple is not, and keeps the loop around it slow."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        flags, total = ("contract",), builder.extract_value(values[1], 0)
        for k in range(1, len(coefficients)):
            total = builder.fmul(total, values[0], flags=flags)
            total = builder.fadd(total, builder.extract_value(values[1], k), flags=flags)
        return total

    return z(z, coefficients), emit
