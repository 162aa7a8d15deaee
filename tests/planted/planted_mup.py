"""Plant errors in muP's table, the coordinate check's verdict and Muon, and define the laws (see `planted`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.beyond import spectral_descent
from minintk.lab.experiments import named
from minintk.spec.parametrization import Parametrization, Role, Row, SpectralMuP
from tests.planted.planting import planted

Patch = pytest.MonkeyPatch
DIGITS = mn.datasets.digits(dtype=np.float32).subset(32, np.random.default_rng(0))
Y = DIGITS.one_hot()[1]


def checked(spec: Callable[[int], mn.spec.Layer], x: Any, widths: tuple[int, ...], **told: Any) -> mn.CoordinateCheck:
    return mn.coordinate_check(spec, x, Y, loss=mn.mse, widths=widths, seeds=8, **told)


class Frozen(Parametrization):
    """Spectral muP whose hidden layers do not learn."""

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        row = SpectralMuP().row(role, fan_in, fan_out, sigma)
        return replace(row, lr=0.0, adam=0.0) if role.place == "hidden" else row


def every_layer_learns() -> None:
    """The coordinate check refuses hidden layers that do not learn."""
    told: dict[str, Any] = {"optimizer": mn.Adam(0.01), "parametrization": Frozen()}
    found = checked(named.spec_of_width("mlp", 10, 3), DIGITS.one_hot()[0], (64, 128, 256), **told)
    assert found.verdict == "fail", f"3.W {found['dW', '3.W']}, and the verdict is {found.verdict}"


def many_inputs() -> None:
    """In muP, features of networks narrower than their 784 inputs keep their size."""
    x = DIGITS.enlarged(3, frame=2).one_hot()[0].reshape(32, -1)
    found = checked(named.spec_of_width("mlp", 10, 2), x, (64, 128, 256), optimizer=mn.SGD(0.1))
    assert found.verdict != "fail", found.report().splitlines()[-1]


def any_depth(optimizer: Any) -> Callable[[], None]:
    def law() -> None:
        x = DIGITS.one_hot()[0]
        found = checked(lambda L: named.spec_of_width("resnet", 10, L)(64), x, (2, 4, 8, 16), optimizer=optimizer)
        assert found.verdict != "fail", found.report().splitlines()[-1]

    law.__doc__ = f"muP: features move alike at every depth ({type(optimizer).__name__})"
    law.__name__ = f"any_depth_{type(optimizer).__name__}"
    return law


def every_direction() -> None:
    """In Muon, singular values from 1 to 1e-4 become 1, and those of 0 stay 0."""
    rng, s = np.random.default_rng(0), np.geomspace(1, 1e-4, 8)
    U, V = (np.linalg.qr(rng.standard_normal((n, 8)))[0] for n in (30, 20))
    found = np.linalg.svd(spectral_descent.orthogonalised(U * s @ V.T), compute_uv=False)
    assert np.allclose(found, [1.0] * 8 + [0.0] * 12, atol=1e-3), f"{found[:9].round(3)}"


by_descent, by_adam = any_depth(mn.SGD(0.1)), any_depth(mn.Adam(0.01))


@planted("coordinate check: a verdict on features alone", every_layer_learns)
def _(patch: Patch) -> None:
    def verdict(self: mn.CoordinateCheck) -> str:
        wrong = any(row.verdict == "fail" for row in self.rows if row.quantity in ("h", "dh"))
        return "fail" if wrong else "pass"

    patch.setattr(mn.CoordinateCheck, "verdict", property(verdict))


@planted("SpectralMuP: the first weights as small as those of hidden layers, min(1, sqrt(n/d))", many_inputs)
def _(patch: Patch) -> None:
    right = SpectralMuP._scales

    def scales(self: SpectralMuP, role: Role, *fans: int) -> tuple[float, float, float]:
        return right(self, replace(role, place="hidden") if role.place == "input" else role, *fans)

    patch.setattr(SpectralMuP, "_scales", scales)


@planted("SpectralMuP: the last weights of L branches with the rate of other layers", by_descent)
def _(patch: Patch) -> None:
    right = SpectralMuP.row

    def row(self: SpectralMuP, role: Role, *told: Any) -> Row:
        return replace(right(self, role, *told), lr=right(self, replace(role, branches=1), *told).lr)

    patch.setattr(SpectralMuP, "row", row)


@planted("depth: Adam's rates in L branches as gradient descent's, without 1/sqrt(L)", by_adam)
def _(patch: Patch) -> None:
    right = SpectralMuP.row

    def row(self: SpectralMuP, role: Role, *told: Any) -> Row:
        row = right(self, role, *told)
        return replace(row, adam=row.rate("adam") / role.depth[1])

    patch.setattr(SpectralMuP, "row", row)


@planted("Muon: one sweep of Newton-Schulz steps, whatever is left", every_direction)
def _(patch: Patch) -> None:
    patch.setattr(spectral_descent, "TOLERANCE", np.inf)


@planted("Muon: the gradient over its norm", every_direction)
def _(patch: Patch) -> None:
    patch.setattr(spectral_descent, "orthogonalised", lambda G: G / np.linalg.norm(G, 2))
