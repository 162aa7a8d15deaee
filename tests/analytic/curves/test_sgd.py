"""Test one-pass SGD at small rates, where it follows gradient flow, and at large ones, up to divergence."""

from __future__ import annotations

import numpy as np
import pytest

import analytic as an
from analytic.curves import contours, sgd
from minintk.arrays import Host

K = np.arange(1, 101.0)
MODES, V2 = an.Modes(K**-1.5, np.ones(100)), K**-1.6


def test_small_rates_follow_the_flow() -> None:
    curve = an.learning_curve(MODES, V2)
    lr, steps = 1e-3, 1000
    flow, sgd = curve.flow([0.0, lr * steps]), curve.sgd([0, steps], lr)
    np.testing.assert_allclose(sgd[0], flow[0], rtol=1e-6)
    np.testing.assert_allclose(sgd[1], flow[1], rtol=0.01)
    assert curve.sgd([steps], 0.3)[0] < 0.8 * flow[1]


def of_draws(lr: float, batch: int, steps: int) -> Host:
    """Return the losses after `steps` steps for 40 draws of 60 random features, from the recursion of r_j^2."""
    losses = []
    for seed in range(40):
        W = np.random.default_rng(seed).standard_normal((100, 60)) / 60**0.5
        z, Q = np.linalg.eigh((A := K[:, None] ** -0.75 * W) @ A.T)
        r2, loss = (Q.T @ V2**0.5) ** 2, 0.0
        for _ in range(steps + 1):
            loss = r2.sum() + 0.1
            r2 = (1 - 2 * lr * z + lr**2 * (1 + 1 / batch) * z**2) * r2 + lr**2 / batch * z**2 * loss
        losses.append(loss)
    return np.array(losses)


@pytest.mark.parametrize(("batch", "share"), [(1, 0.4), (3, 0.9), (10, 1.3), (1000, 1.39)])
def test_many_steps_at_large_rates(batch: int, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss after 1000 steps is that of random features, to 3 standard errors plus 5 %.

    Negative control: on an arc of radius 2.2 times the largest eigenvalue, |q|^1000 is so large that the loss is wrong.
    """
    curve = an.learning_curve(MODES, V2, width=60, noise=0.1)
    lr = share / sgd.edge(curve.equivalent)
    found = of_draws(lr, batch, 1000)
    near = 3 * found.std() / 40**0.5 + 0.05 * found.mean()
    assert abs(curve.sgd(1000, lr, batch=batch) - found.mean()) < near
    if share > 0.7:
        right = contours.closed
        monkeypatch.setattr(contours, "closed", lambda least, most, radius: right(least, most, 2.2 * most))
        with pytest.raises(ValueError, match=r"SGD converges, got .*: the loss is 1e150 at step"):
            curve.sgd(1000, lr, batch=batch)


def test_powers_on_the_contour_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """|q|^T < 2.3 at all nodes, for all batches, steps and accepted rates."""
    curve, right, seen = an.learning_curve(MODES, V2, width=60), contours.closed, []

    def closed(least: float, most: float, radius: float) -> tuple[Host, Host]:
        seen.append(found := right(least, most, radius))
        return found

    monkeypatch.setattr(contours, "closed", closed)
    most = sgd.edge(curve.equivalent)
    for batch in (1, 2, 3, 4, 10, 10**6):
        for share in (1e-3, 0.1, 0.5, 0.94, 1.26, 1.38, 1.39):
            for steps in (1, 3, 10, 100, 3000):
                try:
                    curve.sgd(steps, lr := share / most, batch=batch)
                except ValueError:
                    continue  # too large a rate for this batch
                q = 1 - 2 * lr * (z := seen[-1][0]) + lr**2 * (1 + 1 / batch) * z**2
                assert float(np.abs(q).max()) ** steps < 2.3
    assert len(seen) > 150


def test_rates_that_diverge_raise() -> None:
    """A rate is refused if the loss exceeds 1e150, and otherwise if it is above the largest that can be computed."""
    curve = an.learning_curve(MODES, V2, width=60)
    most = sgd.edge(curve.equivalent)
    with pytest.raises(ValueError, match=r"a rate at which SGD converges, got .*: the loss is 1e150 at step"):
        curve.sgd(10**5, 0.9 / most)
    with pytest.raises(ValueError, match="lr expects less than"):
        curve.sgd(1, 0.96 / most)
