"""What the passes by Numba share (`pip install minintk[fast]`): how they are compiled, and functions for their loops.

Where these functions are called in a loop over arrays, the loop becomes vector instructions.
"""

from __future__ import annotations

from typing import Any

import numba
from numba import njit
from numba.extending import intrinsic as typed_intrinsic

NUMBA_OPTIONS: Any = {"error_model": "numpy", "fastmath": {"contract", "nsz"}}
"""No exception for a division by 0; the compiler may round a b + c once instead of twice, and reorder nothing."""


def compiled(f: Any) -> Any:
    """f compiled for this machine, and cached on disk if some folder can be written to."""
    try:
        return njit(nogil=True, cache=True, **NUMBA_OPTIONS)(f)
    except RuntimeError:  # neither this folder nor one of the user's can be written to
        return njit(nogil=True, **NUMBA_OPTIONS)(f)


intrinsic: Any = typed_intrinsic  # its type does not count the arguments right
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
