"""Test abc-parametrizations: the published table, equivalence at every step, and the exponents of rows."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from minintk.spec.parametrization import Parametrization, Role, Row

Array = np.ndarray[Any, Any]

NTK = mn.ABC((0, 0.5, 0.5), (0, 0, 0), (0, 0, 0))
STANDARD = mn.ABC((0, 0, 0), (0, 0.5, 0.5), (0, 0, 0))
STANDARD_SMALL = mn.ABC((0, 0, 0), (0, 0.5, 0.5), (1, 1, 1))
MEAN_FIELD = mn.ABC((0, 0.5, 1), (0, 0, 0), (-1, -1, -1))
MUP = mn.ABC((-0.5, 0, 0.5), (0.5, 0.5, 0.5), (0, 0, 0))
MUP_ADAM = mn.ABC((0, 0, 1), (0, 0.5, 0), (0, 1, 0), "adam")  # Yang et al. 2022, table 8: multiplier 1/n at the output


# --------------------------------------------------------------------------------------------- the rules


@pytest.mark.parametrize(
    ("abc", "regime"),
    [
        (NTK, "kernel"),
        (STANDARD, "unstable"),
        (STANDARD_SMALL, "kernel"),
        (MEAN_FIELD, "feature learning"),
        (MUP, "feature learning"),
        (MUP_ADAM, "feature learning"),
        (mn.ABC((0, 0.5, 0.5), (0, 0, 0), (0.5, 0.5, 0.5)), "trivial"),  # NTK with falling rates
        (mn.ABC((0, 0.5, 0.5), (0, 0, 0), (-0.1, -0.1, -0.1)), "unstable"),  # NTK with growing rates
        (mn.ABC((-0.5, 0, 0.5), (0.5, 0.5, 0.5), (0.1, 0.1, 0.1)), "trivial"),
        (mn.ABC((-0.5, 0, 0.5), (0.5, 0.5, 0.5), (0.1, 0.1, 0.0)), "kernel"),  # only the output learns
        (mn.ABC((-0.5, 0, 0.5), (0.5, 0.5, 0.5), (0.1, 0.0, 0.0)), "feature learning"),  # in the hidden layers
        (mn.ABC((-0.5, 0, 0.5), (0.5, 0.5, 0.5), (0.0, -0.1, 0.0)), "unstable"),
        (mn.ABC((0, 0, 0), (0, 0.6, 0.5), (1, 1, 1)), "unstable"),  # features vanish at the start
        (mn.ABC((0, 0, 0), (0, 0.5, 0.5), (0, 0, 0), "adam"), "unstable"),
        (mn.ABC((0, 0, 0), (0, 0.5, 0.5), (1, 1, 1), "adam"), "unstable"),  # the first step moves f by sqrt(n)
        (mn.ABC((0, 0, 0), (0, 0.5, 0.5), (1.5, 1.5, 1), "adam"), "kernel"),
        (mn.ABC((0, 0, 0), (0, 0.5, 1), (1, 2, 2), "adam"), "trivial"),
    ],
    ids=str,
)
def test_the_rules_place_known_parametrizations(abc: mn.ABC, regime: str) -> None:
    assert abc.regime == regime
    for shift in ((0.3,), (-1.0,), (0.25, -0.5, 0.75)):
        assert abc.shifted(*shift).regime == regime
        assert abc.shifted(*shift).equivalent(abc)
    assert not abc.equivalent(mn.ABC(abc.a, abc.b, (abc.c[0], abc.c[1] + 0.01, abc.c[2]), abc.rule))


def test_the_table_of_yang_and_hu() -> None:
    """For equal c, Yang and Hu's theorem gives r = min(a_3 + b_3, 2 a_3 + c) + c - 1 + min_l [2 a_l + (l = 1)]."""
    for abc, r in ((NTK, 0.5), (STANDARD_SMALL, 0.5), (MUP, 0.0), (MEAN_FIELD, 0.0)):
        (a1, a2, a3), c = abc.a, abc.c[0]
        assert abc.r == pytest.approx(min(a3 + abc.b[2], 2 * a3 + c) + c - 1 + min(2 * a1 + 1, 2 * a2)) == r


def test_the_packages_rows_have_the_exponents_of_the_theory() -> None:
    assert mn.exponents(mn.NTK()) == NTK
    assert mn.exponents(mn.Standard()) == STANDARD == mn.exponents(mn.PyTorch())
    assert mn.exponents(mn.MeanField()) == MEAN_FIELD
    assert mn.exponents(mn.SpectralMuP()).equivalent(MUP)
    assert mn.exponents(mn.SpectralMuP(), "adam").equivalent(MUP_ADAM)
    assert mn.exponents(mn.MeanField(), "adam").equivalent(MUP_ADAM)
    for abc in (NTK, STANDARD, MEAN_FIELD, MUP, MUP_ADAM):
        assert mn.exponents(abc, abc.rule) == abc


def test_the_lectures_table_is_spectral_mup() -> None:
    """Check sigma = 1/sqrt(P), 1/sqrt(D), 1/D and eta = D/P, 1, 1/D for W1 : D x P, W2 : D x D, W3 : 1 x D."""
    P, D = 30, 700
    spec = mn.Sequential(mn.Dense(D), mn.Dense(D), mn.Dense(1))
    rows = [t.row for t in mn.Network(spec, (P,), mn.SpectralMuP()).layout.tensors]
    np.testing.assert_allclose([row.std for row in rows], [1 / sqrt(P), 1 / sqrt(D), 1 / D], rtol=1e-15)
    np.testing.assert_allclose([row.rate("sgd") for row in rows], [D / P, 1, 1 / D], rtol=1e-15)
    assert {row.multiplier for row in rows} == {1.0}


def test_a_convolutions_row_has_the_root_of_its_channels() -> None:
    """For a 3 x 3 convolution from n to n channels, std is 1/sqrt(9 n), SGD's rate is 1/9, and Adam's is 1/(9 n)."""
    spec = mn.Sequential(mn.Conv2d(50, b_std=0.5), mn.Conv2d(50), mn.GlobalAvgPool(), mn.Dense(2))
    rows = {t.name: t.row for t in mn.Network(spec, (4, 4, 1), mn.SpectralMuP()).layout.tensors}
    row = rows["1.W"]
    assert (row.multiplier, row.std, row.lr, row.adam) == pytest.approx((1, 1 / sqrt(450), 1 / 9, 1 / 450))
    assert rows["0.b"] == Row(1.0, 0.5, 50.0, adam=1.0)
    hidden = mn.Network(spec, (4, 4, 1), MUP).layout.tensors[2].row
    assert hidden == Row(1.0, pytest.approx(1 / sqrt(450)))  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------- equivalent, step by step


def paths(abc: mn.ABC, optimizer: mn.training.optimizers.Optimizer, steps: int = 8) -> Array:
    """Train a network with biases, convolutions and a residual branch; return its outputs (steps + 1, N, C)."""
    wide = (mn.Dense(12, w_std=1.3, b_std=0.4), mn.Tanh())
    branch = mn.Sequential(mn.Dense(12, w_std=0.8, b_std=0.2), mn.Tanh(), mn.Dense(12))
    spec = mn.Sequential(
        mn.Conv2d(12, b_std=0.3), mn.Tanh(), mn.Conv2d(12, w_std=1.5), mn.Tanh(), mn.GlobalAvgPool(),
        *wide, mn.Residual(branch), mn.Dense(2, b_std=0.5),
    )  # fmt: skip
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((6, 4, 4, 1)), rng.standard_normal((6, 2))
    net = mn.Network(spec, (4, 4, 1), abc)
    theta = net.init(np.random.default_rng(0))
    return np.stack([snap.f for snap in mn.train(net, theta, x, y, loss=mn.mse, optimizer=optimizer, steps=steps)])


SHIFTS = ((0.5,), (-0.7,), (0.4, -0.3, 0.6))


@pytest.mark.parametrize("shift", SHIFTS, ids=str)
@pytest.mark.parametrize("abc", [NTK, MEAN_FIELD, MUP], ids=str)
def test_equivalent_ones_are_the_same_network_at_every_step_of_sgd(abc: mn.ABC, shift: tuple[float, ...]) -> None:
    sgd = mn.SGD(lr=0.02, momentum=0.5)
    right = paths(abc, sgd)
    assert np.abs(right[-1] - right[0]).max() > 0.05  # the outputs moved
    np.testing.assert_allclose(paths(abc.shifted(*shift), sgd), right, rtol=0, atol=1e-11)


@pytest.mark.parametrize("shift", SHIFTS, ids=str)
def test_equivalent_ones_are_the_same_network_at_every_step_of_adam(shift: tuple[float, ...]) -> None:
    adam = mn.Adam(lr=0.01, eps=1e-60)
    right = paths(MUP_ADAM, adam)
    assert np.abs(right[-1] - right[0]).max() > 0.05
    np.testing.assert_allclose(paths(MUP_ADAM.shifted(*shift), adam), right, rtol=0, atol=1e-11)


def test_the_wrong_rates_are_another_network() -> None:
    """Three wrong shifts of c change the outputs: Adam's shift with SGD, SGD's shift with Adam, and no shift."""
    sgd, adam, (s, *_) = mn.SGD(lr=0.02, momentum=0.5), mn.Adam(lr=0.01, eps=1e-60), SHIFTS[0]
    for abc, optimizer, wrong in (
        (NTK, sgd, mn.ABC(NTK.shifted(s).a, NTK.shifted(s).b, (-s, -s, -s))),
        (NTK, sgd, mn.ABC(NTK.shifted(s).a, NTK.shifted(s).b, NTK.c)),
        (MUP_ADAM, adam, mn.ABC(MUP_ADAM.shifted(s).a, MUP_ADAM.shifted(s).b, (-2 * s, 1 - 2 * s, -2 * s), "adam")),
    ):
        off = np.abs(paths(wrong, optimizer) - paths(abc, optimizer))
        assert off[0].max() < 1e-12  # the same function at the start
        assert off[-1].max() > 1e-3


def test_adam_takes_its_own_scales() -> None:
    """Adam's first step changes every parameter by lr x scale."""
    net = mn.Network(mn.Sequential(mn.Dense(20, b_std=0.1), mn.Tanh(), mn.Dense(2)), (5,), mn.SpectralMuP())
    theta, x = net.init(np.random.default_rng(0)), np.random.default_rng(1).standard_normal((4, 5))
    *_, last = mn.train(net, theta, x, np.ones((4, 2)), loss=mn.mse, optimizer=mn.Adam(lr=0.01, eps=1e-30), steps=1)
    moved = {k: np.abs(v) for k, v in net.layout.unpack(last.theta - theta).items()}
    for name, rate in (("0.W", 1 / 5), ("0.b", 1.0), ("2.W", 1 / 20)):
        np.testing.assert_allclose(moved[name], 0.01 * rate, rtol=1e-12)


# ------------------------------------------------------------------------------- kernels of the start


@pytest.mark.parametrize("parametrization", [mn.SpectralMuP(), mn.MeanField(), MUP], ids=repr)
def test_the_analytic_kernel_is_that_of_the_start(parametrization: Parametrization) -> None:
    """E f f' = K(x, x') and E J S J' = Theta for a hidden layer of 40 ReLUs. The z-scores use 2000 networks."""
    spec = mn.Sequential(mn.Dense(40, w_std=1.3), mn.ReLU(), mn.Dense(1, w_std=1.7))
    x = np.random.default_rng(0).standard_normal((3, 5))
    net = mn.Network(spec, (5,), parametrization)
    theta = net.init(np.random.default_rng(1), ensemble=2000)
    f = net(theta, x)[..., 0]
    kernel = an.kernel(spec, parametrization)
    for draws, right, wrong in (
        (f[:, :, None] * f[:, None, :], kernel.nngp(x), an.kernel(spec).nngp(x)),
        (mn.ntk(net, theta, x), kernel.ntk(x), 1.2 * kernel.ntk(x)),
    ):
        error = np.std(draws, axis=0, ddof=1) / sqrt(len(draws))
        assert np.abs((draws.mean(axis=0) - right) / error).max() < 4.5
        assert np.abs((draws.mean(axis=0) - wrong) / error).max() > 20


# ------------------------------------------------------------------------------------------------ errors


def test_errors_say_what_was_expected() -> None:
    with pytest.raises(
        ValueError, match=r"ABC\(a=\.\.\.\) expects a tuple \(input, hidden, output\) of exponents, got 0"
    ):
        mn.ABC(0, (0, 0, 0), (0, 0, 0))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"ABC\(rule=\.\.\.\) expects 'sgd' or 'adam', got 'lamb'"):
        mn.ABC((0, 0, 0), (0, 0, 0), (0, 0, 0), "lamb")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one shift, or three"):
        NTK.shifted(1, 2)

    class Frozen(Parametrization):
        def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
            return Row(1.0, sigma, lr=0.0)

    with pytest.raises(ValueError, match="has a multiplier or a rate that is not a power of the width"):
        mn.exponents(Frozen())
