"""Test the inputs on which `minintk verify` compares networks with the theory."""

from __future__ import annotations

import numpy as np

from analytic.verify.problem import N_LINE, problem


def test_the_arc_has_equal_steps_on_the_sphere() -> None:
    """The arc leads from the first test input to one with the other label, in steps of equal angle."""
    given = problem("digits", np.random.default_rng(0))
    assert given.line.shape == (N_LINE, 64)
    np.testing.assert_allclose((given.line**2).sum(axis=1), 64)
    np.testing.assert_allclose(given.line[0], given.x_test[0])
    assert any(np.allclose(given.line[-1], x) for x in given.x_test[1:])
    angle = np.arccos(given.line[0] @ given.line[-1] / 64)
    steps = np.arccos((given.line[1:] * given.line[:-1]).sum(axis=1) / 64)
    np.testing.assert_allclose(steps, angle / (N_LINE - 1))
