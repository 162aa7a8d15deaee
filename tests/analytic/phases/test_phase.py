"""Test phases against deep kernels, mpmath and published points. Errors planted in the formulas must be detected."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from math import erf, exp, inf, isfinite, log, sqrt
from typing import Any

import mpmath as mp
import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.phases import block as block_module
from analytic.phases import critical as critical_module
from analytic.phases import maps as maps_module
from analytic.phases import phase as phase_module
from analytic.phases.critical import Edge
from analytic.phases.maps import Maps
from analytic.phases.phase import Phase
from analytic.recursion.rules import lower
from analytic.recursion.state import Listing, RowState, Scratch, run_pairs, run_rows
from minintk.more_layers import activations as more
from minintk.spec.shapes import Site, UnsupportedLayer
from tests.kit.every import every

ACTIVATIONS = [
    mn.Tanh(), mn.Sigmoid(), mn.Erf(), mn.GELU(), mn.Swish(), mn.Sin(), mn.Cos(), mn.Rbf(), mn.Softplus(), mn.ReLU(),
    mn.LeakyReLU(0.2), mn.ABRelu(-0.5, 1.0), mn.Abs(), mn.RectifiedMonomial(2), mn.RectifiedMonomial(3), mn.Gaussian(),
    mn.Exp(), mn.Hermite(2), mn.Hermite(3), mn.Polynomial((0.1, 1.0, 0.2)), mn.Identity(), mn.Scale(0.7),
    more.ELU(), more.TanhGELU(), more.Hardtanh(), more.ReLU6(), more.Hardsigmoid(),
]  # fmt: skip


def at_variance(activation: Any, chi_1: float) -> tuple[mn.Dense, float]:
    """Return a Dense layer, and a fixed point q of the variance at which the slope is `chi_1`.

    The fixed point is the first power of 2 for which such a layer exists.
    """
    maps = Maps(lower(activation, Site((1,), first=False), mn.NTK()))
    for q in 2.0 ** np.arange(-1, 7):
        V, D, _ = maps.variance(float(q)) if maps.program else (float(q), 1.0, 0.0)
        if (b2 := q - chi_1 * V / D) >= 0:
            return mn.Dense(16, w_std=sqrt(chi_1 / D), b_std=sqrt(b2)), float(q)
    raise AssertionError(activation)


def law_of_depth(activations: Any = ACTIVATIONS[:4]) -> None:
    """Between depths 40 and 41 of the kernel's recursion, the slope of log(1 - c) is -1 / xi to 1e-6."""
    for activation in activations:
        dense, q = at_variance(activation, 0.45)
        found = phase_module.phase(mn.Sequential(dense, activation), start=q)
        steps = an.kernel(mn.Sequential(*(dense, activation) * 41, dense))._program((1,))[1:]
        i, cut, angles = np.zeros(1, dtype=np.int64), 40 * len(steps) // 41, []
        rows, scratch = RowState(np.array([q, q]), np.zeros(2)), Scratch(np, np.dtype(np.float64), 1)
        pairs = Listing(scratch, i, i + 1, np.array([0.2]), np.array([0.8]), None)
        for some in (steps[:cut], steps[cut:]):
            rows, coefficients = run_rows(some, rows)
            run_pairs(some, pairs, coefficients)
            angles.append(float(pairs.p[0]))
        slope = log(angles[0] / angles[1])
        assert abs(slope * found.xi - 1) < 1e-6, (activation, slope, found)
        assert (found.name, found.c) == ("ordered", 1), found
        assert abs(found.q / q - 1) < 1e-12, found


def dense(w: float, b: float) -> mn.Dense:
    return mn.Dense(16, w_std=w, b_std=b)


BLOCKS: list[tuple[mn.Layer, ...]] = [
    (mn.Tanh(), dense(2.0, 0.3)),
    (mn.Erf(), mn.Dropout(0.3), dense(2.0, 0.5)),
    (mn.LayerNorm(), mn.Sin(), dense(2.0, 0.2)),
    (mn.Residual(mn.Sequential(mn.Erf(), dense(1.5, 0.4)), mn.Scale(0.6)),),
    (mn.ReLU(), dense(1.1, 0.4), mn.Tanh(), dense(1.0, 0.2)),
]


@cache
def deep_kernels(layers: tuple[mn.Layer, ...]) -> Any:
    """Return K and Theta of two inputs, and of the first with itself, at five depths, unaffected by planted errors."""
    x, at = np.array([[1.0, 0.2], [-0.3, 1.1]]), []
    for depth in (8, 9, 10, 150, 151):
        K, Theta = an.kernel(mn.Sequential(dense(1.0, 0.3), *layers * depth)).both(x)
        at.append((K[0, 1], Theta[0, 1], K[0, 0], Theta[0, 0]))
    return np.array(at)


def law_of_kernels() -> None:
    """Deep kernels of two inputs agree with q*, c*, both slopes, and Theta' = chi Theta + added."""
    for layers in BLOCKS:
        found = phase_module.phase(mn.Sequential(*layers))
        *early, before, deep = deep_kernels(layers)
        assert deep[2] == pytest.approx(found.q, rel=1e-9), (layers, found)
        left = 1e-8 + 2 * exp(-150 / found.xi)
        assert deep[0] / deep[2] == pytest.approx(found.c, abs=left), (layers, found)
        assert deep[1] == pytest.approx(found.chi * before[1] + found.added_c, rel=1e-6 + 3 * left), (layers, found)
        assert deep[3] == pytest.approx(found.chi_1 * before[3] + found.added, rel=1e-9), (layers, found)
        if found.xi > 2 * found.xi_q and not any(isinstance(layer, mn.LayerNorm) for layer in layers):
            rest = [row[0] / row[2] - found.c for row in early]
            assert -1 / log(abs(rest[2] / rest[1])) == pytest.approx(found.xi, rel=0.15), (layers, found)


@cache
def tanh_by_mpmath() -> tuple[float, ...]:
    """Return q*, chi_1, dQ/dq and xi_q of tanh with w_std 1.3 and b_std 0.4, computed with 25 digits."""
    mp.mp.dps = 25
    w, b = mp.mpf("1.3"), mp.mpf("0.4")

    def mean(f: Any) -> Any:
        return 2 * mp.quad(lambda z: f(z) * mp.npdf(z), [0, 1, 3, 6, 13])

    q = mp.findroot(lambda q: w**2 * mean(lambda z: mp.tanh(mp.sqrt(q) * z) ** 2) + b**2 - q, (0.6, 0.8), tol=1e-20)
    chi_1 = w**2 * mean(lambda z: mp.sech(mp.sqrt(q) * z) ** 4)
    chi_q = w**2 * mean(lambda z: z * mp.tanh(mp.sqrt(q) * z) * mp.sech(mp.sqrt(q) * z) ** 2) / mp.sqrt(q)
    return float(q), float(chi_1), float(chi_q), float(-1 / mp.log(chi_q))


def law_of_tanh() -> None:
    """For tanh, q*, chi_1, dQ/dq and xi_q agree with values from mpmath."""
    found = phase_module.phase(mn.Sequential(mn.Dense(5, w_std=1.3, b_std=0.4), mn.Tanh()))
    for mine, theirs in zip((found.q, found.chi_1, found.chi_q, found.xi_q), tanh_by_mpmath(), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-11)


@contextmanager
def variances_from(smallest: float, largest: float) -> Iterator[None]:
    """Search only these variances, because every variance tried requires ten quadratures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(critical_module, "SMALLEST", smallest)
        patch.setattr(critical_module, "LARGEST", largest)
        yield


@cache
def critical_tanh() -> tuple[float, float]:
    """Return q* and w_std^2 of critical tanh at b_std^2 = 0.05, computed with 25 digits."""
    mp.mp.dps = 25

    def mean(f: Any) -> Any:
        return 2 * mp.quad(lambda z: f(z) * mp.npdf(z), [0, 1, 3, 6, 13])

    def bias2(q: Any) -> Any:
        V, D = (mean(lambda z, f=f: f(mp.sqrt(q) * z)) for f in (lambda u: mp.tanh(u) ** 2, lambda u: mp.sech(u) ** 4))
        return q - V / D

    q = mp.findroot(lambda q: bias2(q) - mp.mpf("0.05"), (0.5, 0.6), tol=1e-20)
    return float(q), float(1 / mean(lambda z: mp.sech(mp.sqrt(q) * z) ** 4))


def law_of_the_edge() -> None:
    """Critical points are accurate to 1e-12 for tanh, and agree with published ones for tanh, ReLU, GELU and Swish."""
    q, w2 = critical_tanh()
    at = an.critical(mn.Tanh(), b_std=0.05**0.5)
    assert at.q == pytest.approx(q, rel=1e-12)
    assert at.w_std**2 == pytest.approx(w2, rel=1e-12)
    assert at.w_std**2 == pytest.approx(1.76, abs=0.005)  # Pennington, Schoenholz and Ganguli 2017
    assert [round(v**2, 12) for v in an.critical(mn.ReLU())[:2]] == [2, 0]  # He et al. 2015
    gelu = an.critical(mn.GELU())
    assert [round(gelu.b_std**2, 6), round(gelu.w_std**2, 5)] == [0.172922, 1.98306]  # Roberts, Yaida and Hanin 2022
    with variances_from(1.0, 100.0):
        swish = an.critical(mn.Swish())
    assert [round(swish.w_std**2, 5), round(swish.q, 4)] == [1.98800, 14.3202]


def law_of_ntk() -> None:
    """After 30 blocks, Theta is `Phase.ntk` plus chi_1^30 times the first Theta. `growth` is "bounded" or "linear"."""
    for w, growth in ((0.9, "bounded"), (2**0.5, "linear")):
        layers = mn.Sequential(mn.Dense(9, w_std=w, b_std=0.5 if w < 1 else 0.0), mn.ReLU())
        found = phase_module.phase(layers)
        x = np.array([[found.q**0.5]])
        weights = layers.layers[0]
        assert found.growth == growth
        first = an.kernel(mn.Sequential(mn.Dense(9), *(mn.ReLU(), weights) * 30)).diag(x).ntk[0]
        before = an.kernel(mn.Sequential(mn.Dense(9))).diag(x).ntk[0] * found.chi_1**30
        assert first == pytest.approx(found.ntk(30)[0] + before, rel=1e-9)


LAWS: dict[str, Callable[[], None]] = {
    "depth": law_of_depth,
    "kernels": law_of_kernels,
    "tanh": law_of_tanh,
    "edge": law_of_the_edge,
    "ntk": law_of_ntk,
}


@pytest.mark.parametrize("law", sorted(LAWS))
def test_laws(law: str) -> None:
    LAWS[law]()


@pytest.mark.parametrize("activation", ACTIVATIONS[4:], ids=repr)
def test_depth_of_every_activation(activation: mn.Layer) -> None:
    law_of_depth([activation])


def test_every_activation_is_here() -> None:
    """All activations are in ACTIVATIONS except Sign (no phase), `Numbered` (a base class) and Hardswish (own test)."""
    known = {type(activation) for activation in ACTIVATIONS} | {mn.Sign}
    left = {kind.__name__ for kind in every(mn.spec.Activation) if kind not in known}
    assert left - {"Numbered"} == {"Hardswish"}, "add each of these activations to ACTIVATIONS in this file"


@pytest.mark.parametrize(("activation", "end", "slope"), [(more.Hardtanh(), 1, 1), (more.Hardsigmoid(), 3, 6)])
def test_slopes_of_clipped_activations(activation: mn.Layer, end: float, slope: float) -> None:
    """The slope of the map at angle 0 is chi_1 = P(|u| < end) / slope^2."""
    maps = Maps(lower(activation, Site((1,), first=False), mn.NTK()))
    V, chi_1, _ = maps.variance(16.0)
    assert chi_1 == pytest.approx(erf(end / 32**0.5) / slope**2, rel=1e-14)
    p, chi, _ = maps.pairs(16.0, np.array([1e-20]))
    assert chi[0] == pytest.approx(chi_1, rel=1e-9)
    assert p[0] / 1e-20 == pytest.approx(16 * chi_1 / V, rel=1e-9)


def test_slope_of_hardswish() -> None:
    """Although phi' and phi'' jump, chi_1 is accurate to 1e-9. The slope of the 1024-term series is 0.19 % smaller."""
    maps = Maps(lower(more.Hardswish(), Site((1,), first=False), mn.NTK()))
    V, chi_1, _ = maps.variance(16.0)
    z = np.linspace(-0.75, 0.75, 200_001)
    inside = np.trapezoid((4 * z / 3 + 0.5) ** 2 * np.exp(-z * z / 2), z) / sqrt(2 * np.pi)
    assert chi_1 == pytest.approx(inside + (1 - erf(0.75 / sqrt(2))) / 2, rel=1e-9)
    p, _, _ = maps.pairs(16.0, np.array([1e-12]))
    assert p[0] / 1e-12 * V / (16 * chi_1) == pytest.approx(1 - 0.0019, abs=5e-5)


PLANTS: dict[str, tuple[Any, str, str, str, str]] = {
    "slope of unequal units": (Maps, "pairs", "(theta[1] - theta[0]) / max(q, 1.0)", "theta[1] - theta[0]", "kernels"),
    "tau of one input": (Maps, "pairs", "np.full_like(p, 0.5 *", "np.full_like(p, 1.0 *", "kernels"),
    "added Theta in chi_1": (maps_module, "_variance", "(after.theta[1] - after.theta[0])", "(after.theta[1])", "tanh"),
    "dQ/dq without Q/q": (Maps, "chi_q", "return 1 + ", "return ", "tanh"),
    "derivative in sqrt(q)": (Maps, "chi_q", "/ HALF_WIDTH", "/ (2 * HALF_WIDTH)", "tanh"),
    "c* = 1 - p*": (phase_module, "phase", "1 - 2 * p", "1 - p", "kernels"),
    "c* = 1 always": (phase_module, "fixed_angle", "if rise(low) <= AT_THE_EDGE", "if True", "kernels"),
    "xi of chi_1 and q": (phase_module, "phase", "scale(chi / gain)", "scale(chi_q)", "depth"),
    "xi = -1 / log10": (phase_module, "scale", "-1 / log(size)", "-2.302585 / log(size)", "depth"),
    "w^2 = D": (Edge, "at", "1 / sqrt(self.maps.variance(q)[1])", "sqrt(self.maps.variance(q)[1])", "edge"),
    "b^2 = q - V": (Edge, "bias2", "1 - V / D / q", "1 - V / q", "edge"),
    "dQ/dq of V alone": (Edge, "keeps", "* V / D / q", "* V / q", "edge"),
    "Theta without its series": (Phase, "ntk", "(chi**depth - 1)", "chi**depth", "ntk"),
    "block without its end": (block_module, "repeated", "*chosen[first:], *chosen[:first]", "*chosen", "tanh"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_planted_errors_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, what, right, wrong, law = PLANTS[name]
    here = inspect.unwrap(getattr(owner, what))
    source = textwrap.dedent(inspect.getsource(here))
    assert right in source
    space = dict(vars(inspect.getmodule(here)))
    exec(source.replace(right, wrong), space)
    monkeypatch.setattr(owner, what, space[what])
    if owner is block_module:
        monkeypatch.setattr(phase_module, what, space[what])
    with pytest.raises((AssertionError, ArithmeticError, ValueError, UnsupportedLayer)):
        LAWS[law]()


def test_names_and_ends() -> None:
    """Check the phases of networks whose variance vanishes, stays constant or is unbounded."""
    found = [an.phase(mn.Sequential(mn.Dense(9, w_std=w), mn.ReLU())) for w in (1.0, 2**0.5, 2.0)]
    assert [one.name for one in found] == ["ordered", "critical", "unbounded"]
    assert [one.q for one in found] == [0.0, 1.0, inf]
    assert all(one.xi == inf for one in found)
    residual = an.phase(mn.Residual(mn.Sequential(mn.ReLU(), mn.Dense(9))))
    assert (residual.name, residual.growth) == ("unbounded", "exponential")
    assert residual.chi_1 == pytest.approx(1.5)
    assert np.isnan(an.phase(mn.Sequential(mn.Dense(9, w_std=0.9), mn.Tanh())).c)
    by_torch = an.phase(mn.Sequential(mn.Dense(9, w_std=6**0.5), mn.ReLU()), mn.PyTorch())
    assert by_torch.name == "critical"  # w^2 / 3


@pytest.mark.parametrize(("start", "phi"), [(1e-20, mn.Tanh()), (1e-17, mn.Tanh()), (1e13, mn.Erf()), (1e20, mn.Erf())])
def test_extreme_starts_reach_the_fixed_point(start: float, phi: mn.Layer) -> None:
    """The fixed point is found from starting variances far outside the range of the search."""
    spec = mn.Sequential(mn.Dense(9, w_std=1.5, b_std=0.3), phi)
    assert an.phase(spec, start=start).q == pytest.approx(an.phase(spec).q, rel=1e-11)


@pytest.mark.parametrize(
    ("w_std", "phi", "chi"), [(0.8, mn.Erf(), 0.64 * 4 / np.pi), (1.0, mn.ReLU(), 0.5), (2**0.5, mn.ReLU(), 1.0)]
)
@pytest.mark.parametrize("b_std", [0.5, 1.0, 3.0])
def test_slopes_where_trained_biases_exceed_the_variance(w_std: float, phi: mn.Layer, chi: float, b_std: float) -> None:
    """Biases add b^2 to Theta.  If Theta(x, x) were set to q = 1e-16, rounding would make chi a multiple of 2.2."""
    block = mn.Sequential(mn.Dense(64, w_std=w_std, b_std=b_std, b_init="zeros"), phi)
    found = an.phase(block, start=1e-12)
    assert (found.chi_1, found.chi) == pytest.approx((chi, chi), rel=1e-13)
    assert found.name == ("critical" if chi == 1 else "ordered")


def test_averages_of_equal_pixels_are_the_pixel() -> None:
    conv = mn.Conv2d(8, 3, padding="circular", w_std=1.5, b_std=0.3)
    want = an.phase(mn.Sequential(conv, mn.Tanh()))
    same = mn.AvgPool(2, stride=1, padding="same", normalize_edges=True)
    for pool in (mn.AvgPool(2, stride=1, padding="circular"), same, mn.AvgPool(2)):
        found = an.phase(mn.Sequential(conv, mn.Tanh(), pool))
        assert (found.q, found.c, found.chi_1) == (want.q, want.c, want.chi_1)
    sequence = mn.Conv1d(8, 3, padding="circular", w_std=1.5, b_std=0.3)
    assert an.phase(mn.Sequential(sequence, mn.Tanh(), mn.MaskedAvgPool())).q == want.q


def test_refusals() -> None:
    for layers in ((mn.Conv2d(8), mn.ReLU()), (mn.Dense(8), mn.ReLU(), mn.AvgPool(2, padding="same"))):
        with pytest.raises(UnsupportedLayer, match="circular"):
            an.phase(mn.Sequential(*layers))
    with pytest.raises(UnsupportedLayer, match="Sign has an infinite chi_1"):
        an.phase(mn.Sequential(mn.Dense(8), mn.Sign()))
    with pytest.raises(UnsupportedLayer, match="scaling"):
        an.phase(mn.GlobalSelfAttention(8, scaling="sqrt", zeta=mn.Identity()))
    with pytest.raises(UnsupportedLayer):
        an.phase(mn.Sequential(mn.Dense(8), mn.BatchNorm(), mn.ReLU()))
    with pytest.raises(ValueError, match="start expects"):
        an.phase(mn.Sequential(mn.Dense(8), mn.ReLU()), start=0.0)
    with pytest.raises(ValueError, match="ntk expects"):
        an.phase(mn.Sequential(mn.Dense(8), mn.ReLU())).ntk(3)
    chaotic = an.phase(mn.Sequential(mn.Dense(3, w_std=3.0), mn.Tanh()))
    assert isfinite(chaotic.ntk(100)[0])
    with pytest.raises(ValueError, match=r"chi\^depth < e\^600, got q\* = [0-9.]+, depth = 1000000"):
        chaotic.ntk(10**6)
    with pytest.raises(TypeError, match="activation"):
        an.critical(mn.Dense(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="got both"):
        an.critical(mn.Tanh(), b_std=0.1, q=1.0)
    with pytest.raises(ValueError, match="no stable variance"):
        an.critical(mn.ReLU(), b_std=0.1)
    with pytest.raises(ValueError, match="no edge of chaos at q"):
        an.critical(mn.Sigmoid(), q=1.0)
    with variances_from(0.1, 10.0), pytest.raises(ValueError, match="no point with"):
        an.critical(mn.Sigmoid())


def test_the_line_of_a_summary() -> None:
    def last(*layers: mn.Layer, shape: tuple[int, ...] = (4,)) -> str:
        return mn.Network(mn.Sequential(*layers), shape).summary().splitlines()[-1]

    layers = (mn.Dense(8, w_std=1.5, b_std=0.3), mn.Tanh())
    assert last(*layers * 3, mn.Dense(1)) == f"phase: {an.phase(mn.Sequential(*layers))}"
    assert last(mn.Conv2d(2), mn.ReLU(), mn.Flatten(), mn.Dense(1), shape=(4, 4, 1)).startswith(
        "phase: none, as Conv2d"
    )
    assert last(mn.Dense(8), mn.Sign(), mn.Dense(8)).startswith("phase: none, as Sign has an infinite chi_1")
    assert "phase" not in last(mn.Dense(8))


@pytest.mark.parametrize(("w_std", "b_std", "start"), [(1.4252, 0.37, 1.0), (1.7573, 0.1, 1e-3)])
def test_two_close_fixed_points_are_not_skipped(w_std: float, b_std: float, start: float) -> None:
    """The variance of deep GELU networks stops at the first of two fixed points less than a factor of 2 apart."""
    spec = mn.Sequential(mn.Dense(9, w_std=w_std, b_std=b_std), mn.GELU())
    maps, q = Maps(block_module.steps(block_module.repeated(spec), spec, mn.NTK())), start
    for _ in range(3000):
        q = maps.variance(q)[0]
    assert an.phase(spec, start=start).q == pytest.approx(q, rel=1e-6)
    assert an.phase(spec, start=2 * q).name == "unbounded"


def test_starts_at_steps_from_the_fixed_point() -> None:
    """A start at q* 2^(k/2) has q* itself among the samples. Tiny starts do not overflow."""
    spec = mn.Sequential(mn.Dense(5, w_std=1.5, b_std=0.3), mn.Tanh())
    q = an.phase(spec).q
    for start in (1e-300, *(q * 2 ** (k / 2) for k in range(-20, 21))):
        assert an.phase(spec, start=start).q == pytest.approx(q, rel=1e-9)
