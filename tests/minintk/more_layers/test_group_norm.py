"""Compare GroupNorm with loops over groups and, for one group, with LayerNorm. Test errors for invalid groups."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk import more_layers as more
from minintk.spec.shapes import out_shape
from minintk.testing import check_layer
from tests.kit.grouped import group_norm, outputs
from tests.kit.thinned import thinned

Array = np.ndarray[Any, Any]


@pytest.mark.parametrize(("groups", "shape"), thinned(product((1, 2, 3), ((6,), (4, 6), (2, 3, 6))), every=2), ids=str)
def test_the_loop_over_groups_and_the_laws(groups: int, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal((3, *shape))
    want = group_norm(x, groups, 0.1).reshape(3, -1)
    np.testing.assert_allclose(outputs(more.GroupNorm(groups, 0.1), x), want, rtol=0, atol=1e-13)
    check_layer(more.GroupNorm(groups, 0.1), shape)


def test_one_group_is_layer_norm_over_all_axes() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 5, 2))
    want = outputs(mn.LayerNorm(axes=(-3, -2, -1)), x)
    np.testing.assert_allclose(outputs(more.GroupNorm(1), x), want, rtol=1e-13)


def test_bad_groups_are_refused() -> None:
    with pytest.raises(ValueError, match=r"GroupNorm\(groups=\.\.\.\) expects a whole number >= 1, got 0"):
        more.GroupNorm(0)
    with pytest.raises(ValueError, match="expects channels that its groups divide"):
        out_shape(more.GroupNorm(4), (2, 2, 6))
