"""Test kernels of `analytic.kernel` against reference values and laws, and errors for invalid input."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import analytic as an
import minintk as mn
from minintk import spec as specs
from tests.kit.golden import VECTORS, XF1, XF2, chain

R2 = 2**0.5

# ------------------------------------------------------------------------------------ reference values


def check_reference(kernel: Callable[..., Any], x2: Any, values: Sequence[float]) -> None:
    k, t = kernel(XF1) if x2 is None else kernel(XF1, x2)
    np.testing.assert_allclose([k[0, 0], k.sum(), t[0, 0], t.sum()], values, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", [n for n in VECTORS if "standard" not in n])
def test_reference(name: str) -> None:
    spec, values = VECTORS[name]
    check_reference(an.kernel(spec).both, None if "one set" in name else XF2, values)


def test_reference_in_standard_parametrization() -> None:
    """In the standard parametrization, the NTK grows with the fan-in."""
    spec, values = VECTORS["relu, standard parametrization"]
    check_reference(an.kernel(spec, mn.Standard()).both, XF2, values)
    with pytest.raises(AssertionError):
        check_reference(an.kernel(spec).both, XF2, values)


# -------------------------------------------------------------------------------------------- the laws


def smooth_or_kinked() -> st.SearchStrategy[mn.spec.Layer]:
    closed = [
        mn.ReLU(),
        mn.LeakyReLU(0.2),
        mn.Abs(),
        mn.Erf(),
        mn.GELU(),
        mn.Sin(),
        mn.Identity(),
        mn.Tanh(),
        mn.Sigmoid(),
    ]
    return st.sampled_from(closed)


@st.composite
def random_specs(draw: st.DrawFn) -> mn.Sequential:
    """Draw a chain of layers with branches and both bias initialisations. Widths are equal, as sums require."""

    def dense() -> mn.Dense:
        return mn.Dense(
            5,
            w_std=draw(st.sampled_from([0.7, 1.0, 1.3])),
            b_std=draw(st.sampled_from([0.0, 0.3])),
            b_init=draw(st.sampled_from(["normal", "zeros"])),
        )

    layers: list[mn.spec.Layer] = [dense()]
    for _ in range(draw(st.integers(0, 3))):
        phi = draw(smooth_or_kinked())
        block = mn.Sequential(phi, dense())
        residual, joined = (mn.Residual(block), mn.Residual(block, dense())), (mn.Product, mn.Concat)
        gates = (mn.Sequential(kind(block, mn.Scale(-0.5), dense()), dense()) for kind in joined)
        layers.append(draw(st.sampled_from([block, *residual, mn.Sum(block, dense(), mn.Identity()), *gates])))
    return mn.Sequential(*layers)


@st.composite
def rows(draw: st.DrawFn) -> Any:
    n, d = draw(st.integers(1, 7)), draw(st.integers(1, 4))
    x = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).uniform(-1.3, 1.3, size=(n, d))
    if n > 2 and draw(st.booleans()):
        x[1] = x[0] * draw(st.sampled_from([1.0, -1.0, 0.1, 0.0, 1 + 1e-9]))
    return x


def check_gram(kernel: an.Kernel, x: Any) -> None:
    """Check that Gram matrices are symmetric and PSD, have the diagonal `diag`, and equal `nngp` and `ntk`."""
    both, diag = kernel.both(x), kernel.diag(x)
    for k, d, alone in zip(both, diag, (kernel.nngp(x), kernel.ntk(x))):
        assert k.shape == (len(x), len(x))
        np.testing.assert_array_equal(k, k.T)
        np.testing.assert_array_equal(np.diagonal(k), d)
        np.testing.assert_array_equal(k, alone)
        scale = max(1e-300, float(d.max()))
        assert np.linalg.eigvalsh(k).min() > -1e-13 * len(x) * scale
        assert (np.abs(k) <= np.sqrt(np.outer(d, d)) * (1 + 1e-12) + 1e-300).all()


@given(random_specs(), rows())
def test_gram_matrices(spec: mn.Sequential, x: Any) -> None:
    check_gram(an.kernel(spec), x)


@given(random_specs(), rows(), st.sampled_from([mn.NTK(), mn.Standard(), mn.PyTorch()]))
def test_two_sets_are_blocks_of_one(spec: mn.Sequential, x: Any, parametrization: Any) -> None:
    kernel = an.kernel(spec, parametrization)
    cut = len(x) // 2
    for whole, block, d in zip(kernel.both(x), kernel.both(x[:cut], x[cut:]), kernel.diag(x)):
        assert block.shape == (cut, len(x) - cut)
        np.testing.assert_allclose(block, whole[:cut, cut:], rtol=0, atol=1e-12 * d.max())


@given(random_specs(), rows(), st.integers(0, 2**32 - 1))
def test_rotations_and_permutations(spec: mn.Sequential, x: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    turn, order = np.linalg.qr(rng.normal(size=(x.shape[1],) * 2))[0], rng.permutation(len(x))
    kernel = an.kernel(spec)
    for k, turned, moved, d in zip(kernel.both(x), kernel.both(x @ turn), kernel.both(x[order]), kernel.diag(x)):
        np.testing.assert_allclose(turned, k, rtol=0, atol=1e-11 * d.max())
        np.testing.assert_allclose(moved, k[np.ix_(order, order)], rtol=0, atol=1e-12 * d.max())


@given(random_specs(), rows())
def test_float32(spec: mn.Sequential, x: Any) -> None:
    kernel, short = an.kernel(spec), x.astype(np.float32)
    for k, exact, d in zip(kernel.both(short), kernel.both(short.astype(np.float64)), kernel.diag(short)):
        assert k.dtype == d.dtype == np.float32
        scale = np.sqrt(np.outer(np.diagonal(exact), np.diagonal(exact)))
        assert (np.abs(k - exact) <= 2e-6 * scale + 1e-30).all()


def check_composition(kernel: Callable[[mn.Sequential], Any]) -> None:
    """Check that the scales of adjacent Dense layers multiply: K = (w_2 w_1)^2 K_0 and Theta = 2 K."""
    k, t = kernel(mn.Sequential(mn.Dense(5, w_std=1.5), mn.Identity(), mn.Dense(5, w_std=0.5)))
    np.testing.assert_allclose(k, 0.5625 * XF1 @ XF1.T / 4, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(t, 2 * k, rtol=1e-13, atol=1e-15)


def test_deep_linear_networks() -> None:
    check_composition(lambda spec: an.kernel(spec).both(XF1))
    with pytest.raises(AssertionError):
        check_composition(lambda spec: (an.kernel(spec).nngp(XF1), an.kernel(spec).nngp(XF1)))


def test_residual_networks_by_hand() -> None:
    """Compare kernels of a residual network with formulas written out by hand."""
    spec = mn.Sequential(
        mn.Dense(5, w_std=1.1),
        mn.Residual(mn.Sequential(mn.ReLU(), mn.Dense(5, w_std=1.3, b_std=0.2))),
        mn.Erf(),
        mn.Dense(2),
    )
    x = XF1
    k = 1.1**2 * x @ x.T / 4
    t = k.copy()
    q = np.sqrt(np.outer(k.diagonal(), k.diagonal()))
    a = np.arccos(np.clip(k / q, -1, 1))
    relu, step = q * (np.sin(a) + (np.pi - a) * np.cos(a)) / (2 * np.pi), (np.pi - a) / (2 * np.pi)
    branch = 1.3**2 * relu + 0.04
    k, t = k + branch, t + branch + 1.3**2 * t * step
    prod = np.outer(1 + 2 * k.diagonal(), 1 + 2 * k.diagonal())
    erf, step = 2 / np.pi * np.arcsin(2 * k / np.sqrt(prod)), 4 / np.pi / np.sqrt(prod - 4 * k * k)
    k, t = erf, erf + t * step
    got = an.kernel(spec).both(x)
    np.testing.assert_allclose(got.nngp, k, atol=1e-8)  # the formulas above give 8 digits on the diagonal
    np.testing.assert_allclose(got.ntk, t, atol=1e-7)
    off = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(got.nngp[off], k[off], atol=1e-13)
    np.testing.assert_allclose(got.ntk[off], t[off], atol=1e-13)


def test_widths_do_not_matter_but_to_the_standard_parametrization() -> None:
    def spec(width: int) -> mn.Sequential:
        return mn.Sequential(mn.Dense(width), mn.ReLU(), mn.Dense(1))

    np.testing.assert_allclose(an.kernel(spec(8)).ntk(XF1), an.kernel(spec(800)).ntk(XF1), rtol=1e-14)
    standard = [an.kernel(spec(w), mn.Standard()).both(XF1) for w in (8, 800)]
    np.testing.assert_allclose(standard[0].nngp, standard[1].nngp)
    assert standard[1].ntk.mean() > 20 * standard[0].ntk.mean()


def test_images() -> None:
    x = np.random.default_rng(0).normal(size=(3, 4, 5, 2))
    spec = mn.Sequential(mn.Flatten(), mn.Dense(3), mn.ReLU(), mn.Dense(1))
    np.testing.assert_array_equal(an.kernel(spec).ntk(x), an.kernel(spec).ntk(x.reshape(3, 40)))
    assert an.kernel(spec).diag(x).ntk.shape == (3,)


def test_no_layers_and_no_rows() -> None:
    nngp, ntk = an.kernel(mn.Sequential()).both(XF1)
    np.testing.assert_allclose(nngp, XF1 @ XF1.T / 4, atol=1e-15)
    np.testing.assert_array_equal(ntk, np.zeros((3, 3)))
    kernel = an.kernel(chain(mn.Erf(), w_std=1.0))
    assert kernel.ntk(XF1[:0]).shape == (0, 0)
    assert kernel.ntk(XF1, XF1[:0]).shape == (3, 0)
    assert kernel.diag(XF1[:0]).nngp.shape == (0,)
    assert kernel.error(XF1[:0]) == 0


def test_kernels_are_values() -> None:
    kernel = an.kernel(chain(mn.ReLU(), w_std=1.0))
    assert pickle.loads(pickle.dumps(kernel)) == kernel  # noqa: S301
    assert "ReLU" in repr(kernel)
    assert isinstance(kernel.both(XF1), an.Both)


# ------------------------------------------------------------------------------------------- meanings


def test_a_layer_without_a_rule_is_refused() -> None:
    class Strange(specs.Layer):
        pass

    with pytest.raises(mn.UnsupportedLayer, match=r"Strange has no infinite-width kernel: register analytic\.lower"):
        an.lower(Strange(), mn.spec.shapes.Site((4,)), mn.NTK())


D = mn.Dense(4)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (mn.Sequential(mn.ReLU(), D), "ReLU acts on values that are not Gaussian"),
        (mn.Sequential(D, mn.ReLU(), mn.Erf(), D), "Erf acts on values that are not Gaussian"),
        (mn.Sequential(D, mn.Tanh(), mn.Tanh(), D), "Tanh acts on"),
        (mn.Sequential(D, mn.Residual(mn.Identity())), "two parts that are correlated"),
        (mn.Sequential(D, mn.Residual(mn.Sequential(D, mn.ReLU())), D), "two parts that are correlated"),
        (mn.Sequential(D, mn.Residual(mn.ReLU()), D), "two parts that are correlated"),
        (mn.Sequential(D, mn.Residual(mn.Residual(mn.Identity(), mn.Identity()), D)), "two parts that are correlated"),
        (mn.Sequential(D, mn.ReLU(), mn.Residual(D), mn.ReLU(), D), "ReLU acts on values that are not Gaussian"),
        (mn.Sequential(D, mn.Residual(mn.Sequential(D, mn.Residual(mn.Identity())))), "two parts that are correlated"),
    ],
)
def test_limits_that_are_another(spec: Any, message: str) -> None:
    """Check that networks for which the recursion would give a wrong limit are rejected when the kernel is built."""
    with pytest.raises(mn.UnsupportedLayer, match=message):
        an.kernel(spec)


def test_limits_that_hold() -> None:
    for spec in (
        mn.Sequential(D, mn.Identity(), mn.ReLU(), D),
        mn.Sequential(D, mn.Residual(mn.Sequential(mn.ReLU(), D)), mn.ReLU(), D),
        mn.Sequential(D, mn.ReLU(), mn.Residual(D), D),
        mn.Residual(D),
        mn.Sequential(D, mn.Residual(mn.Sequential(D, mn.Residual(D))), mn.Erf(), D),
    ):
        assert np.isfinite(an.kernel(spec).ntk(XF1)).all()


# ------------------------------------------------------------------------------------------ bad input


def test_bad_input() -> None:
    kernel = an.kernel(chain(mn.ReLU(), w_std=1.0))
    with pytest.raises(TypeError, match="expected a spec"):
        an.kernel("relu")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="x1 expects float32 or float64, got int64"):
        kernel.ntk(np.ones((2, 3), int))
    with pytest.raises(ValueError, match=r"x1 expects shape \(N, d\), got \(3,\)"):
        kernel.ntk(np.ones(3))
    with pytest.raises(ValueError, match=r"x2 expects shape \(N, 3\), got \(2, 4\)"):
        kernel.ntk(np.ones((2, 3)), np.ones((2, 4)))
    with pytest.raises(TypeError, match="x1 and x2 expect one precision, got float64 and float32"):
        kernel.ntk(np.ones((2, 3)), np.ones((2, 3), np.float32))
    with pytest.raises(ValueError, match="x1 holds 1 values that are NaN or infinite"):
        kernel.both(np.array([[1.0, np.nan]]))
    with pytest.raises(ValueError, match="x2 holds 1 values that are NaN or infinite"):
        kernel.both(np.ones((1, 2)), np.array([[1.0, np.inf]]))
    for other in ([[1.0, 2.0, 3.0]], 3.0, True):
        with pytest.raises(TypeError, match="arrays of one library"):
            kernel.ntk(np.ones((2, 3)), other)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"x2 expects shape \(N, 3\), got \(\)"):
        kernel.ntk(np.ones((2, 3)), np.array(1.0))
    with pytest.raises(TypeError, match=r"x2 expects an array, got a numpy.matrix: convert it, numpy.asarray\(x2\)"):
        kernel.ntk(np.ones((2, 3)), np.ones((2, 3)).view(np.matrix))
    with pytest.raises(ValueError, match=r"put mn.Flatten\(\) before it"):
        kernel.ntk(np.ones((2, 3, 3, 1)))
    with pytest.raises(ValueError, match=r"out expects shape \(2, 2\) and float64, got \(3, 2\) and float64"):
        kernel.ntk(np.ones((2, 3)), out=np.empty((3, 2)))
    one = np.empty((2, 2))
    with pytest.raises(ValueError, match="out expects an array for each kernel"):
        kernel.both(np.ones((2, 3)), out=(one, one))
    with pytest.raises(ValueError, match=r"out expects shape .* got .* float32"):
        kernel.ntk(np.ones((2, 3)), out=np.empty((2, 2), np.float32))
    with pytest.raises(ValueError, match=r"x expects shape \(N, d\), got \(3,\)"):
        kernel.diag(np.ones(3))
