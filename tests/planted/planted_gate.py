"""Plant errors in the law of width, and in the gate, the sequential test of this law (see `planted`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import binom

import minintk as mn
from analytic.verify import sequential
from analytic.verify.draws import ANOTHER, Draw, gate
from minintk.models.wrappers import Linearized
from tests.kit.laws import Array, Patch
from tests.planted.planting import planted

DRAW = Draw(1, mn.Erf(), "dense", False, 1.0, 0.1, "normal", "mse", 4, 0.2, 10, "NTK", seed=0)


def falls() -> None:
    """sup_t abs(f - f_lin) falls as n^-1/2."""
    found = gate(DRAW)
    b = sequential.slopes(found["widths"][2:], np.array(found["linearisation"])[:, 2:]).mean()
    if found["gate"] != "holds":
        seeds = len(found["linearisation"])
        raise AssertionError(f"the gate: {found['gate']} after {seeds} seeds, exponent {b:.2f}")


def level() -> None:
    """The gate refuses exponents at its boundary as often as it states."""
    D, shape = 4000, (sequential.ROUNDS, sequential.SEEDS)
    b = sequential.REFUSED_ABOVE + 0.3 * np.random.default_rng(0).standard_normal((D, *shape))
    refused = int((sequential.z_scores(b, sequential.REFUSED_ABOVE) >= sequential.CRITICAL).any(axis=1).sum())
    low, high = binom.interval(1 - 1e-6, D, sequential.LEVEL)
    if not low <= refused <= high:
        raise AssertionError(f"{refused} of {D} refused, {low:.0f} to {high:.0f} at level {sequential.LEVEL}")


def refuses() -> None:
    """The gate refuses a linearisation at other weights."""
    found = gate(Draw(**vars(DRAW) | {"control": ANOTHER}))
    if found["gate"] != "refused" or found["slow"]:
        seeds = len(found["linearisation"])
        raise AssertionError(f"the gate: {found['gate']} after {seeds} seeds, too slow: {found['slow']}")


@planted("Linearized: jvp times 4/3", falls)
def _(patch: Patch) -> None:
    right = Linearized.forward

    def forward(self: Linearized, theta: Array, x: Array) -> Any:
        f, J = right(self, theta, x)
        return f + J.push(theta - self._anchor(theta)) / 3, J

    patch.setattr(Linearized, "forward", forward)


@planted("NTK: the rows of mean field", falls)
def _(patch: Patch) -> None:
    patch.setattr(mn.NTK, "row", mn.MeanField.row)


@planted("gate: every look at the full level", level)
def _(patch: Patch) -> None:
    patch.setattr(sequential, "CRITICAL", 2.326)


@planted("gate: rounds added without their root", level)
def _(patch: Patch) -> None:
    right = sequential.z_scores

    def z_scores(exponents: Any, boundary: float) -> Any:
        z = right(exponents, boundary)
        return z * np.sqrt(np.arange(1, z.shape[-1] + 1))

    patch.setattr(sequential, "z_scores", z_scores)


@planted("gate: errors are compared upside down", refuses)
def _(patch: Patch) -> None:
    right = sequential.z_scores
    patch.setattr(sequential, "z_scores", lambda b, boundary: -right(b, boundary))


@planted("gate: a margin of 1", refuses)
def _(patch: Patch) -> None:
    patch.setattr(sequential, "REFUSED_ABOVE", 0.5)
