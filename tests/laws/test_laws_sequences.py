"""Test attention and padding: hand-written derivatives, infinite-width kernels, and invariance under padding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import analytic as an
import minintk as mn
from analytic.images.attention import Attend
from analytic.images.engine import image_kernels
from analytic.images.rules import Window
from analytic.kernels import program
from analytic.recursion.requests import Examples, Wanted
from minintk import testing
from minintk.models.network import Network, as_written
from minintk.spec.parametrization import Parametrization
from tests.kit.montecarlo import kernels, limit, z_scores
from tests.kit.small_is_large import small_is_large
from tests.kit.strategies import PARAMETRIZATIONS, SMOOTH, Case, cases, dense

Array = np.ndarray[Any, Any]
Patch = pytest.MonkeyPatch

# ------------------------------------------------------------------------------------------- hand-written derivatives


@st.composite
def attention(draw: st.DrawFn, channels: int) -> mn.GlobalSelfAttention:
    """Draw an attention layer with random options."""
    masked = draw(st.booleans())
    return mn.GlobalSelfAttention(
        channels,
        heads=draw(st.integers(1, 3)),
        key_channels=draw(st.none() | st.integers(1, 3)),
        value_channels=draw(st.none() | st.integers(1, 3)),
        scaling=draw(st.sampled_from(("linear", "sqrt"))),
        zeta=draw(st.sampled_from(("softmax", "softmax", *SMOOTH))),
        qk_std=draw(st.sampled_from((0.5, 2.0))),
        w_std=draw(st.sampled_from((0.7, 1.5))),
        b_std=0.0 if masked else draw(st.sampled_from((0.0, 0.3))),
        masked=masked,
    )


@st.composite
def networks(draw: st.DrawFn) -> mn.Network:
    """Draw a network with attention at the start or after a convolution, and possibly also in a residual branch."""
    shape = draw(st.sampled_from(((1, 2), (4, 3), (2, 3, 2))))
    conv = (mn.Conv1d if len(shape) == 2 else mn.Conv2d)(3, 2)
    layers: list[mn.spec.Layer] = draw(st.sampled_from(([], [conv, mn.Erf()])))
    layers = [*layers, draw(attention(3))]
    if draw(st.booleans()):
        layers.append(mn.Residual(mn.Sequential(mn.Sin(), draw(attention(3)))))
    end = draw(st.sampled_from((mn.Flatten(), mn.GlobalAvgPool(), mn.MaskedAvgPool())))
    spec = mn.Sequential(*layers, end, draw(dense(largest=3)))
    return mn.Network(spec, shape, draw(st.sampled_from(PARAMETRIZATIONS)))


def padded(case: Case) -> Array:
    """Return the batch with its first example and the last position, or row, of its last example set to zero."""
    x = case.x.copy()
    x[0], x[-1, -1] = 0, 0
    return np.asarray(x)


@settings(max_examples=8)
@given(cases(networks()))
def test_every_law_of_a_model_holds(case: Case) -> None:
    testing.check_model(case.net, case.theta, padded(case), case.rng)


@settings(max_examples=15)
@given(cases(networks(), ensembles=(None, 2)))
def test_fast_networks_are_the_layers_as_written(case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Network, "speed", staticmethod(as_written))
        plain = mn.Network(case.net.spec, case.net.input_shape, case.net.parametrization)
    with small_is_large():
        fast = mn.Network(case.net.spec, case.net.input_shape, case.net.parametrization)
        x, tolerance = padded(case), testing.roundings(plain, case.theta, case.x)
        got, want = fast.linearize(case.theta, x), plain.linearize(case.theta, x)
        u = np.ones(np.shape(want[0]))
        for name, a, b in (
            ("outputs", got[0], want[0]),
            ("gradient", got[1].vjp(u), want[1].vjp(u)),
            ("kernel", got[1].gram(), want[1].gram()),
        ):
            testing.assert_close(name, a, b, 1e3 * tolerance * (1 + float(np.abs(np.asarray(b)).max())))


def test_it_computes_what_the_formula_says() -> None:
    """Compare the layer with attention computed from the named tensors by loops over heads and positions."""
    layer = mn.GlobalSelfAttention(
        4, heads=2, key_channels=3, value_channels=5, scaling="sqrt", qk_std=2.0, w_std=1.5, b_std=0.3
    )
    net, rng = mn.Network(mn.Sequential(layer, mn.Flatten()), (6, 2)), np.random.default_rng(0)
    theta, x = net.init(rng), rng.standard_normal((2, 6, 2))
    w = {name: a.reshape(a.shape[-2:]) for name, a in net.layout.unpack(theta).items() if name != "0.output.b"}
    want = np.zeros((2, 6, 4))
    for n, t, h in np.ndindex(2, 6, 2):
        keys, values = slice(3 * h, 3 * h + 3), slice(5 * h, 5 * h + 5)
        k, q = (2**0.5 / 2**0.5 * x[n] @ w[name][:, keys] for name in ("0.in.0.W", "0.in.1.W"))
        A = np.exp(q[t] @ k.T / 3**0.5)
        head = A / A.sum() @ (x[n] @ w["0.in.2.W"][:, values] / 2**0.5)
        want[n, t] += 1.5 / 10**0.5 * head @ w["0.output.W"][values]
    want += 0.3 * net.layout.unpack(theta)["0.output.b"]
    np.testing.assert_allclose(net(theta, x), want.reshape(2, -1), rtol=1e-12)


# ------------------------------------------------------------------------------------------------ infinite width

X = np.random.default_rng(0).standard_normal((2, 4, 2))
X[1, 3] = 0

INFINITE: dict[str, dict[str, Any]] = {
    "softmax": {"qk_std": 2.0},
    "identity": {"zeta": mn.Identity(), "b_std": 0.3},
    "padding left out": {"qk_std": 2.0, "masked": True},
}
RANDOM: dict[str, Any] = {"zeta": mn.Identity(), "scaling": "sqrt", "key_channels": 4, "value_channels": 4}


def spec(n: int, *, deep: bool = False, **how: Any) -> mn.Sequential:
    """Build a spec with n channels. The attention acts on the inputs or, if `deep`, between two ReLU layers."""
    layer = mn.GlobalSelfAttention(n, w_std=1.3, **({"heads": 2} | how))
    before, after = ([mn.Conv1d(n, 1, w_std=1.2), mn.ReLU()], [mn.ReLU()]) if deep else ([], [])
    mean = mn.MaskedAvgPool() if layer.masked else mn.GlobalAvgPool()
    return mn.Sequential(*before, layer, *after, mean, mn.Dense(8))


def combined(members: int, n: int, how: dict[str, Any]) -> tuple[Array, Array]:
    """Return samples of 2 k_2n - k_n for NNGP and NTK. The mean of these samples has no bias of order 1 / n."""
    narrow, wide = kernels(spec(n, **how), X, members), kernels(spec(2 * n, **how), X, members, seed=1)
    return 2 * wide[0] - narrow[0], 2 * wide[1] - narrow[1]


def worst(samples: tuple[Array, Array], truth: Any) -> float:
    """Return the largest |z| of the samples against the kernels `truth`, divided by the limit of the z-test."""
    upper = np.triu_indices(len(X))
    z = [z_scores(s, np.asarray(k)[upper]) for s, k in zip(samples, truth, strict=True)]
    return float(np.abs(z).max()) / limit(6)


def theta_without_values(how: dict[str, Any]) -> tuple[Array, Array]:
    """Return (NNGP, Theta), where Theta deliberately omits the contribution of the value weights."""
    steps = program(spec(8, **how), mn.NTK(), X.shape[1:])
    k = next(i for i, step in enumerate(steps) if isinstance(step, Attend))
    value = steps[k - 1]
    assert isinstance(value, Window)
    value = replace(value, affine=replace(value.affine, ratio=0.0, rest=0.0))
    wanted = Wanted((True, True), (None, None), None, None, lambda error: None)
    nngp, ntk = image_kernels((*steps[: k - 1], value, *steps[k:]), Examples(X), wanted)
    assert nngp is not None
    assert ntk is not None
    return np.asarray(nngp), np.asarray(ntk)


def check(how: dict[str, Any], members: int, n: int) -> None:
    """The z-test accepts the correct kernels, and rejects those of another qk_std and a Theta without value weights."""
    samples = combined(members, n, how)
    right, scaled = (an.kernel(spec(8, **both)).both(X) for both in (how, how | {"qk_std": 3 * how.get("qk_std", 1.0)}))
    assert worst(samples, right) <= 1
    assert worst(samples, scaled) > 1
    assert worst(samples, theta_without_values(how)) > 1


def test_networks_approach_the_infinite_kernels() -> None:
    check(INFINITE["padding left out"], 300, 32)


def test_linear_attention_with_random_weights() -> None:
    """Linear attention is multilinear in the weights, so mean kernels at any width equal the infinite-width kernels."""
    net = spec(16, heads=4, qk_std=0.8, b_std=0.3, **RANDOM)
    samples, K = kernels(net, X, 3000), np.asarray(an.kernel(net).nngp(X))
    assert worst(samples, an.kernel(net).both(X)) <= 1
    for wrong in ({"qk_std": 1.2}, {"w_std": 1.8}, {"b_std": 0.9}):
        other = mn.Sequential(replace(net.layers[0], **wrong), *net.layers[1:])  # type: ignore[type-var]
        assert worst(samples, an.kernel(other).both(X)) > 1
    without_keys = np.asarray(an.kernel(net).ntk(X)) - (K - 0.3**2)  # without one weight's contribution
    assert worst(samples, (K, without_keys)) > 1


@pytest.mark.slow
def test_deep_linear_attention_with_random_weights() -> None:
    """Check 2 k_2n - k_n, which has no 1/n term, for attention between ReLU layers with n channels and n / 2 heads."""
    found = [kernels(spec(n, deep=True, heads=n // 2, **RANDOM), X, 8000, n) for n in (32, 64)]
    samples = tuple(2 * wide - narrow for narrow, wide in zip(*found, strict=True))
    assert worst(samples, an.kernel(spec(8, deep=True, **RANDOM)).both(X)) <= 1
    assert worst(samples, an.kernel(spec(8, deep=True, **RANDOM, qk_std=1.1)).both(X)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("how", INFINITE.values(), ids=INFINITE)
def test_wider_networks_approach_them_too(how: dict[str, Any]) -> None:
    check(how | {"deep": True}, 8000, 32)


@pytest.mark.slow
@pytest.mark.parametrize("parametrization", [mn.Standard(), mn.SpectralMuP(), mn.MeanField()], ids=repr)
def test_in_other_parametrizations(parametrization: Parametrization) -> None:
    """Check that minintk and analytic use the parametrization's multipliers and rates for keys, values and outputs."""
    how = INFINITE["softmax"]
    narrow, wide = (kernels(spec(n, **how), X, 500, n, parametrization) for n in (64, 128))
    for n, m, kind in zip(narrow, wide, ("nngp", "ntk"), strict=True):
        rows = [an.kernel(spec(width, **how), parametrization).both(X) for width in (64, 128)]
        truth = [np.asarray(getattr(row, kind))[np.triu_indices(len(X))] for row in rows]
        z = z_scores(2 * m / truth[1] - n / truth[0], np.ones(3))
        assert np.abs(z).max() < limit(z.size)


# ------------------------------------------------------------------------------------------------------- padding


@settings(max_examples=10)
@given(attention(3), st.integers(0, 2**32 - 1))
def test_padding_changes_nothing(layer: mn.GlobalSelfAttention, seed: int) -> None:
    """Check that, with equal weights, a padded sequence has the same outputs and kernels as the unpadded one."""
    layer, rng = replace(layer, masked=True, b_std=0.0), np.random.default_rng(seed)
    body = mn.Sequential(mn.Conv1d(4, 1), mn.ReLU(), layer, mn.Erf(), mn.MaskedAvgPool(), mn.Dense(2))
    short = rng.standard_normal((3, 4, 2))
    x = np.concatenate([short, np.zeros((3, 3, 2))], axis=1)
    net, shorter = mn.Network(body, (7, 2)), mn.Network(body, (4, 2))
    theta = net.init(rng)
    np.testing.assert_allclose(net(theta, x), shorter(theta, short), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(mn.ntk(net, theta, x), mn.ntk(shorter, theta, short), rtol=1e-9, atol=1e-11)
    if layer.scaling == "linear" or layer.zeta == mn.Identity():
        for a, b in zip(an.kernel(body).both(x), an.kernel(body).both(short), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_what_is_no_padding_counts() -> None:
    """Check that padding changes the kernel if the attention or the mean lacks a mask."""
    rng = np.random.default_rng(0)
    short = rng.standard_normal((3, 4, 2))
    x = np.concatenate([short, np.zeros((3, 3, 2))], axis=1)
    for layer, mean in (
        (mn.GlobalSelfAttention(3), mn.MaskedAvgPool()),
        (mn.GlobalSelfAttention(3, masked=True), mn.GlobalAvgPool()),
    ):
        body = mn.Sequential(mn.Conv1d(4, 1), mn.ReLU(), layer, mean, mn.Dense(2))
        assert np.abs(an.kernel(body).nngp(x) - an.kernel(body).nngp(short)).max() > 1e-3


def test_a_position_of_zeros_is_seen_by_its_bound_layer() -> None:
    """A position counts as padding only if every channel is 0. If all positions are padding, the outputs are 0."""
    net = mn.Network(mn.Sequential(mn.GlobalSelfAttention(3, masked=True), mn.MaskedAvgPool()), (4, 2))
    x = np.zeros((2, 4, 2))
    x[1, 2, 1] = 1.0
    f = net(net.init(np.random.default_rng(0)), x)
    assert np.array_equal(f[0], np.zeros(3))
    assert np.abs(f[1]).min() > 0


# -------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"key_channels": 0}, r"key_channels=\.\.\.\) expects a whole number >= 1, got 0"),
        ({"heads": 0}, r"heads=\.\.\.\) expects a whole number >= 1, got 0"),
        ({"qk_std": 0.0}, r"qk_std=\.\.\.\) expects a finite number > 0"),
        ({"scaling": "root"}, r"expects 'linear' or 'sqrt', got 'root'"),
        ({"zeta": "relu"}, r"expects 'softmax' or an activation, mn\.Identity\(\), got 'relu'"),
        ({"masked": True, "b_std": 0.1}, r"keeps padding at 0: it expects b_std=0, got 0\.1"),
    ],
)
def test_arguments_are_checked(how: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        mn.GlobalSelfAttention(3, **how)


def test_what_has_no_meaning_is_said() -> None:
    with pytest.raises(ValueError, match=r"expects sequences \(L, C\), channels last, got examples of shape"):
        mn.Network(mn.GlobalSelfAttention(3), (4,))
    with pytest.raises(mn.UnsupportedLayer, match=r"for zeta=mn\.Identity\(\) alone"):
        an.kernel(mn.Sequential(mn.GlobalSelfAttention(3, scaling="sqrt"), mn.Flatten())).nngp(X)
    steep = an.kernel(mn.Sequential(mn.GlobalSelfAttention(3, zeta=mn.Exp()), mn.GlobalAvgPool(), mn.Dense(1)))
    with pytest.raises(ValueError, match=r"weights zeta\(G\) are not finite; scale the inputs, or qk_std, down"):
        steep.ntk(40 * np.random.default_rng(0).standard_normal((3, 5, 4)))
    net = mn.Network(mn.Sequential(mn.GlobalSelfAttention(3), mn.Flatten()), (4, 2))
    theta = net.init(np.random.default_rng(0))
    assert net(theta, np.ones((0, 4, 2))).shape == (0, 12)
    taylor = mn.Taylor(net, theta, 2)
    with pytest.raises(mn.UnsupportedLayer, match=r"branches of a Sum or Residual, got those of Concat"):
        taylor(theta, X)
