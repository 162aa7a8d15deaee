"""Test how learning-rate scales affect tangent kernels (finite and infinite width), kappa and weight decay.

`tests/planted/test_planted.py` runs the laws in `tests/kit/learning_rates.py` with the planted errors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from minintk.arrays import to_host, to_library
from minintk.diagnostics import kappa, kernel_movement, kernel_over_time
from minintk.spec.parametrization import Row
from tests.kit import learning_rates as law
from tests.kit.arrays_under_test import LIBRARIES, namespace
from tests.kit.montecarlo import assert_mean, kernels

ADAM = mn.ABC((0, 0, 1), (0, 0.5, 0), (0, 1, 0), "adam")


@pytest.mark.parametrize("parametrization", law.WITH_RATES[:3], ids=repr)
def test_a_kernel_without_the_rates_or_with_other_powers_is_refused(parametrization: Any) -> None:
    for power in (0.0, 0.5, 2.0):

        def wrong(net: mn.Network, theta: Any, x: Any, power: float = power) -> Any:
            scales = {t.name: t.row.rate("sgd") ** power for t in net.layout.tensors}
            return mn.ntk_full(net, theta, x, scales=scales)

        assert law.departure(parametrization, 64, wrong) > 0.1


def test_deep_networks_tend_to_the_analytic_kernel() -> None:
    """E J S J' = Theta + c/n + O(1/n^2) at width n, so twice the mean at 2 n minus the mean at n has no 1/n term.

    The networks are in muP and have two hidden layers or three residual branches.
    """

    def plain(n: int) -> mn.Sequential:
        return mn.Sequential(mn.Dense(n, b_std=0.5), mn.Erf(), mn.Dense(n, w_std=1.4), mn.Erf(), mn.Dense(1))

    def branched(n: int) -> mn.Sequential:
        branch = mn.Residual(mn.Sequential(mn.ReLU(), mn.Dense(n)))
        return mn.Sequential(mn.Dense(n), branch, branch, branch, mn.ReLU(), mn.Dense(1))

    for spec in (plain, branched):
        narrow, wide = (kernels(spec(n), law.X[:2], 1000, n, mn.SpectralMuP())[1] for n in (48, 96))
        truth = an.kernel(spec(7), mn.SpectralMuP()).ntk(law.X[:2])
        assert_mean("2 E Theta_96 - E Theta_48", 2 * wide - narrow, truth[np.triu_indices(2)])


def test_convolutions_have_it_too() -> None:
    x = np.random.default_rng(0).standard_normal((2, 4, 4, 2))
    for n in (8, 32):
        spec = mn.Sequential(mn.Conv2d(n, 3, b_std=0.2), mn.Erf(), mn.GlobalAvgPool(), mn.Dense(1))
        truth = an.kernel(spec, mn.SpectralMuP()).ntk(x)[np.triu_indices(2)]
        assert_mean("conv", kernels(spec, x, 500, parametrization=mn.SpectralMuP())[1], truth)


@pytest.mark.parametrize(
    "parametrization",
    [
        mn.ABC((0, 0.5, 0.5), (0, 0, 0), (0.5, 0.5, 0.5)),  # Theta falls as n^-1/2
        mn.ABC((0, 0, 0), (0, 0.5, 0.5), (-1, -1, -1)),  # Theta grows as n^2
        mn.ABC((0, 0, 0), (0, 0.5, 0.5), (1, 1, 1)),  # the input layer's part of Theta vanishes
    ],
    ids=repr,
)
def test_a_kernel_that_is_no_limit_is_refused(parametrization: Any) -> None:
    kernel = an.kernel(law.network(parametrization, 64).spec, parametrization)
    for call in (kernel.ntk, kernel.both, kernel.diag, kernel.derivatives):
        with pytest.raises(mn.UnsupportedLayer, match="has no limit that these widths show: at x = 1 it is"):
            call(law.X)
    assert kernel.nngp(law.X).shape == (6, 6)


def test_the_share_that_vanishes_left_out() -> None:
    """If c is inf for the input layer, its learning rate is 0, and the kernel of the other layers has a limit.

    A network without hidden layers has no width, so no limit is needed.
    """
    left = mn.ABC((0, 0, 0), (0, 0.5, 0.5), (np.inf, 1, 1))
    k = [an.kernel(law.network(left, n).spec, left).ntk(law.X) for n in (64, 1024)]
    np.testing.assert_allclose(k[1], k[0], rtol=1e-11)
    assert an.kernel(mn.Dense(3), mn.SpectralMuP()).ntk(law.X).shape == (6, 6)


def test_adam_has_no_tangent_kernel() -> None:
    net, words = law.network(ADAM, 8), "Adam has no tangent kernel, because its steps are not linear in the gradient"
    theta = net.init(np.random.default_rng(0))
    calls: list[Any] = [
        lambda: mn.ntk(net, theta, law.X), lambda: mn.ntk_full(net, theta, law.X), lambda: kappa(net, theta, law.X),
        lambda: mn.flow(net, theta, law.X, law.Y, loss=mn.mse, times=1.0), lambda: an.kernel(net.spec, ADAM).ntk(law.X),
        lambda: list(mn.train(net, theta, law.X, law.Y, loss=mn.mse, optimizer=mn.SGD(0.1), steps=1)),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(TypeError, match=f"scales expects .tensor name: scale., got 'adam'; {words}"):
        mn.ntk(net, theta, law.X, scales="adam")  # type: ignore[arg-type]
    *_, end = mn.train(net, theta, law.X, law.Y, loss=mn.mse, optimizer=mn.Adam(0.01), steps=2)
    every = dict.fromkeys(net.layout.slices, 1.0)
    assert mn.ntk(net, end.theta, law.X, scales=every).shape == an.kernel(net.spec, ADAM).nngp(law.X).shape


@pytest.mark.parametrize("rates", [{"lr": -1.0}, {"lr": np.nan}, {"adam": np.inf}, {"adam": True}])
def test_rates_that_are_none_are_refused(rates: Any) -> None:
    with pytest.raises(ValueError, match=r"Row\((lr|adam)=...\) expects a finite number >= 0, got"):
        Row(1.0, 1.0, **rates)


def shrink_exponents(optimizer: Any, widths: tuple[int, ...] = (64, 256, 1024)) -> dict[str, float]:
    """Return {tensor: b}: ten steps of weight decay remove a share of the tensor that scales as n^b with width n."""
    taken: dict[str, list[float]] = {}
    for n in widths:
        net = law.network(mn.SpectralMuP(), n)
        theta, scales = net.init(np.random.default_rng(n)), net.layout.learning_rate_scales(None, optimizer.rule)
        end, memory = theta.copy(), optimizer.init(theta)
        for k in range(10):
            optimizer.at(k).step(end, np.zeros_like(theta), memory, scales)
        for name, at in net.layout.slices.items():
            taken.setdefault(name, []).append(float(np.linalg.norm((theta - end)[at]) / np.linalg.norm(theta[at])))
    return {name: float(np.polyfit(np.log(widths), np.log(share), 1)[0]) for name, share in taken.items()}


@pytest.mark.parametrize("optimizer", [mn.SGD(0.02, weight_decay=0.01), mn.Adam(0.002, weight_decay=0.1)], ids=repr)
def test_decay_is_the_same_at_every_width(optimizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert max(map(abs, shrink_exponents(optimizer).values())) < 0.02
    law.decay_with_the_rate(monkeypatch)
    assert max(map(abs, shrink_exponents(optimizer).values())) > 0.9


@pytest.mark.parametrize("kind", [mn.SGD, mn.Nesterov, mn.Adam])
def test_a_decay_beyond_zero_is_refused_before_training(kind: Any) -> None:
    words = r"a step at lr=2 with weight_decay=0\.5 multiplies the weights by 1 - lr weight_decay = 0, which must"
    with pytest.raises(ValueError, match=words):
        kind(2.0, weight_decay=0.5)
    net, late = law.network(mn.NTK(), 4), kind(mn.WarmUp(10, then=2.0), weight_decay=0.5)
    theta, how = net.init(np.random.default_rng(0)), {"loss": mn.mse, "optimizer": late}
    next(mn.train(net, theta, law.X, law.Y, steps=9, **how))  # the rate is below 2 in these nine steps
    for start in (
        lambda: mn.train(net, theta, law.X, law.Y, steps=10, **how),
        lambda: mn.fit(net, theta, law.X, law.Y, epochs=10, **how),
    ):
        with pytest.raises(ValueError, match=words):
            start()


@pytest.mark.parametrize("library", LIBRARIES)
def test_on_every_library(library: str) -> None:
    """Check ntk, kappa and the movement of the kernel on float32 arrays of each library. The NTK must stay float32."""
    net, xp = law.network(mn.SpectralMuP(), 16), namespace(library)
    theta, x, y = (to_library(a.astype(np.float32), xp) for a in (net.init(np.random.default_rng(0)), law.X, law.Y))
    k = mn.ntk(net, theta, x)
    assert k.dtype == theta.dtype
    want = mn.ntk(net, to_host(theta).astype(float), law.X)
    np.testing.assert_allclose(to_host(k), want, rtol=1e-4, atol=1e-4 * want.max())
    assert kappa(net, theta, x, y, starts=1, steps=3).kappa > 0
    run = list(mn.train(net, theta, x, y, loss=mn.mse, optimizer=mn.SGD(0.1), steps=2))
    path = kernel_over_time(net, run, x, y, k=1)
    moved = kernel_movement(net, theta, run[-1].theta, x)
    assert path.movement[-1] == pytest.approx(float(moved), rel=1e-4)
