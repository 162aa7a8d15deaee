"""Test the finite network: values against an independent implementation, shapes, and errors for invalid input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

import minintk as mn
from tests.kit.golden import NETWORK
from tests.kit.strategies import Case, cases


def reference() -> tuple[mn.Network, mn.Array, mn.Array]:
    """Return (network, theta, x) for Dense(5, w_std=1.5, b_std=0.1), Erf, Dense(2, w_std=1.2, b_std=0.05).

    The entries of theta are sines and cosines of whole numbers.
    """
    spec = mn.Sequential(mn.Dense(5, w_std=1.5, b_std=0.1), mn.Erf(), mn.Dense(2, w_std=1.2, b_std=0.05))
    net = mn.Network(spec, (4,))
    theta = net.layout.pack(
        {
            "0.W": np.sin(np.arange(20.0)).reshape(4, 5),
            "0.b": np.cos(np.arange(5.0)),
            "2.W": np.cos(np.arange(10.0)).reshape(5, 2),
            "2.b": np.sin(np.arange(2.0)),
        }
    )
    return net, theta, np.cos(np.arange(12.0)).reshape(3, 4)


def test_reference_values() -> None:
    """Outputs and kernels equal those of neural-tangents 0.6.5 in float64 to 1e-9."""
    net, theta, x = reference()
    full = mn.ntk_full(net, theta, x)
    kernel = mn.ntk(net, theta, x)
    moved = theta + 0.1
    for name, got in (
        ("f", net(theta, x).sum()),
        ("ntk[0, 0]", kernel[0, 0]),
        ("ntk", kernel.sum()),
        ("full[0, 0, 0, 0]", full[0, 0, 0, 0]),
        ("full", full.sum()),
        ("nngp", mn.nngp(net, theta, x).sum()),
        ("linearised, moved", mn.Linearized(net, theta)(moved, x).sum()),
        ("f, moved", net(moved, x).sum()),
    ):
        assert got == pytest.approx(NETWORK[name], abs=1e-9)


@given(cases())
def test_shapes(case: Case) -> None:
    lead, N, C, P = case.theta.shape[:-1], len(case.x), case.net.outputs, case.net.size
    f, J = case.net.linearize(case.theta, case.x)
    assert np.array_equal(f, case.net(case.theta, case.x))
    assert f.shape == (*lead, N, C)
    assert (J.size, J.outputs, J.lead) == (P, (N, C), lead)
    assert J.dense().shape == (*lead, N, C, P)
    assert J.gram().shape == (*lead, N, C, N, C)
    assert J.trace_gram().shape == (*lead, N, N)
    assert case.net.footprint[0] >= case.net.footprint[1] >= C


@given(cases())
def test_nothing_writes_to_the_callers_arrays(case: Case) -> None:
    theta, x = case.theta.copy(), case.x.copy()
    for a in (theta, x):
        a.setflags(write=False)
    f, J = case.net.linearize(theta, x)
    u, v = np.ones_like(f), np.ones_like(theta)
    u.setflags(write=False)
    v.setflags(write=False)
    J.jvp(v), J.vjp(u), J.gram(), J.trace_gram()
    mn.ntk(case.net, theta, x)


@given(cases())
def test_the_layout_of_memory_does_not_matter(case: Case) -> None:
    """Fortran order and strides of arrays change results only by rounding errors."""
    strided = np.repeat(case.theta, 2, axis=-1)[..., ::2]
    x = np.asfortranarray(case.x)
    f = case.net(case.theta, case.x)
    np.testing.assert_allclose(case.net(strided, x), f, rtol=1e-9, atol=1e-12 * (1 + np.abs(f).max()))


def test_a_network_without_weights() -> None:
    net, x = mn.Network(mn.Sequential(mn.Flatten(), mn.Tanh()), (2, 2)), np.ones((3, 2, 2))
    theta = net.init(np.random.default_rng(0))
    assert net.size == 0
    f, J = net.linearize(theta, x)
    assert np.array_equal(f, np.tanh(np.ones((3, 4))))
    assert np.array_equal(J.gram(), np.zeros((3, 4, 3, 4)))
    assert np.array_equal(J.jvp(theta), np.zeros((3, 4)))
    assert net(np.empty((2, 0)), x).shape == (2, 3, 4)


# --------------------------------------------------------------------------------------- bad input


NET = mn.Network(mn.Sequential(mn.Dense(4, b_std=0.1), mn.ReLU(), mn.Dense(2)), (3,))
THETA = NET.init(np.random.default_rng(0))
X = np.random.default_rng(1).standard_normal((5, 3))
DOUBLE = np.ones((5, 3))


@pytest.mark.parametrize(
    ("theta", "x", "error", "words"),
    [
        (THETA.astype(int), X, TypeError, r"theta expects float32 or float64, got int64: convert it, theta\.astype"),
        (THETA.astype(complex), X, TypeError, r"theta expects float32 or float64, got complex128"),
        (THETA.astype(np.float16), X, TypeError, r"theta expects float32 or float64, got float16"),
        (THETA, X.astype(int), TypeError, r"x expects float32 or float64, got int64: convert it, x\.astype"),
        (THETA, X.astype(np.float32), TypeError, r"one dtype, got float64 and float32: x\.astype\(theta\.dtype\)"),
        (THETA[:-1], X, ValueError, r"theta expects shape \(24,\) or \(E, 24\), got \(23,\)"),
        (THETA.reshape(2, 3, 4), X, ValueError, r"theta expects shape .* got \(2, 3, 4\)"),
        (THETA, X[:, :2], ValueError, r"x expects shape \(N, 3\), got \(5, 2\)"),
        (THETA, X[0], ValueError, r"x expects shape \(N, 3\), got \(3,\): a single example needs .* x\[None\]"),
        (THETA, X.reshape(5, 3, 1), ValueError, r"x expects shape \(N, 3\), got \(5, 3, 1\)"),
        (
            THETA,
            X.tolist(),
            TypeError,
            r"x: expected arrays of one library.*got builtins\.list: move them",
        ),
        (None, X, TypeError, r"theta: expected arrays of one library.*NoneType"),
        (np.float64(3.0), X, ValueError, r"theta expects shape .* got \(\)"),
        (3.0, X, TypeError, r"theta: expected arrays of one library.*builtins\.float"),
        (THETA, 3.0, TypeError, r"x: expected arrays of one library.*builtins\.float"),
        (THETA, X.view(np.matrix), TypeError, r"x expects an array, got a numpy\.matrix: convert it, numpy\.asarray"),
        (THETA.view(np.matrix), X, TypeError, r"theta expects an array, got a numpy\.matrix"),
        (np.ma.masked_array(THETA), X, TypeError, r"theta expects numbers without a mask"),
        (THETA, np.ma.masked_array(X), TypeError, r"x expects numbers without a mask"),
    ],
)
def test_theta_and_x_that_do_not_fit(theta: Any, x: Any, error: type[Exception], words: str) -> None:
    for call in (NET, NET.linearize, lambda *a: mn.ntk(NET, *a), mn.Linearized(NET, THETA)):
        with pytest.raises(error, match=words):
            call(theta, x)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_data_that_are_not_finite_are_named_with_their_place(bad: float) -> None:
    x = X.copy()
    x[3, 1] = bad
    with pytest.raises(
        ValueError, match=r"x holds 1 values that are NaN or infinite, the first at index \(3, 1\): clean"
    ):
        NET(THETA, x)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("activation", [mn.ReLU(), mn.Tanh(), mn.Erf()], ids=repr)
def test_a_theta_that_is_not_finite_is_named_with_its_place(bad: float, activation: Any) -> None:
    """A theta that is not finite raises an error. If only the outputs overflow, NumPy warns."""
    net = mn.Network(mn.Sequential(mn.Dense(4, b_std=1.0), activation, mn.Dense(2)), (3,))
    theta = net.init(np.random.default_rng(0), ensemble=2)
    theta[1, -1], zero = bad, np.zeros_like(theta)
    models: list[mn.Model] = [net, mn.Linearized(net, zero), mn.Centred(net, zero, 2.0), mn.Taylor(net, zero, 2)]
    calls: list[Any] = [*models, *(each.linearize for each in models), lambda theta, x: net.linearize(theta, x, "x")]
    with np.errstate(invalid="ignore"):  # inf - inf
        for call in calls:
            with pytest.raises(ValueError, match=r"theta holds 1 values that are NaN or infinite.*\(1, 23\): clean"):
                call(theta, X)
    with np.errstate(over="ignore"):
        assert np.isinf(mn.Network(mn.Dense(1), (3,))(np.full(3, 1e308), 10 * np.ones((1, 3)))).all()


def test_a_large_sum_is_no_infinity() -> None:
    x = np.full((8, 3), 3e38, np.float32)
    theta = np.zeros(NET.size, np.float32)
    assert np.array_equal(NET(theta, x), np.zeros((8, 2)))


@pytest.mark.parametrize("ensemble", [None, 3])
@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        (mn.Sequential(mn.Dense(4), mn.Residual(mn.Sequential(mn.ReLU(), mn.Dense(4))), mn.Dense(2)), (3,)),
        (mn.Sequential(mn.Conv2d(3), mn.ReLU(), mn.AvgPool(2), mn.Flatten(), mn.Dense(2)), (4, 4, 1)),
        (mn.Sequential(mn.Flatten(), mn.Tanh(), mn.Dense(2)), (2, 2)),
    ],
    ids=["vectors", "images", "no weights first"],
)
def test_what_each_layer_gives(spec: mn.Sequential, shape: tuple[int, ...], ensemble: int | None) -> None:
    """`layer_outputs` returns one array per layer, equal to the output of a network that ends with this layer."""
    net = mn.Network(spec, shape)
    rng = np.random.default_rng(0)
    theta, x = net.init(rng, ensemble=ensemble), rng.standard_normal((5, *shape))
    outputs = net.layer_outputs(theta, x)
    assert len(outputs) == len(spec.layers)
    np.testing.assert_allclose(outputs[-1], net(theta, x), rtol=1e-13, atol=1e-14)
    for count in range(1, len(outputs)):
        part = mn.Network(mn.Sequential(*spec.layers[:count], mn.Flatten()), shape)
        want = part(theta[..., : part.size], x)
        np.testing.assert_allclose(outputs[count - 1].reshape(want.shape), want, rtol=1e-13, atol=1e-14)


def test_bad_networks() -> None:
    with pytest.raises(ValueError, match=r"input_shape expects the shape of one example, x\.shape\[1:\], got 3"):
        mn.Network(mn.Dense(1), 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"input_shape expects .* got \(0,\)"):
        mn.Network(mn.Dense(1), (0,))
    with pytest.raises(ValueError, match=r"outputs must be a vector, got shape \(4, 4\): end with mn\.Flatten\(\)"):
        mn.Network(mn.ReLU(), (4, 4))
    with pytest.raises(TypeError, match="expected a spec such as"):
        mn.Network("relu", (3,))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [0, None, np.random.RandomState(0)])
def test_init_wants_a_generator(seed: Any) -> None:
    with pytest.raises(
        TypeError, match=r"init expects a numpy\.random\.Generator, numpy\.random\.default_rng\(0\), got"
    ):
        NET.init(seed)


@pytest.mark.parametrize("ensemble", [0, -1, 2.5, True])
def test_ensemble_is_a_whole_number(ensemble: Any) -> None:
    with pytest.raises(ValueError, match="ensemble expects a whole number >= 1, got"):
        NET.init(np.random.default_rng(0), ensemble=ensemble)


@pytest.mark.parametrize("dtype", [np.float16, int, complex])
def test_dtype_is_a_real_one(dtype: Any) -> None:
    with pytest.raises(TypeError, match="dtype expects float32 or float64, got"):
        NET.init(np.random.default_rng(0), dtype=dtype)


def test_networks_beyond_the_memory_are_refused_before_they_are_drawn() -> None:
    net = mn.Network(mn.zoo.mlp(1, 64, 1), (8,))
    with pytest.raises(MemoryError, match=r"1000000000 theta of 641 parameters need 5\.13e\+03 GB, .* draw fewer"):
        net.init(np.random.default_rng(0), ensemble=10**9)
