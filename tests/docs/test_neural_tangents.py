"""Test that the page for users of neural-tangents lists all public names of version 0.6.5."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn

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
    """Return the first columns of all tables on the page."""
    return "\n".join(re.findall(r"^\| (.*?) \|", page, re.MULTILINE))


@pytest.mark.skipif(not PAGE.exists(), reason="there are no docs in this tree (an installed package, say)")
def test_every_public_name_has_a_row() -> None:
    named = left_column(PAGE.read_text(encoding="utf-8"))
    assert [name for name in NAMES.split() if not re.search(rf"`[^`]*\b{name}\b[^`]*`", named)] == []
    assert not re.search(r"`[^`]*\bEmbedding\b[^`]*`", named)  # neural-tangents has no such name


def theirs(x: np.ndarray[Any, Any], b_std: float | None, standard: bool, width: int) -> Any:
    """Return the NTK of Dense(width), Relu, Dense(1) by the recursion of neural-tangents' Dense, with W_std = 1.5."""
    ntk = np.zeros((len(x), len(x)))
    nngp = x @ x.T / x.shape[1]
    for layer, fan_in in enumerate((x.shape[1], width)):
        if layer:
            nngp, slope = an.textbook.relu_dual(nngp, np.diag(nngp)[:, None], np.diag(nngp))
            ntk = ntk * slope
        after = 2.25 * nngp + (b_std or 0.0) ** 2
        own = fan_in * nngp + (b_std is not None) if standard else after
        nngp, ntk = after, own + 2.25 * ntk
    return ntk


@pytest.mark.skipif(not PAGE.exists(), reason="there are no docs in this tree (an installed package, say)")
@pytest.mark.parametrize("standard", [True, False])
@pytest.mark.parametrize("b_std", [None, 0.0, 0.4])
def test_their_biases_in_the_words_of_the_table(b_std: float | None, standard: bool) -> None:
    """In neural-tangents, b_std = 0 adds a bias only in "standard" form. The page's table has a row for this case."""
    starts_at_zero = b_std == 0.0 and standard
    how: Any = {"b_std": 1.0, "b_init": "zeros"} if starts_at_zero else {"b_std": b_std or 0.0}
    x, parametrization = np.random.default_rng(0).standard_normal((4, 3)), mn.Standard() if standard else mn.NTK()
    spec = mn.Sequential(mn.Dense(7, w_std=1.5, **how), mn.ReLU(), mn.Dense(1, w_std=1.5, **how))
    want = theirs(x, b_std, standard, 7)
    np.testing.assert_allclose(an.kernel(spec, parametrization).ntk(x), want, rtol=1e-12)
    plain = mn.Sequential(mn.Dense(7, w_std=1.5), mn.ReLU(), mn.Dense(1, w_std=1.5))
    assert np.allclose(an.kernel(plain, parametrization).ntk(x), want) == (not b_std and not starts_at_zero)
    row = '`mn.Dense(n, b_std=1.0, b_init="zeros")`'
    assert row in PAGE.read_text(encoding="utf-8")
