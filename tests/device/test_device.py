"""Compare finite networks on every array library with NumPy: the values, dtypes and libraries of the results."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import inf, prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import minintk as mn
from minintk import testing
from minintk.arrays import Array, array_namespace, library, matmul_into, on_host, to_host, to_library
from minintk.diagnostics import kernel_movement, weight_movement
from minintk.models.model import Model
from minintk.thresholds import THRESHOLDS
from tests.kit.arrays_under_test import LIBRARIES, namespace
from tests.kit.standin import counting
from tests.kit.strategies import Case, cases, convolutional
from tests.kit.thinned import few, thinned

DTYPES = ("float64", "float32")
SPEC = mn.Sequential(
    mn.Flatten(),
    mn.Dense(9, w_std=1.3, b_std=0.2),
    mn.ReLU(),
    mn.Residual(mn.Sequential(mn.Dense(9, b_std=0.3, b_init="zeros"), mn.GELU(), mn.Dense(9))),
    mn.Tanh(),
    mn.Dense(3, b_std=0.1),
)
SHAPE, N, M, E = (2, 3, 1), 6, 4, 3
ACTIVATIONS = [
    mn.Identity(), mn.ReLU(), mn.LeakyReLU(0.2), mn.Abs(), mn.Erf(), mn.GELU(), mn.Sin(), mn.Tanh(), mn.Sigmoid(),
    mn.Softplus(5.0, 1.4), mn.Cos(1.3, 0.8, 0.2), mn.Exp(0.7, 0.5), mn.Gaussian(), mn.RectifiedMonomial(2),
    mn.Polynomial((0.3, -0.8, 0.2)), mn.Hermite(4), mn.Swish(1.5), mn.ABRelu(-0.4, 0.8),
]  # fmt: skip

To = Callable[[np.ndarray[Any, Any]], Array]
"""A function that moves an array to the library under test, in the dtype under test."""


@pytest.fixture(params=LIBRARIES)
def xp(request: pytest.FixtureRequest) -> Any:
    return namespace(request.param)


@pytest.fixture(params=DTYPES)
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def agree(xp: Any, dtype: str, compute: Callable[[To], Any], digits_lost: float = 2.0) -> None:
    """Check that compute(to) on the library agrees with NumPy to 10^digits_lost eps of the largest entry.

    The results must be Python floats, or arrays of the given library and dtype.
    """

    def on(namespace: Any) -> Any:
        return compute(lambda a: to_library(a.astype(dtype), namespace))

    _same(on(xp), on(array_namespace(np.ones(1))), xp, dtype, 10**digits_lost * float(np.finfo(dtype).eps))


def _same(a: Any, b: Any, xp: Any, dtype: str, tolerance: float) -> None:
    if isinstance(b, (tuple, list)):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            _same(one, other, xp, dtype, tolerance)
        return
    if type(b) is float:
        assert type(a) is float
    else:
        assert array_namespace(a) is xp, f"expected an array of {xp.__name__}, got {type(a)}"
        assert a.dtype == b.dtype == np.dtype(dtype)
        assert tuple(a.shape) == tuple(b.shape)
        a = to_host(a)
    assert np.all(np.isfinite(b))
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * float(np.max(np.abs(b), initial=1e-300)))


WRONG: dict[str, Callable[[Array], Any]] = {
    "an array that ended on the host": to_host,
    "float64 from float32": lambda a: array_namespace(a).astype(a, "float64"),
    "off by 1e-4": lambda a: a if on_host(array_namespace(a)) else a * (1 + 1e-4),
    "another shape": lambda a: a if on_host(array_namespace(a)) else a[None],
    "NaN": lambda a: a * float("nan"),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("library", [name for name in LIBRARIES if name != "numpy"])
def test_agree_tells_wrong_from_right(library: str, wrong: str) -> None:
    """`agree` fails on each wrong result. The wrong results are negative controls for the tests below."""
    x = np.arange(1.0, 5.0)
    agree(namespace(library), "float32", lambda to: to(x) * 2)
    with pytest.raises(AssertionError):
        agree(namespace(library), "float32", lambda to: WRONG[wrong](to(x) * 2))


def data(spec: mn.spec.Layer = SPEC, shape: tuple[int, ...] = SHAPE, ensemble: int | None = None) -> Any:
    """Return a network, theta, inputs x and x2, and one-hot targets y, all on the host."""
    rng = np.random.default_rng(0)
    net = mn.Network(spec, shape)
    theta = net.init(rng, ensemble=ensemble)
    x, x2 = rng.standard_normal((N, *shape)), rng.standard_normal((M, *shape))
    y = np.eye(net.outputs)[rng.integers(0, net.outputs, N)]
    return net, theta, x, x2, y


# ---------------------------------------------------------------------------------------- finite side


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda a: type(a).__name__)
def test_activations(xp: Any, dtype: str, activation: mn.spec.Activation) -> None:
    net, theta, x, _, _ = data(mn.Sequential(mn.Dense(8, b_std=0.5), activation, mn.Dense(2)), (5,))

    def compute(to: To) -> Any:
        f, J = net.linearize(to(theta), to(x))
        return f, J.vjp(f), J.jvp(to(theta) + 1), J.trace_gram()

    agree(xp, dtype, compute)


@pytest.mark.parametrize("masked", [False, True])
def test_attention(xp: Any, dtype: str, masked: bool) -> None:
    layer = mn.GlobalSelfAttention(4, heads=2, scaling="sqrt", zeta=mn.Erf() if masked else "softmax", masked=masked)
    end = mn.MaskedAvgPool() if masked else mn.Flatten()
    net, theta, x, _, _ = data(mn.Sequential(mn.Conv1d(4, 1), layer, end, mn.Dense(2)), (5, 3), ensemble=E)
    x[0, 3:] = 0

    def compute(to: To) -> Any:
        f, J = net.linearize(to(theta), to(x))
        return f, J.vjp(f), J.jvp(to(theta) + 1), J.trace_gram()

    agree(xp, dtype, compute)


def test_branches_and_masks(xp: Any, dtype: str) -> None:
    gate = mn.Product(mn.Dense(6, b_std=0.3), mn.Sequential(mn.Dense(6), mn.Sigmoid()), mn.Scale(0.5))
    joined = mn.Concat(mn.Sum(mn.Dense(3), mn.Dense(3, b_std=0.2), mn.Dense(3)), mn.Dropout(0.4), mn.Tanh())
    net, theta, x, _, _ = data(mn.Sequential(mn.Dense(6), gate, joined, mn.Dense(2)), (5,), ensemble=E)
    masked = net.with_dropout(np.random.default_rng(0), ensemble=E)

    def compute(to: To) -> Any:
        f, J = net.linearize(to(theta), to(x))
        g, K = masked.advance(to(theta)).linearize(to(theta), to(x))
        return f, J.vjp(f), J.jvp(to(theta) + 1), J.trace_gram(), g, K.vjp(g), K.jvp(to(theta) + 1)

    agree(xp, dtype, compute)


@pytest.mark.parametrize("parametrization", [mn.NTK(), mn.Standard(), mn.PyTorch()], ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("ensemble", [None, E])
def test_jacobian(xp: Any, dtype: str, ensemble: int | None, parametrization: Any) -> None:
    _, _, x, x2, _ = data()
    net = mn.Network(SPEC, SHAPE, parametrization)
    theta = net.init(np.random.default_rng(1), ensemble=ensemble)
    rng = np.random.default_rng(2)
    lead = () if ensemble is None else (ensemble,)
    v, V = (rng.standard_normal((*k, *lead, net.size)) for k in ((), (2,)))
    u, U = (rng.standard_normal((*k, *lead, N, net.outputs)) for k in ((), (2,)))

    def compute(to: To) -> Any:
        t = to(theta)
        f, J = net.linearize(t, to(x))
        _, J2 = net.linearize(t, to(x2))
        maps = J.jvp(to(v)), J.jvp(to(V)), J.vjp(to(u)), J.vjp(to(U))
        return f, net(t, to(x)), maps, J.dense(), J.gram(), J.gram(J2), J.trace_gram(), J.trace_gram(J2)

    agree(xp, dtype, compute)


MODELS: dict[str, Callable[[Model, Array], Model]] = {
    "Network": lambda net, theta0: net,
    "Linearized": mn.Linearized,
    "Centred": lambda net, theta0: mn.Centred(net, theta0, 3.0),
    "IterativelyLinearized": lambda net, theta0: mn.IterativelyLinearized(net, theta0, 2),
    "IterativelyLinearized by a schedule": lambda net, theta0: mn.IterativelyLinearized(net, theta0, (1, 3)),
    "Taylor": lambda net, theta0: mn.Taylor(net, theta0, 2),
    "Taylor of Centred": lambda net, theta0: mn.Taylor(mn.Centred(net, theta0, 3.0), theta0, 3),
    "Centred of Linearized": lambda net, theta0: mn.Centred(mn.Linearized(net, theta0), theta0, 3.0),
}
LOSSES = mn.mse, mn.softmax_cross_entropy


@pytest.mark.parametrize(
    ("model", "ensemble", "loss", "batch_size"), thinned(product(MODELS, (None, E), LOSSES, (None, 4)))
)
def test_training(
    xp: Any, dtype: str, model: str, ensemble: int | None, loss: mn.training.losses.Loss, batch_size: int | None
) -> None:
    net, theta, x, _, y = data(ensemble=ensemble)
    optimizer = mn.SGD(lr=0.02, momentum=0.5, weight_decay=0.01)

    def compute(to: To) -> Any:
        theta0 = to(theta)
        snaps = mn.train(
            MODELS[model](net, theta0), theta0 * 1.01, to(x), to(y), loss=loss, optimizer=optimizer, steps=5,
            batch_size=batch_size, rng=np.random.default_rng(3), every=2, lr_scales={"1.b": 0.3, "5.W": 0.0},
        )  # fmt: skip
        return [(snap.theta, snap.loss, snap.f) for snap in snaps]

    agree(xp, dtype, compute, digits_lost=3.0)


@pytest.mark.parametrize("ensemble", [None, E])
@pytest.mark.parametrize("model", MODELS)
def test_empirical_kernels(xp: Any, dtype: str, model: str, ensemble: int | None) -> None:
    net, theta, x, x2, _ = data(ensemble=ensemble)

    def compute(to: To) -> Any:
        t, a, b = to(theta), to(x), to(x2)
        f = MODELS[model](net, t * 0.9)
        scales = {f.layout.tensors[0].name: 0.0, f.layout.tensors[-1].name: 3.0}
        scaled = mn.ntk(f, t, a, b, scales=scales), mn.ntk_full(f, t, a, scales=scales)
        kernels = mn.ntk(f, t, a), mn.ntk(f, t, a, b), mn.ntk_full(f, t, a), mn.ntk_full(f, t, a, b)
        return kernels, scaled, mn.nngp(f, t, a, b)

    agree(xp, dtype, compute)


@pytest.mark.parametrize("ensemble", [None, E])
def test_empirical_kernels_by_blocks(xp: Any, dtype: str, ensemble: int | None) -> None:
    """Kernels computed in blocks, because of a memory limit, equal those computed at once. Both equal NumPy's."""
    net, theta, x, x2, _ = data(ensemble=ensemble)
    item, members = np.dtype(dtype).itemsize, ensemble or 1
    layers, widest = net.footprint
    two = 2 * 2 * item * members * (layers + 4 * net.outputs * widest) + 3 * item * members * (2 * net.outputs) ** 2
    memory = two + item * members * (N * net.outputs) ** 2

    def compute(to: To) -> Any:
        t, a, b = to(theta), to(x), to(x2)
        whole = mn.ntk_full(net, t, a)
        blocks = [mn.ntk_full(net, t, a, memory=memory), mn.ntk_full(net, t, a, b, memory=memory)]
        rtol = 1e-4 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(to_host(blocks[0]), to_host(whole), rtol, rtol * float(abs(to_host(whole)).max()))
        return whole, blocks, mn.ntk(net, t, a, memory=memory), mn.ntk(net, t, a, b, memory=memory)

    agree(xp, dtype, compute)


@pytest.mark.parametrize("ensemble", [None, E])
def test_diagnostics(xp: Any, dtype: str, ensemble: int | None) -> None:
    net, theta, x, _, _ = data(ensemble=ensemble)
    moved = theta + 0.1 * np.random.default_rng(5).standard_normal(theta.shape)

    def compute(to: To) -> Any:
        a, b = to(theta), to(moved)
        movement = weight_movement(net, a, b)
        assert bool(np.all(np.isinf(to_host(movement.pop("3.branch.0.b")))))  # these weights started at zero
        return kernel_movement(net, a, b, to(x)), list(movement.values())

    agree(xp, dtype, compute, digits_lost=3.0)


def test_layout(xp: Any) -> None:
    """Writing to the views from unpack changes an ensemble's theta, and pack is the inverse of unpack."""
    net, theta, *_ = data(ensemble=E)
    t = to_library(theta, xp)
    views = net.layout.unpack(t)
    assert bool(xp.all(net.layout.pack(views) == t))
    for view in views.values():
        view[...] = 7.0
    assert bool(xp.all(t == 7.0))


def test_train_leaves_the_callers_arrays_alone(xp: Any) -> None:
    net, theta, x, _, y = data(ensemble=E)
    t, a, b = (to_library(array, xp) for array in (theta, x, y))
    snaps = list(mn.train(net, t, a, b, loss=mn.mse, optimizer=mn.SGD(lr=0.02), steps=3))
    for array, before in ((t, theta), (a, x), (b, y), (snaps[0].theta, theta)):
        assert np.array_equal(to_host(array), before)


@pytest.mark.parametrize("library", LIBRARIES)
@settings(max_examples=few(12))
@given(case=cases())
def test_laws(library: str, case: Case) -> None:
    """Random networks satisfy all laws of `minintk.testing.check_model`, such as the laws of adjoints and ensembles."""
    theta, x = (to_library(a, namespace(library)) for a in (case.theta, case.x))
    testing.check_model(case.net, theta, x, case.rng)


IMAGES = {
    "LeNet": mn.Sequential(
        mn.Conv2d(3, 3, b_std=0.3), mn.ReLU(), mn.MaxPool(2), mn.Conv2d(4, 2, padding="valid", b_std=0.1), mn.Tanh(),
        mn.AvgPool(2, stride=1, padding=1, normalize_edges=True), mn.Flatten(), mn.Dense(3, b_std=0.1),
    ),
    "residual": mn.Sequential(
        mn.Conv2d(3, 3, padding="circular"), mn.LayerNorm(axes=(-2, -1)),
        mn.Residual(mn.Sequential(mn.ReLU(), mn.Conv2d(4, 3, stride=2)), shortcut=mn.Conv2d(4, 1, stride=2)),
        mn.GlobalAvgPool(), mn.Dense(3),
    ),
    "BatchNorm": mn.Sequential(
        mn.Conv2d(3, 3), mn.BatchNorm(), mn.ReLU(), mn.MaxPool(3, stride=2, padding="same"), mn.Flatten(), mn.Dense(3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IMAGES)
def test_small_batches_on_images(xp: Any, dtype: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain layers, for batches of images with less work than `THRESHOLDS.plain`, agree with NumPy."""
    monkeypatch.setattr(THRESHOLDS, "plain", inf)
    test_networks_on_images(xp, dtype, name, None)


@pytest.mark.parametrize("ensemble", [None, E])
@pytest.mark.parametrize("name", IMAGES)
def test_networks_on_images(xp: Any, dtype: str, name: str, ensemble: int | None) -> None:
    net, theta, x, x2, y = data(IMAGES[name], (6, 5, 2), ensemble)
    rng = np.random.default_rng(2)
    v, u = rng.standard_normal((2, *theta.shape)), rng.standard_normal((2, *theta.shape[:-1], N, 3))

    def compute(to: To) -> Any:
        t, a, b = to(theta), to(x), to(x2)
        f, J = net.linearize(t, a)
        frozen = net.calibrate(t, a)
        _, K = frozen.linearize(t, a)
        grams = K.gram(), K.trace_gram(), mn.ntk(frozen, t, a, b)
        snaps = mn.train(net, t, a, to(y), loss=mn.mse, optimizer=mn.SGD(lr=0.02), steps=3)
        *_, last = snaps
        return f, J.jvp(to(v)), J.vjp(to(u)), frozen(t, b), grams, last.theta

    agree(xp, dtype, compute, digits_lost=3.0)


@pytest.mark.parametrize("library", LIBRARIES)
@settings(max_examples=few(5))
@given(case=cases(convolutional()))
def test_laws_on_images(library: str, case: Case) -> None:
    theta, x = (to_library(a, namespace(library)) for a in (case.theta, case.x))
    testing.check_model(case.net, theta, x, case.rng)


# --------------------------------------------------------------------------------------- invalid input


def test_errors_name_the_place(xp: Any) -> None:
    net, theta, x, _, y = data()
    x[3, 1, 0, 0] = np.nan
    t, a, b = (to_library(array, xp) for array in (theta, x, y))
    with pytest.raises(ValueError, match=r"1 values that are NaN or infinite, the first at index \(3, 1, 0, 0\)"):
        net(t, a)
    with pytest.raises(ValueError, match="a row whose sum is off by 1"):
        mn.softmax_cross_entropy.check(2 * b, (N, net.outputs))


def test_mixed_libraries_are_refused(xp: Any) -> None:
    if on_host(xp):
        pytest.skip("NumPy with NumPy is no mixture")
    net, theta, x, _, y = data()
    t, a = to_library(theta, xp), to_library(x, xp)
    f, J = net.linearize(t, a)
    mixtures: list[Callable[[], Any]] = [
        lambda: net(theta, a),
        lambda: net(t, x),
        lambda: J.vjp(to_host(f)),
        lambda: J.jvp(theta),
        lambda: J.gram(net.linearize(theta, x)[1]),
        lambda: mn.Linearized(net, theta)(t, a),
        lambda: mn.train(net, t, a, y, loss=mn.mse, optimizer=mn.SGD(lr=0.1), steps=1),
    ]
    for mixture in mixtures:
        with pytest.raises(TypeError, match="expected arrays of one library"):
            mixture()


def test_divergence_is_noticed(xp: Any) -> None:
    """Divergence is detected without snapshots. On a GPU, the loss is checked only once every 50 steps."""
    net, theta, x, _, y = data(ensemble=E)
    t, a, b = (to_library(array, xp) for array in (theta, x, y))
    with (
        pytest.warns(RuntimeWarning, match="above the stability bound"),
        np.errstate(all="ignore"),
        pytest.raises(FloatingPointError, match=r"\(member [0-9, ]+\) is no longer finite"),
    ):
        list(mn.train(net, t, a, b, loss=mn.mse, optimizer=mn.SGD(lr=1e6), steps=400, every=400))


# -------------------------------------------------------------------------------- synchronisations


def steps_taken(model: str, ensemble: int | None, batch_size: int | None, steps: int) -> Any:
    """Return the counts of synchronisations, uploads and launches for `steps` training steps on the stand-in."""
    xp = namespace("standin")
    net, theta, x, _, y = data(ensemble=ensemble)
    t, a, b = (to_library(array, xp) for array in (theta, x, y))
    f = MODELS[model](net, t)
    with counting() as counts:
        for _ in mn.train(
            f, t, a, b, loss=mn.softmax_cross_entropy, optimizer=mn.SGD(lr=0.02, momentum=0.9), steps=steps,
            batch_size=batch_size, rng=np.random.default_rng(0), every=10**6,
        ):  # fmt: skip
            pass
    return counts


@pytest.mark.skipif("standin" not in LIBRARIES, reason="counts are the stand-in's")
@pytest.mark.parametrize(("model", "ensemble", "batch_size"), thinned(product(MODELS, (None, E), (None, 3))))
def test_a_training_step_does_not_wait(model: str, ensemble: int | None, batch_size: int | None) -> None:
    """Forty training steps synchronise as often as twenty. An ensemble adds few launches.

    In each step of an ensemble, four launches copy the gradients of the four weight matrices to their positions between
    the gradients of other layers.
    """
    few, many = (steps_taken(model, ensemble, batch_size, steps) for steps in (20, 40))
    assert many.synchronisations == few.synchronisations
    assert many.uploads - few.uploads == (0 if batch_size is None else 20 * batch_size // N)  # one order per epoch
    if ensemble is not None:
        alone = steps_taken(model, None, batch_size, 40)
        assert many.launches <= alone.launches + 4 * 40 + 2 * 41  # broadcasting theta0 may add launches


@pytest.mark.skipif("standin" not in LIBRARIES, reason="counts are the stand-in's")
def test_kernels_wait_for_their_inputs_only() -> None:
    """The checks of theta and x wait for the device at most once each.

    The computation never waits, no matter how many blocks there are.
    """
    xp = namespace("standin")
    net, theta, x, _, _ = data()
    t, a = to_library(theta, xp), to_library(x, xp)
    with counting() as whole:
        mn.ntk(net, t, a)
    with counting() as blocks:
        mn.ntk(net, t, a, memory=10_000)
    assert whole.synchronisations == blocks.synchronisations <= 2
    assert blocks.launches > whole.launches
    assert prod((whole.uploads, blocks.uploads)) == 0


def test_a_product_is_written_where_it_belongs(xp: Any) -> None:
    """A product into a contiguous array takes one launch. A product into a view with gaps takes two, one for a copy."""
    a, b = (to_library(array, xp) for array in (np.ones((2, 3, 4)), np.ones((4, 5))))
    whole, gaps = xp.zeros((2, 3, 5)), xp.zeros((2, 3, 10))
    with counting() as first:
        matmul_into(a, b, whole)
    with counting() as second:
        matmul_into(a, b, gaps[..., ::2])
    assert to_host(whole).tolist() == to_host(gaps[..., ::2]).tolist() == np.full((2, 3, 5), 4.0).tolist()
    if library(xp) == "standin":
        assert (first.launches, second.launches) == (1, 2)


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_library_under_test_is_the_one_named(name: str) -> None:
    assert library(namespace(name)) == name
