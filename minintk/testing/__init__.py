"""The laws every model obeys, for the tests of this package and of layers and models from outside.

Reading order:

    laws         the laws as functions: adjoint, derivative, gram, kernel, ensemble, blocks, float32
    tolerance    how far two results may be apart: what rounding explains, and no more
    layer        every law for one layer, first, in the middle, last and as a residual branch

A layer of your own is a frozen dataclass and two registered meanings, its shape and its finite meaning; the page
"Extending" of the documentation writes one, and shows how `check_layer` refuses a mistake in it.
"""

from minintk.testing.laws import (
    check_adjoint,
    check_blocks,
    check_derivative,
    check_ensemble,
    check_float32,
    check_gram,
    check_kernel,
    check_model,
    check_stacked,
)
from minintk.testing.layer import check_layer
from minintk.testing.tolerance import assert_close, roundings

__all__ = [
    "assert_close", "check_adjoint", "check_blocks", "check_derivative", "check_ensemble", "check_float32",
    "check_gram", "check_kernel", "check_layer", "check_model", "check_stacked", "roundings",
]  # fmt: skip
