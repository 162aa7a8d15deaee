"""The page for those who come from neural-tangents names all of its public names, of version 0.6.5."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "neural-tangents.md"
NAMES = """
    serial parallel repeat ABRelu Abs Cos Elementwise ElementwiseNumerical Erf Exp ExpNormalized Gabor Gaussian Gelu
    Hermite
    LeakyRelu Monomial Polynomial Rbf RectifiedMonomial Relu Sigmoid_like Sign Sin Aggregate AvgPool Conv ConvLocal
    ConvTranspose Dense Identity Index Slice DotGeneral Dropout Flatten GlobalAvgPool GlobalSelfAttention GlobalSumPool
    ImageResize LayerNorm SumPool FanInConcat FanInProd FanInSum FanOut
    batch empirical_kernel_fn empirical_nngp_fn empirical_ntk_fn empirical_ntk_vp_fn linearize NtkImplementation
    taylor_expand monte_carlo_kernel_fn Kernel empirical_ntk_fn_tf
    gradient_descent gradient_descent_mse gradient_descent_mse_ensemble gp_inference max_learning_rate ODEState
"""


def left_column(page: str) -> str:
    """What the rows of its tables name on the left."""
    return "\n".join(re.findall(r"^\| (.*?) \|", page, re.MULTILINE))


@pytest.mark.skipif(not PAGE.exists(), reason="there are no docs in this tree (an installed package, say)")
def test_every_public_name_has_a_row() -> None:
    named = left_column(PAGE.read_text(encoding="utf-8"))
    assert [name for name in NAMES.split() if not re.search(rf"`[^`]*\b{name}\b[^`]*`", named)] == []
    assert not re.search(r"`[^`]*\bEmbedding\b[^`]*`", named)  # a name that they do not have
