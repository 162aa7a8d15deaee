"""Test parametrizations: multipliers, initial draws and learning rates of tensors, and user-defined rows."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import analytic as an
import minintk as mn
from minintk.spec.parametrization import Parametrization, Role, Row
from minintk.training.optimizers import Optimizer
from tests.kit.strategies import PARAMETRIZATIONS, Case, cases

sizes = st.integers(1, 4096)
sigmas = st.floats(0.1, 10.0)


@given(sizes, sizes, sigmas)
def test_all_rows_of_the_package_give_pre_activations_of_the_same_size(fan_in: int, fan_out: int, sigma: float) -> None:
    """In NTK and Standard, multiplier * std is sigma / sqrt(fan_in) for weights and sigma for biases.

    The variance of PyTorch's uniformly distributed weights is a third of sigma^2 / fan_in.
    """
    for kind, want in (("weight", sigma / sqrt(fan_in)), ("bias", sigma)):
        for parametrization in (mn.NTK(), mn.Standard()):
            row = parametrization.row(Role(kind), fan_in, fan_out, sigma)  # type: ignore[arg-type]
            assert row.multiplier * row.std == pytest.approx(want, rel=1e-15)
    row = mn.PyTorch().row(Role("weight"), fan_in, fan_out, sigma)
    assert row.std**2 == pytest.approx(sigma**2 / fan_in / 3, rel=1e-14)


@pytest.mark.parametrize("parametrization", PARAMETRIZATIONS, ids=repr)
def test_tensors_are_drawn_with_the_rows_mean_and_deviation(parametrization: Parametrization) -> None:
    """z-scores of mean, variance and fourth moment of at least 10,000 draws are below 4.9 (p = 1e-6)."""
    spec = mn.Sequential(mn.Dense(400, w_std=1.5, b_std=0.5), mn.ReLU(), mn.Dense(100, w_std=0.5, b_std=0.2))
    net = mn.Network(spec, (100,), parametrization)
    theta = net.layout.unpack(net.init(np.random.default_rng(0), ensemble=100))
    for t in net.layout.tensors:
        a = theta[t.name].ravel()[:40000] / t.row.std
        fourth, eighth = (3.0, 105.0) if t.row.draw == "normal" else (1.8, 9.0)  # E a^4, E a^8 of unit variance
        assert len(a) >= 10000
        assert abs(a.mean()) * sqrt(len(a)) < 4.9, t.name
        assert abs((a**2).mean() - 1) * sqrt(len(a) / (fourth - 1)) < 4.9, t.name
        assert abs((a**4).mean() - fourth) * sqrt(len(a) / (eighth - fourth**2)) < 4.9, t.name  # the right shape


def test_uniform_draws_stay_in_their_interval() -> None:
    net = mn.Network(mn.Dense(300, w_std=2.0, b_std=1.0), (64,), mn.PyTorch())
    theta = net.layout.unpack(net.init(np.random.default_rng(0)))
    assert 0.99 < np.abs(theta["0.W"]).max() / (2 / 8) <= 1
    assert 0.95 < np.abs(theta["0.b"]).max() / (1 / 8) <= 1


@given(cases(ensembles=(None,)))
def test_zero_initialised_biases_start_at_zero_and_keep_their_multiplier(case: Case) -> None:
    start = case.net.layout.unpack(case.net.init(case.rng))
    for t in case.net.layout.tensors:
        assert (t.row.std == 0) == bool(np.all(start[t.name] == 0))
    zero = mn.Network(mn.Dense(2, b_std=0.5, b_init="zeros"), (3,))
    assert [(t.name, t.row.multiplier, t.row.std) for t in zero.layout.tensors][1] == ("0.b", 0.5, 0.0)


def test_ntk_and_standard_are_the_same_functions() -> None:
    """theta_standard = multiplier * theta_ntk gives the same outputs."""
    spec = mn.Sequential(mn.Dense(5, w_std=1.5, b_std=0.1), mn.Tanh(), mn.Dense(2, w_std=0.5, b_std=0.3))
    ntk, standard = mn.Network(spec, (3,)), mn.Network(spec, (3,), mn.Standard())
    theta, x = ntk.init(np.random.default_rng(0)), np.random.default_rng(1).standard_normal((4, 3))
    tensors = ntk.layout.unpack(theta)
    scaled = {t.name: t.row.multiplier * tensors[t.name] for t in ntk.layout.tensors}
    np.testing.assert_allclose(standard(standard.layout.pack(scaled), x), ntk(theta, x), rtol=1e-14)
    np.testing.assert_allclose(standard.init(np.random.default_rng(0)), standard.layout.pack(scaled), rtol=1e-14)


# ------------------------------------------------------------------------------- mean field, spectral muP


def test_mean_field_with_its_rates_has_the_kernel_of_ntk() -> None:
    """With one hidden layer and the same theta, f_MF = f_NTK / sqrt(n).

    The sum over p of lr_p (df/dtheta_p)^2 equals the tangent kernel in NTK parametrization.
    """
    n = 50
    spec = mn.Sequential(mn.Dense(n, w_std=1.5), mn.Erf(), mn.Dense(2, w_std=0.7))
    ntk, field = mn.Network(spec, (3,)), mn.Network(spec, (3,), mn.MeanField())
    theta, x = ntk.init(np.random.default_rng(0)), np.random.default_rng(1).standard_normal((4, 3))
    scales = field.layout.learning_rate_scales()
    assert scales is not None
    np.testing.assert_allclose(field(theta, x), ntk(theta, x) / sqrt(n), rtol=1e-14)
    J = field.linearize(theta, x)[1].dense()
    kernel = np.einsum("ncp,p,mep->ncme", J, scales, J)
    np.testing.assert_allclose(kernel, mn.ntk_full(ntk, theta, x), rtol=1e-12, atol=1e-14)


def test_spectral_mup_keeps_spectral_norms() -> None:
    """The spectral norm |W|, divided by sqrt(fan_out / fan_in), is between 0.9 and 2.2 for each of three shapes.

    |W| is about std (sqrt(fan_in) + sqrt(fan_out)).
    """
    spec = mn.Sequential(mn.Dense(400), mn.Tanh(), mn.Dense(400), mn.Tanh(), mn.Dense(3))
    net = mn.Network(spec, (20,), mn.SpectralMuP())
    theta = net.layout.unpack(net.init(np.random.default_rng(0)))
    for name, (fan_in, fan_out) in (("0.W", (20, 400)), ("2.W", (400, 400)), ("4.W", (400, 3))):
        assert 0.9 < np.linalg.norm(theta[name], 2) / sqrt(fan_out / fan_in) < 2.2, name


def test_one_step_uses_the_rows_learning_rates() -> None:
    """One step is theta_1 = theta_0 - lr s g, with the learning-rate scale s of each tensor."""
    rng = np.random.default_rng(0)
    spec = mn.Sequential(mn.Dense(6, b_std=0.5), mn.Tanh(), mn.Dense(2))
    x, y = rng.standard_normal((4, 3)), rng.standard_normal((4, 2))
    for parametrization in (mn.SpectralMuP(), mn.MeanField()):
        net = mn.Network(spec, (3,), parametrization)
        theta = net.init(rng)
        f, J = net.linearize(theta, x)
        g = net.layout.unpack(J.vjp((f - y) / 4))
        *_, last = mn.train(net, theta, x, y, loss=mn.mse, optimizer=mn.SGD(lr=1e-3), steps=1)
        before, after = net.layout.unpack(theta), net.layout.unpack(last.theta)
        rates = {t.name: t.row.rate("sgd") for t in net.layout.tensors}
        assert all(rate != 1 for rate in rates.values())
        for name, rate in rates.items():
            np.testing.assert_allclose(after[name], before[name] - 1e-3 * rate * g[name], rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize("optimizer", [mn.SGD(lr=0.05), mn.Adam(lr=0.01)], ids=["SGD", "Adam"])
def test_at_the_base_width_spectral_mup_is_the_standard_parametrization(optimizer: Optimizer) -> None:
    """At the base width, initial weights and training equal those of the standard parametrization.

    From one width to another, standard deviations and rates scale as in spectral muP.
    """
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((6, 5)), rng.standard_normal((6, 3))
    rows: dict[str, dict[int, list[Row]]] = {"base": {}, "mup": {}}
    for n in (8, 32):
        spec = mn.Sequential(mn.Dense(n, b_std=0.5), mn.Tanh(), mn.Dense(n, w_std=1.3), mn.Tanh(), mn.Dense(3, b_std=1))
        tables = {"base": mn.SpectralMuP(base_width=8), "mup": mn.SpectralMuP(), "standard": mn.Standard()}
        nets = {name: mn.Network(spec, (5,), table) for name, table in tables.items()}
        for name, all_ in rows.items():
            all_[n] = [t.row for t in nets[name].layout.tensors]
        if n == 8:
            ends = []
            for name in ("base", "standard"):
                theta = nets[name].init(np.random.default_rng(1))
                *_, last = mn.train(nets[name], theta, x, y, loss=mn.mse, optimizer=optimizer, steps=3)
                ends.append(last.theta)
            np.testing.assert_allclose(ends[0], ends[1], rtol=1e-12, atol=1e-14)
    for (one, four), (small, large) in zip(zip(*rows["base"].values()), zip(*rows["mup"].values()), strict=True):
        for what in ("std", "lr", "adam"):
            assert getattr(four, what) / getattr(one, what) == pytest.approx(
                getattr(large, what) / getattr(small, what)
            )
    assert repr(mn.SpectralMuP(base_width=8)) == "SpectralMuP(base_width=8)"
    with pytest.raises(ValueError, match=r"SpectralMuP\(base_width=\.\.\.\) expects a whole number >= 1, got 0"):
        mn.SpectralMuP(base_width=0)


def test_depth_is_in_the_table_of_both_sides() -> None:
    """With four residual branches, only initial tensors of the branches' last layers have the factor 1/sqrt(4).

    The infinite-width kernel has the same factors.
    """
    x = np.random.default_rng(0).standard_normal((4, 5))

    def spec(end: float, last: float) -> mn.Sequential:
        branch = mn.Sequential(mn.ReLU(), mn.Dense(30), mn.ReLU(), mn.Dense(30, w_std=end, b_std=0.4 * end))
        blocks = [mn.Residual(branch)] * 2, mn.Sequential(mn.Residual(branch), mn.Residual(branch, mn.Dense(30)))
        return mn.Sequential(mn.Dense(30), *blocks[0], blocks[1], mn.ReLU(), mn.Dense(3, w_std=last))

    right = an.kernel(spec(0.5, 0.1**0.5), mn.Standard()).nngp(x)
    np.testing.assert_allclose(an.kernel(spec(1.0, 1.0), mn.SpectralMuP()).nngp(x), right, rtol=1e-13)
    mup, field = (mn.Network(spec(1.0, 1.0), (5,), p).layout.tensors for p in (mn.SpectralMuP(), mn.MeanField()))
    for one, two in zip(mup, field, strict=True):
        inside, end = ".branch." in one.name, ".branch.3." in one.name
        lr, adam = (1.0, 1 / 30) if one.name.endswith("W") else (30.0, 1.0)
        if inside:
            assert (one.row.lr, one.row.adam) == pytest.approx((lr / 4, adam / 4) if end else (lr, adam / 2)), one.name
            scale = 0.4**2 if one.name.endswith("b") else 1.0
            assert two.row.multiplier * two.row.std == pytest.approx(one.row.std)
            assert two.row.rate("sgd") * two.row.multiplier**2 == pytest.approx(one.row.rate("sgd") * scale)


def test_depth_scales_output_weights_inside_a_branch() -> None:
    """If a network ends with the last of four branches, W and b of its output have the factor 1/sqrt(4) as well."""
    spec = mn.Sequential(mn.Dense(9), *[mn.Residual(mn.Sequential(mn.ReLU(), mn.Dense(9, b_std=1.0)))] * 4)
    W, b = (t.row for t in mn.Network(spec, (5,), mn.MeanField()).layout.tensors[-2:])
    assert (W.multiplier, W.rate("adam")) == pytest.approx((1 / 9 / 2, 1 / 2))
    assert (b.multiplier, b.rate("adam")) == pytest.approx((1 / 2, 1 / 2))


def test_a_row_may_hold_numpy_numbers() -> None:
    """np.sqrt in a user-defined row must not turn float32 networks into float64 ones."""

    class NumPys(Parametrization):
        def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> mn.spec.parametrization.Row:
            return mn.spec.parametrization.Row(np.float64(sigma / sqrt(fan_in)), np.float64(1.0))

    net = mn.Network(mn.Sequential(mn.Dense(4, b_std=0.1), mn.ReLU(), mn.Dense(1)), (3,), NumPys())
    theta, x = net.init(np.random.default_rng(0), dtype=np.float32), np.ones((5, 3), np.float32)
    f, J = net.linearize(theta, x)
    assert {a.dtype for a in (f, J.vjp(f), J.jvp(theta), J.gram(), J.trace_gram())} == {np.dtype(np.float32)}


def test_a_parametrization_is_an_object() -> None:
    with pytest.raises(TypeError, match=r"parametrization expects an object such as mn\.NTK\(\), got <class"):
        mn.Network(mn.Dense(1), (3,), mn.NTK)  # type: ignore[arg-type]
