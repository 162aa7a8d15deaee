"""The edge of chaos, and the phases on either side of it."""

from __future__ import annotations

from math import pi

import pytest

import analytic as an
import minintk as mn


@pytest.mark.parametrize("activation", [mn.Tanh(), mn.Erf(), mn.Sin(), mn.Gaussian()], ids=repr)
def test_phases_on_either_side(activation: mn.spec.Activation) -> None:
    at = an.critical(activation, b_std=0.3)
    found = [an.phase(mn.Sequential(mn.Dense(8, w_std=w * at.w_std, b_std=0.3), activation)) for w in (0.9, 1.0, 1.1)]
    assert [one.name for one in found] == ["ordered", "critical", "chaotic"]
    assert found[1].q == pytest.approx(at.q, rel=1e-11)
    assert found[0].c == 1 > found[2].c


def test_a_point_by_its_variance() -> None:
    at = an.critical(mn.Tanh(), q=0.5)
    assert an.critical(mn.Tanh(), b_std=at.b_std).q == pytest.approx(0.5, rel=1e-11)
    assert an.critical(mn.Erf()).w_std ** 2 == pytest.approx(pi / 4)  # 1 / erf'(0)^2
