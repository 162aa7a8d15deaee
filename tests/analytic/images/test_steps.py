"""Test steps on images against brute force over all pairs of pixels in extended precision."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from minintk.spec.parametrization import Parametrization, Role, Row
from tests.kit.oracles_kernels import image_errors, image_kernels

X = np.random.default_rng(0).standard_normal((3, 4, 3, 2))
X[2] = -X[1]
CONV = mn.Conv2d(2, 3, w_std=1.4, b_std=0.3)


@pytest.mark.parametrize("end", [(mn.Flatten(),), (mn.AvgPool(2, padding="same"), CONV, mn.ReLU(), mn.GlobalAvgPool())])
@pytest.mark.parametrize("kind", [mn.Sum, mn.Product])
def test_branches_without_weights_have_no_theta(kind: Any, end: tuple[mn.spec.Layer, ...]) -> None:
    """Compare networks that begin with two branches, one without weights and hence without Theta, with brute force."""
    for branches in permutations((mn.Identity(), CONV)):
        spec = mn.Sequential(kind(*branches), CONV, mn.ReLU(), *end, mn.Dense(1))
        alone = an.kernel(mn.Sequential(kind(*branches), mn.Flatten()))
        for k in (an.kernel(spec), alone):
            assert max(image_errors(k.both(X), image_kernels(k.spec, X))) < 1e-13


@dataclass(frozen=True)
class Frozen(Parametrization):
    """NTK parametrization with learning rate 0, except for the read-out's weights if `last`."""

    last: bool = False

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        rate = float(self.last and role.place == "output" and role.kind == "weight")
        return Row(sigma / fan_in**0.5 if role.kind == "weight" else sigma, 1.0, rate)


POOLED = (mn.AvgPool(2), CONV, mn.Erf(), mn.GlobalAvgPool())


@pytest.mark.parametrize("end", [(mn.Flatten(),), (mn.GlobalAvgPool(),), POOLED], ids=["flat", "pooled", "twice"])
def test_frozen_weights_have_no_theta(end: tuple[mn.spec.Layer, ...]) -> None:
    """If nothing is trained, Theta is 0. If only weights of the read-out are trained, Theta is K minus b_std^2."""
    spec = mn.Sequential(CONV, mn.ReLU(), *end, mn.Dense(1, w_std=1.5, b_std=0.7))
    nngp, ntk = an.kernel(spec, Frozen()).both(X)
    assert nngp.all()
    assert not ntk.any()
    assert not an.kernel(spec, Frozen()).diag(X).ntk.any()
    np.testing.assert_allclose(an.kernel(spec, Frozen(last=True)).ntk(X), nngp - 0.7**2, rtol=1e-13)
