"""Diagnostics: definitions, invariances, coverage of the intervals, the theory's exponents; each with a control."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import log, sqrt
from typing import Any

import matplotlib.figure
import numpy as np
import pytest
from arrays_under_test import LIBRARIES, namespace
from montecarlo import limit

import minintk as mn
from minintk.arrays import array_namespace, to_host, to_library
from minintk.diagnostics import (
    Estimate,
    PowerLaw,
    activations,
    alignment,
    cka,
    condition_number,
    crossover,
    draw_gram,
    effective_rank,
    ensemble_variance,
    gram_picture,
    kappa,
    layer_similarity,
    power_law,
    singular_values,
    t1,
    t2,
    target_alignment,
)
from minintk.diagnostics import curvature as curvature_module

Array = np.ndarray[Any, Any]
SPEC = mn.Sequential(mn.Flatten(), mn.Dense(7, b_std=0.2), mn.Tanh(), mn.Residual(mn.Dense(7)), mn.Dense(2))
NET = mn.Network(SPEC, (2, 2, 1))


def points(ensemble: int | None = None, N: int = 12) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    return NET.init(rng, ensemble=ensemble), rng.standard_normal((N, 2, 2, 1))


def rotation(n: int, seed: int = 0) -> Array:
    return np.asarray(np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0])


# ----------------------------------------------------------------------------------------------------- spectra


def test_spectrum_of_a_full_kernel_is_that_of_its_matrix() -> None:
    theta, x = points(ensemble=3)
    k = mn.ntk_full(NET, theta, x)
    sigma = singular_values(k)
    for e in range(3):
        J = NET.linearize(theta[e], x)[1].dense().reshape(24, -1)
        truth = np.linalg.svd(J, compute_uv=False) ** 2
        np.testing.assert_allclose(sigma[e], truth[:24], rtol=1e-7, atol=1e-11 * truth[0])
        p = truth / truth.sum()
        assert effective_rank(k)[e] == pytest.approx(np.exp(-np.sum(p * np.log(p))), rel=1e-8)
        assert condition_number(k)[e] == pytest.approx(truth[0] / truth[23], rel=1e-6)


def test_effective_rank() -> None:
    """Between 1 and the rank, n for n equal values, unchanged by rotations and scale, additive in direct sums."""
    Q = rotation(6)
    for n in range(1, 7):
        k = Q[:, :n] @ Q[:, :n].T
        assert float(effective_rank(3 * k)) == pytest.approx(n, rel=1e-9)
    a = np.diag([5.0, 2.0, 1.0])
    assert 1 < float(effective_rank(a)) < 3
    two = np.kron(np.eye(2), a)
    assert float(effective_rank(two)) == pytest.approx(2 * float(effective_rank(a)))
    assert float(effective_rank(a @ a)) < float(effective_rank(a))  # the squares are told from the values
    with pytest.raises(ValueError, match="not zero"):
        effective_rank(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="k holds 1 values"):
        effective_rank(np.array([[1.0, np.nan]]))
    with pytest.raises(ValueError, match="k expects shape"):
        effective_rank(np.ones(3))


def test_effective_rank_grows_with_width() -> None:
    """LinLeNet on images, Samarin et al. 2020, figure 6: far below N C, and wider is more.  On 8 digits, 3 draws."""
    x = mn.datasets.digits().images().x[:8]
    x = np.pad(np.kron(x, np.ones((1, 3, 3, 1))), ((0, 0), (2, 2), (2, 2), (0, 0))) / 16
    ranks = []
    for width in (1, 2):
        net = mn.Network(mn.zoo.lenet5(width), (28, 28, 1), mn.PyTorch())
        draws = [net.init(np.random.default_rng(seed)) for seed in range(3)]
        ranks.append([float(effective_rank(mn.ntk_full(net, theta, x))) for theta in draws])
    assert max(ranks[0]) < min(ranks[1]) < 80 / 2


def test_condition_number_of_a_singular_kernel() -> None:
    assert float(condition_number(np.diag([1.0, 0.0]))) == np.inf
    theta, x = points()
    x[5] = x[2]
    assert float(condition_number(mn.ntk(NET, theta, x))) == np.inf


def test_gram_picture() -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, 20)
    k = rng.standard_normal((20, 20))
    picture, edges = gram_picture(k, labels)
    order = sorted(range(20), key=lambda i: (labels[i], i))
    assert np.array_equal(picture, k[np.ix_(order, order)])
    assert edges.tolist() == [0, *np.cumsum(np.bincount(labels))]
    same = (labels[:, None] == labels).astype(float)
    blocks = gram_picture(same, labels)[0]
    for a, b in pairwise(edges):
        assert np.all(blocks[a:b, a:b] == 1)
    assert blocks.sum() == sum((b - a) ** 2 for a, b in pairwise(edges))
    axes = matplotlib.figure.Figure().add_subplot()
    draw_gram(k, labels, axes)
    assert np.array_equal(np.asarray(axes.images[0].get_array()), picture)
    for bad in (labels[:-1], labels.astype(float)):
        with pytest.raises(ValueError, match="whole labels"):
            gram_picture(k, bad)


# -------------------------------------------------------------------------------------------------- similarity


def test_alignment() -> None:
    rng = np.random.default_rng(2)
    a, b = (m @ m.T for m in rng.standard_normal((2, 9, 5)))
    H = np.eye(9) - 1 / 9
    truth = np.trace(a @ b) / sqrt(np.trace(a @ a) * np.trace(b @ b))
    assert float(alignment(a, b)) == pytest.approx(truth)
    assert float(alignment(a, 4 * a)) == pytest.approx(1)
    assert float(alignment(H @ a @ H, H @ b @ H)) == pytest.approx(float(alignment(a, b, centred=True)))
    assert float(alignment(a + 7, a, centred=True)) == pytest.approx(1)
    assert float(alignment(a + 7, a)) < 0.99  # what centring is for
    assert alignment(np.stack([a, b]), b).shape == (2,)
    with pytest.raises(ValueError, match="not zero after centring"):
        alignment(np.ones((3, 3)), np.eye(3), centred=True)
    with pytest.raises(ValueError, match="both of one N"):
        alignment(np.eye(3), np.eye(2))


def test_target_alignment_rises_with_training() -> None:
    """The kernel turns to the labels when features are learned, and stays where it is in the linearised network."""
    x, y = mn.datasets.digits()[:60].parity()
    net = mn.Network(mn.Sequential(mn.Dense(60), mn.Softplus(5.0, 1.404383), mn.Dense(1)), (64,))
    theta = net.init(np.random.default_rng(0))
    moved = {}
    for name, model in {"network": net, "linearised": mn.Linearized(net, theta)}.items():
        *_, last = mn.train(model, theta, x, y, loss=mn.mse, optimizer=mn.SGD(lr=0.3), steps=300, every=300)
        before, after = (target_alignment(mn.ntk(model, t, x), y, centred=True) for t in (theta, last.theta))
        moved[name] = float(after - before)
    assert moved["network"] > 0.05
    assert moved["linearised"] == 0


def test_cka() -> None:
    """Kornblith et al. 2019: the same under rotation and scale, not under other maps; both forms of it agree."""
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((30, 6)) + 2, rng.standard_normal((30, 4)) @ np.diag([4, 1, 1, 1])
    assert float(cka(a, 3 * a @ rotation(6) + 5)) == pytest.approx(1)
    assert float(cka(a, b @ rotation(4))) == pytest.approx(float(cka(a, b)))
    assert float(cka(b, b @ np.diag([0.1, 1, 1, 1]))) < 0.9
    wide = np.concatenate([b, np.zeros((30, 40))], axis=1)  # more features than examples: the other form
    assert float(cka(a, wide)) == pytest.approx(float(cka(a, b)))
    ac, bc = a - a.mean(0), b - b.mean(0)
    truth = np.linalg.norm(ac.T @ bc) ** 2 / (np.linalg.norm(ac.T @ ac) * np.linalg.norm(bc.T @ bc))
    assert float(cka(a, b)) == pytest.approx(truth)
    assert abs(float(cka(a, b)) - float(alignment((a + 5) @ (a + 5).T, b @ b.T))) > 0.01  # centring matters
    with pytest.raises(ValueError, match="differ between examples"):
        cka(np.full((5, 2), 0.1), a[:5])
    for size in (1e-25, 1e25):  # its fourth power overflows, or vanishes
        assert float(cka((size * a).astype(np.float32), b.astype(np.float32))) == pytest.approx(truth, rel=1e-4)
    with pytest.raises(ValueError, match=r"images are flattened first, a\.reshape\(len\(a\), -1\)"):
        cka(np.ones((5, 4, 4, 3)), np.ones((5, 4, 4, 3)))


@pytest.mark.parametrize("ensemble", [None, 3])
def test_activations_are_the_layers(ensemble: int | None) -> None:
    theta, x = points(ensemble)
    ys = activations(NET, theta, x)
    assert list(ys) == ["0", "1", "2", "3", "4"]
    np.testing.assert_array_equal(ys["4"], NET(theta, x))
    np.testing.assert_array_equal(ys["2"], np.tanh(ys["1"]))
    lead = theta.shape[:-1]
    assert [y.shape for y in ys.values()] == [(*lead, 12, n) for n in (4, 7, 7, 7, 2)]
    alone = activations(NET, theta[0] if ensemble else theta, x)
    for name, y in ys.items():
        np.testing.assert_allclose(y[0] if ensemble else y, alone[name], rtol=1e-12)
    with pytest.raises(TypeError, match="network inside"):
        activations(mn.Linearized(NET, theta), theta, x)  # type: ignore[arg-type]


def test_similarity_of_layers() -> None:
    theta, x = points(ensemble=2)
    same = layer_similarity(NET, theta, theta, x)
    np.testing.assert_allclose(np.diagonal(same, axis1=-2, axis2=-1), 1, rtol=1e-12)
    np.testing.assert_allclose(same, same.swapaxes(-1, -2), rtol=1e-12)
    moved = layer_similarity(NET, theta, theta[::-1].copy(), x)
    np.testing.assert_allclose(moved[:, 0, 0], 1, rtol=1e-12)  # Flatten has nothing to learn
    assert np.all(np.diagonal(moved, axis1=-2, axis2=-1)[:, 1:] < 0.999)


# ----------------------------------------------------------------------------------------------------- ensembles


def covered(interval: Callable[[int], tuple[float, float]], truth: float, trials: int) -> float:
    """z of the number of intervals that hold the truth, against 95 %."""
    hits = sum(low <= truth <= high for low, high in map(interval, range(trials)))
    return (hits - 0.95 * trials) / sqrt(0.95 * 0.05 * trials)


def members(seed: int, E: int = 10) -> Array:
    """f : (E, 30, 1) of Gaussian functions, correlated between examples; Var f = 1."""
    A = np.random.default_rng(12).standard_normal((4, 30))
    A /= sqrt(np.mean(np.sum(A**2, axis=0)))
    return (np.random.default_rng(seed).standard_normal((E, 4)) @ A)[..., None]


def test_ensemble_variance_and_the_coverage_of_its_interval() -> None:
    f = members(0)
    assert ensemble_variance(f).value == pytest.approx(np.mean(np.var(f, axis=0, ddof=1)))
    assert ensemble_variance(3 * f + 5).value == pytest.approx(9 * ensemble_variance(f).value)
    mean = np.mean([ensemble_variance(members(seed)).value for seed in range(1000)])
    assert abs(mean - 1) < limit(1) * sqrt(2 / 9 / 3 / 1000)  # unbiased
    z = covered(lambda seed: ensemble_variance(members(seed)).interval, 1.0, 1000)
    assert abs(z) < 4.9, z  # 95 % by more than luck would be noticed either way


def test_examples_are_no_sample_of_initialisations() -> None:
    """The control: an interval from the scatter over examples misses the truth far too often."""

    def over_examples(seed: int) -> tuple[float, float]:
        v = np.var(members(seed), axis=0, ddof=1).ravel()
        reach = 1.96 * v.std(ddof=1) / sqrt(len(v))
        return float(v.mean() - reach), float(v.mean() + reach)

    assert covered(over_examples, 1.0, 300) < -4.9


def test_ensemble_variance_falls_as_one_over_the_width() -> None:
    """Of the trained function, Geiger et al. 2020: Var f ~ 1/h; at initialisation of f itself it does not fall."""
    x, y = mn.datasets.digits()[:20].parity()
    widths, trained, initial = (16, 32, 64, 128), [], []
    for h in widths:
        net = mn.Network(mn.Sequential(mn.Dense(h), mn.Tanh(), mn.Dense(1)), (64,))
        theta = net.init(np.random.default_rng(h), ensemble=24)
        model = mn.Centred(net, theta, 1.0)
        how: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(lr=0.5), "steps": 100, "every": 100}
        *_, last = mn.train(model, theta, x[:10], y[:10], **how)
        f = last.model(last.theta, x[10:])
        trained.append(np.array([ensemble_variance(f[i : i + 6]).value for i in range(0, 24, 6)]))
        f = net(theta, x[10:])
        initial.append(np.array([ensemble_variance(f[i : i + 6]).value for i in range(0, 24, 6)]))
    law, control = power_law(widths, trained), power_law(widths, initial)
    assert law.interval[0] - 0.15 < -1 < law.interval[1] + 0.15, law
    assert control.interval[0] > -0.6, control


def test_ensemble_variance_errors() -> None:
    for bad, match in ((np.ones((2, 3, 1)), "E >= 3"), (np.ones((5, 3)), "E >= 3"), (np.ones((4, 3, 1)), "differ")):
        with pytest.raises(ValueError, match=match):
            ensemble_variance(bad)


# --------------------------------------------------------------------------------------------------------- times


def test_times() -> None:
    """Half an exponential is at log 2, a linear fall ends where it ends; each member has its own."""
    t = np.linspace(0, 10, 4001)
    rates = np.array([0.5, 1.0, 3.0])
    np.testing.assert_allclose(t1(t, 4 * np.exp(-t[:, None] * rates)), log(2) / rates, rtol=2e-5)  # (rate dt)^2
    assert np.all(np.isinf(t2(t, np.exp(-t[:, None] * rates))))
    hinge = np.maximum(1 - t[:, None] / [2, 5, 40], 0)
    np.testing.assert_allclose(t2(t, hinge), [2, 5, np.inf], atol=2e-3)
    np.testing.assert_allclose(t1(t, hinge), [1, 2.5, np.inf], atol=1e-9)
    assert float(t1(t, 1 - t / 8)) == pytest.approx(4)
    assert float(t1(np.array([0.0, 2.0]), np.array([1.0, 0.0]))) == pytest.approx(1)
    for bad in ((t[::-1].copy(), 1 - t), (t[:3], t[:2]), (t[:1], t[:1])):
        with pytest.raises(ValueError, match="expect"):
            t1(*bad)
    with pytest.raises(ValueError, match="starts above 0"):
        t1(t, 0 * t)
    with pytest.raises(ValueError, match="loss holds"):
        t2(t, t * np.nan)


def test_t1_is_the_kernels_time() -> None:
    """A linearised network with one example: L = L_0 exp(-2 k t / N), t1 = log 2 / (2 k)."""
    theta, x = points(N=1)
    y = np.array([[1.0, 1.0]])
    net = mn.Network(mn.Sequential(mn.Flatten(), mn.Dense(7), mn.Tanh(), mn.Dense(1)), (2, 2, 1))
    theta = net.init(np.random.default_rng(1))
    y = np.array([[2.0]])
    run = mn.train(mn.Linearized(net, theta), theta, x, y, loss=mn.mse, optimizer=mn.SGD(lr=1e-3), steps=2000)
    snaps = [(snap.t, float(snap.loss)) for snap in run]
    found = float(t1(*(np.array(column) for column in zip(*snaps))))
    k = float(mn.ntk(net, theta, x)[0, 0])
    assert found == pytest.approx(log(2) / (2 * k), rel=2 * 1e-3 * k)


# --------------------------------------------------------------------------------------------------------- kappa


def second_derivative(model: mn.Network, theta: Array, x: Array, h: float = 1e-5) -> Array:
    """D^2 f written down, (N C, P, P)."""
    P = theta.size
    sides = [[model.linearize(theta + s * h * e, x)[1].dense().reshape(-1, P) for e in np.eye(P)] for s in (1, -1)]
    return np.asarray(np.moveaxis(np.array(sides[0]) - np.array(sides[1]), 0, -1) / (2 * h))


def test_kappa_is_the_norms_written_down() -> None:
    """|D^2 f| as the best of 100 random starts of a power iteration on the dense tensor."""
    net = mn.Network(mn.Sequential(mn.Dense(5, b_std=0.1), mn.Tanh(), mn.Dense(2)), (3,))
    rng = np.random.default_rng(0)
    theta, x, y = net.init(rng), rng.standard_normal((4, 3)), rng.standard_normal((4, 2))
    D, J = second_derivative(net, theta, x), net.linearize(theta, x)[1].dense().reshape(8, -1)
    best = 0.0
    for _ in range(100):
        v = rng.standard_normal(theta.size)
        w = v = v / np.linalg.norm(v)
        for _ in range(100):
            u = np.einsum("kij,i,j", D, v, w)
            H = np.einsum("k,kij", u / np.linalg.norm(u), D)
            v = H @ w
            v /= np.linalg.norm(v)
            w = H @ v
            best = max(best, float(np.linalg.norm(w)))
            w /= np.linalg.norm(w)
    found = kappa(net, theta, x, y)
    assert found.curvature == pytest.approx(best, rel=1e-7)
    assert found.slope == pytest.approx(np.linalg.norm(J, 2), rel=1e-7)
    assert found.residual == pytest.approx(np.linalg.norm(net(theta, x) - y))
    assert found.kappa == pytest.approx(found.residual * found.curvature / found.slope**2)


def test_kappa_of_a_linear_model_is_zero_and_scales_as_one_over_alpha() -> None:
    theta, x = points()
    assert kappa(mn.Linearized(NET, theta), theta, x).curvature < 1e-8 * kappa(NET, theta, x).curvature
    plain, lazy = kappa(NET, theta, x), kappa(mn.Centred(NET, theta, 50.0), theta, x)
    assert lazy.kappa == pytest.approx(plain.kappa / 50, rel=1e-6)


def test_kappa_falls_as_the_root_of_the_width() -> None:
    """Exponent -1/2 in the NTK scaling; 0 with the mean-field factor 1/sqrt(n) on the outputs, the control."""
    widths, lazy, mean_field = (32, 64, 128, 256, 512), [], []
    x = np.random.default_rng(9).standard_normal((5, 8))
    for n in widths:
        net = mn.Network(mn.Sequential(mn.Dense(n), mn.Tanh(), mn.Dense(1)), (8,))
        draws = [net.init(np.random.default_rng(seed)) for seed in range(4)]
        lazy.append(np.array([kappa(net, theta, x, starts=1, steps=15).kappa for theta in draws]))
        models = [mn.Centred(net, theta, n**-0.5) for theta in draws]
        mean_field.append(np.array([kappa(m, theta, x, starts=1, steps=15).kappa for m, theta in zip(models, draws)]))
    law, control = power_law(widths, lazy), power_law(widths, mean_field)
    assert abs(law.exponent + 0.5) < 0.05 + 3 * law.error, law
    assert abs(control.exponent) < 0.05 + 3 * control.error, control
    assert law.interval[1] < -0.25 < control.interval[0]  # each is told from the other


def test_half_the_second_derivative_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: D^2 f[v, w] / 2, the coefficient of the series in place of its derivative, against the tensor."""
    net = mn.Network(mn.Sequential(mn.Dense(5), mn.Tanh(), mn.Dense(1)), (3,))
    theta, x = net.init(np.random.default_rng(0)), np.eye(3)[:1]
    right = np.linalg.norm(second_derivative(net, theta, x)[0], 2)  # one output of one input: a matrix
    assert kappa(net, theta, x, steps=400).curvature == pytest.approx(right, rel=1e-8)
    jvp = curvature_module._Second.jvp
    vjp = curvature_module._Second.vjp
    monkeypatch.setattr(curvature_module._Second, "jvp", lambda self, w: jvp(self, w) / 2)
    monkeypatch.setattr(curvature_module._Second, "vjp", lambda self, u: vjp(self, u) / 2)
    assert abs(kappa(net, theta, x, steps=400).curvature / right - 1) > 0.1


def test_kappa_errors() -> None:
    theta, x = points(ensemble=2)
    with pytest.raises(ValueError, match="one network"):
        kappa(NET, theta, x)
    with pytest.raises(ValueError, match="y expects shape"):
        kappa(NET, theta[0], x, np.ones((3, 2)))


# ---------------------------------------------------------------------------------------------------- power laws


def laws(seed: int, gap: float = 0.8) -> tuple[PowerLaw, PowerLaw]:
    """A_1 = 6 n^-1 and 6 n^(-1 + gap) / 20^gap: they cross at 20."""
    rng = np.random.default_rng(seed)
    n = np.array([5.0, 10.0, 20.0, 40.0, 80.0])
    noise = np.exp(0.15 * rng.standard_normal((2, 5, 8)))
    values = (6 / n[:, None] * noise[0], 6 / n[:, None] * (n[:, None] / 20) ** gap * noise[1])
    first, second = (power_law(list(n), list(v), resamples=400, rng=rng) for v in values)
    return first, second


def test_crossover_and_the_coverage_of_its_interval() -> None:
    z = covered(lambda seed: crossover(*laws(seed)).interval, 20.0, 300)
    assert abs(z) < 4.9, z
    meet = crossover(*laws(0))
    assert meet.value == pytest.approx(20, rel=0.2)
    assert crossover(*reversed(laws(0))).value == pytest.approx(meet.value)


def test_a_crossover_too_narrow_is_noticed() -> None:
    """The control: half the interval covers too little."""

    def half(seed: int) -> tuple[float, float]:
        meet = crossover(*laws(seed))
        low, high = (meet.value * (end / meet.value) ** 0.5 for end in meet.interval)
        return low, high

    assert covered(half, 20.0, 300) < -4.9


def test_parallel_laws_have_no_crossover_to_speak_of() -> None:
    first, second = laws(1, gap=0.0)
    assert crossover(first, second).interval == (0.0, np.inf)
    with pytest.raises(ValueError, match="do not cross"):
        crossover(first, first)
    assert str(Estimate(1.0, (0.5, 2.0), 0.95)) == "1 (0.5 to 2)"


# ------------------------------------------------------------------------------------------------------ libraries


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("ensemble", [None, 3])
def test_every_library_and_dtype(library: str, dtype: str, ensemble: int | None) -> None:
    xp = namespace(library)
    theta, x = points(ensemble)
    labels = np.arange(12) % 3
    y = np.eye(3)[labels]

    def compute(to: Callable[[Array], Any]) -> list[Any]:
        t, a = to(theta.astype(dtype)), to(x.astype(dtype))
        k = mn.ntk(NET, t, a)
        numbers = [effective_rank(k), condition_number(k), singular_values(k), layer_similarity(NET, t, t, a)]
        numbers += [target_alignment(k, to(y.astype(dtype))), alignment(k, k, centred=True)]
        if ensemble is None:
            numbers.append(gram_picture(k, to(labels))[0])
        return numbers

    mine, truth = compute(lambda a: to_library(a, xp)), compute(lambda a: a)
    for a, b in zip(mine, truth):
        assert array_namespace(a) is array_namespace(to_library(theta, xp))
        assert str(a.dtype) == dtype
        np.testing.assert_allclose(to_host(a), b, rtol=1e-3 if dtype == "float32" else 1e-9)
    if ensemble is None and dtype == "float64":
        t, a = to_library(theta, xp), to_library(x, xp)
        assert kappa(NET, t, a, starts=1).kappa == pytest.approx(kappa(NET, theta, x, starts=1).kappa, rel=1e-6)
    if ensemble is not None:
        f = to_library(NET(theta, x), xp)
        assert ensemble_variance(f).value == pytest.approx(ensemble_variance(NET(theta, x)).value)


@pytest.mark.parametrize("told", [{"starts": 0}, {"steps": 0}, {"steps": 1.5}], ids=str)
def test_kappa_refuses_a_search_of_no_steps(told: Any) -> None:
    net = mn.Network(mn.Sequential(mn.Dense(1), mn.Dense(1)), (1,))
    with pytest.raises(ValueError, match=rf"{next(iter(told))} expects a whole number >= 1"):
        kappa(net, np.ones(2), np.ones((1, 1)), **told)


def test_kappa_says_that_the_parameters_are_not_finite() -> None:
    net = mn.Network(mn.Sequential(mn.Dense(1), mn.Dense(1)), (1,))
    with pytest.raises(ValueError, match="theta holds 1 value"):
        kappa(net, np.array([1.0, np.nan]), np.ones((1, 1)))
