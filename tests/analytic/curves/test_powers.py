"""Exponents of power laws against curves of their spectra."""

from __future__ import annotations

import numpy as np
import pytest

import analytic as an


@pytest.mark.parametrize(("alpha", "beta"), [(1.5, 1.8), (2.0, 3.5), (1.5, 3.8), (2.5, 2.0)])
def test_exponents(alpha: float, beta: float) -> None:
    """Flow, width and examples agree within .02; a wrong exponent, off by .1, is refused."""
    want, spectrum = an.exponents(alpha, beta), an.power_law(alpha, beta, 10**11)
    flow = an.learning_curve(*spectrum).flow([1e4, 1e5])
    width = [an.learning_curve(*spectrum, width=n).ridge() for n in (10**5, 10**6)]
    examples = [an.learning_curve(*spectrum, examples=n).ridge() for n in (10**5, 10**6)]
    for loss, exponent in ((flow, want.flow), (width, want.width), (examples, want.examples)):
        assert abs(np.log10(loss[0] / loss[1]) - exponent) < 0.02
    assert abs(np.log10(flow[0] / flow[1]) - want.flow - 0.1) > 0.02
