"""Derivatives of both kernels in log w_std and log b_std, against an oracle in extended precision."""

from typing import Any

import numpy as np
import pytest
from oracles_kernels import image_kernels

import analytic as an
import minintk as mn
from analytic.vectors import derivatives as d

SPECS: dict[str, mn.Sequential] = {
    "relu": mn.Sequential(
        mn.Dense(64, w_std=1.3, b_std=0.4), mn.ReLU(), mn.Dense(64, w_std=1.2, b_std=0.3), mn.ReLU(),
        mn.Dense(1, b_std=0.2),
    ),
    "erf": mn.Sequential(mn.Dense(64, w_std=1.3, b_std=0.4), mn.Erf(), mn.Dense(64), mn.Erf(), mn.Dense(1, b_std=0.2)),
    "residual": mn.Sequential(
        mn.Dense(64, w_std=1.3, b_std=0.4),
        mn.Residual(mn.Sequential(mn.LeakyReLU(0.2), mn.Dense(64, b_std=0.1))),
        mn.LayerNorm(), mn.Abs(), mn.Dense(1),
    ),
    "biases from zero": mn.Sequential(
        mn.Dense(64, w_std=1.3, b_std=0.4, b_init="zeros"), mn.ReLU(), mn.Dense(64, b_std=1.0), mn.ReLU(), mn.Dense(1)
    ),
}  # fmt: skip


IMAGES = mn.Sequential(mn.Conv2d(8, 3, b_std=0.5), mn.ReLU(), mn.GlobalAvgPool(), mn.Dense(1))


def rows() -> np.ndarray:
    """Rows of different size, two equal ones, two opposite ones, and zeros."""
    x = np.random.default_rng(0).standard_normal((6, 5)) * np.array([[1.0], [1], [1], [0], [0.1], [30.0]])
    x[1], x[2] = x[0], -x[0]
    return x


def worst(found: Any, wanted: Any) -> float:
    pairs = [(a, b) for both, want in zip(found, wanted) for a, b in zip(both, want)]
    return max(float(abs(a - b).max() / max(abs(b).max(), 1e-300)) for a, b in pairs)


def by_an_oracle(spec: mn.Sequential, x: np.ndarray) -> list[Any]:
    """Differences of kernels in extended precision, from cosines; x : rows, or images, in general position."""

    def both(name: str, h: float) -> Any:
        return np.stack(image_kernels(d.scaled(spec, name, np.exp(h)), x))

    h = 1e-3
    eight = {name: [both(name, i * h) for i in (-2, -1, 1, 2)] for name in d.PARAMETERS}
    return [(8 * (c - b) - (e - a)) / (12 * h) for a, b, c, e in eight.values()]


@pytest.mark.parametrize("name", [*SPECS, "images"])
def test_against_an_oracle(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(1).standard_normal((3, 4, 4, 2) if name == "images" else (5, 5))
    wanted = by_an_oracle(SPECS.get(name, IMAGES), x)
    kernel = an.kernel(SPECS.get(name, IMAGES))
    assert worst(kernel.derivatives(x), wanted) < 1e-9
    assert worst(kernel.derivatives(x[:2], x[2:]), [[k[:2, 2:] for k in both] for both in wanted]) < 1e-9
    last = kernel.spec.layers[-1]

    def all_but_the_last(self: an.Kernel, name: str, factor: float) -> an.Kernel:
        return an.kernel(mn.Sequential(*d.scaled(self.spec, name, factor).inside[:-1], last))

    monkeypatch.setattr(an.Kernel, "_scaled", all_but_the_last)
    assert worst(kernel.derivatives(x), wanted) > 1e-2  # a control: one layer left out


def test_powers_are_known_for_equal_opposite_and_zero_rows() -> None:
    """Without biases K and Theta are of degree 2 in w_std for each layer."""
    k = an.kernel(mn.Sequential(mn.Dense(8, w_std=1.3), mn.ReLU(), mn.Dense(8), mn.Abs(), mn.Dense(1)))
    found = k.derivatives(rows())
    assert worst(found[:1], [[6 * one for one in k.both(rows())]]) < 1e-10
    assert not np.any(found.b_std.ntk)


def test_precision_and_shapes() -> None:
    x = rows().astype(np.float32)
    found = an.kernel(SPECS["relu"]).derivatives(x, x[:2])
    assert {a.dtype for both in found for a in both} == {np.dtype(np.float32)}
    assert {a.shape for both in found for a in both} == {(6, 2)}
    with pytest.raises(ValueError, match="x1"):
        an.kernel(SPECS["relu"]).derivatives(np.full((2, 3), np.nan))
