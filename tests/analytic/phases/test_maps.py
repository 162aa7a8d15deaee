"""The maps of one block against formulas."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np

import minintk as mn
from analytic.phases.maps import Maps
from analytic.vectors.rules import lower
from minintk.spec.shapes import Site


def test_maps_of_erf() -> None:
    """E erf(u)^2 = (2/pi) asin(2q/(1+2q)); E erf'(u) erf'(u') = (4/pi) / sqrt((1+2q)^2 - 4k^2)."""
    maps, q, c = Maps(lower(mn.Erf(), Site((1,)), mn.NTK())), 0.7, 0.3
    V, D, added = maps.variance(q)
    want = 2 / pi * np.arcsin(2 * q / (1 + 2 * q)), 4 / pi / sqrt(1 + 4 * q), 0.0
    np.testing.assert_allclose((V, D, added), want, rtol=1e-14)
    np.testing.assert_allclose(maps.chi_q(q), q / V * 4 / pi / sqrt(1 + 4 * q) / (1 + 2 * q), rtol=1e-11)
    p, chi, _ = maps.pairs(q, np.array([(1 - c) / 2]))
    np.testing.assert_allclose(1 - 2 * p[0], 2 / pi * np.arcsin(2 * q * c / (1 + 2 * q)) / V, rtol=1e-13)
    np.testing.assert_allclose(chi[0], 4 / pi / sqrt((1 + 2 * q) ** 2 - 4 * (q * c) ** 2), rtol=1e-13)
