"""Test that descent on a frozen kernel equals training of the linearised network, batch by batch."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from minintk.training import kernel_descent as module

Array = Any
N, M, C, E = 7, 10, 3, 2  # M points, the first N for training

X = np.random.default_rng(0).standard_normal((M, 4))
LABELS = np.eye(C)[np.random.default_rng(1).integers(C, size=N)]
NET = mn.Network(mn.Sequential(mn.Dense(16, w_std=1.4, b_std=0.3), mn.Tanh(), mn.Dense(C)), (4,))
MUP = mn.Network(NET.spec, (4,), mn.SpectralMuP())
ONE = mn.Network(mn.Sequential(mn.Dense(16, w_std=1.4, b_std=0.3), mn.Tanh(), mn.Dense(1)), (4,))

OPTIMIZERS: dict[str, Callable[[Array], Any]] = {  # functions of theta_0, towards which weights decay
    "SGD": lambda theta0: mn.SGD(0.1),
    "momentum": lambda theta0: mn.SGD(0.05, momentum=0.9),
    "Nesterov": lambda theta0: mn.Nesterov(0.05, momentum=0.9),
    "schedule": lambda theta0: mn.SGD(mn.WarmUp(5, then=mn.Cosine(0.1, 40)), momentum=0.5),
    "decay": lambda theta0: mn.SGD(0.05, momentum=0.9, weight_decay=0.1, towards=theta0),
}


def departure(
    name: str, *, loss: Any = mn.mse, ensemble: int | None = None, batch_size: int | None = None, net: Any = NET
) -> float:
    """Return the largest relative difference between kernel descent and training of Linearized.

    The maximum is over f on all points, the losses and the weights.
    """
    theta0 = net.init(np.random.default_rng(2), ensemble=ensemble)
    _, J = net.linearize(theta0, X[:N])
    y = LABELS[:, : net.outputs]
    kernel = (mn.ntk if net is ONE else mn.ntk_full)(net, theta0, X, X[:N])
    how = {"loss": loss, "steps": 40, "batch_size": batch_size, "every": 8}
    optimizer = OPTIMIZERS[name](theta0)
    apart = OPTIMIZERS[name](None)  # without `towards`: the coefficients decay to 0
    lin = mn.Linearized(net, theta0)
    run = mn.train(lin, theta0, X[:N], y, optimizer=optimizer, rng=np.random.default_rng(3), **how)
    same = mn.kernel_descent(kernel, net(theta0, X), y, optimizer=apart, rng=np.random.default_rng(3), **how)
    worst = 0.0
    for a, b in zip(run, same, strict=True):
        assert (a.step, a.t) == (b.step, b.t)
        f = lin(a.theta, X)
        S = 1.0 if (rates := net.layout.learning_rate_scales()) is None else rates
        pairs = (b.f, f), (b.loss, loss(f[..., :N, :], y)), (theta0 + S * J.vjp(b.theta), a.theta)
        worst = max(worst, *(float(np.abs(got - want).max() / np.abs(want).max()) for got, want in pairs))
    return worst


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("batch_size", [None, 3])
def test_it_is_the_training_of_the_linearised_network(name: str, batch_size: int | None) -> None:
    assert departure(name, batch_size=batch_size) < 1e-12
    assert departure(name, batch_size=batch_size, ensemble=E) < 1e-12
    assert departure(name, batch_size=batch_size, net=ONE) < 1e-12
    assert departure(name, batch_size=batch_size, net=MUP) < 1e-12


@pytest.mark.parametrize("loss", [mn.softmax_cross_entropy, mn.sum_of_squares], ids=repr)
def test_any_loss(loss: Any) -> None:
    assert departure("momentum", loss=loss, batch_size=2) < 1e-12
    assert departure("Nesterov", loss=loss, ensemble=E) < 1e-12


def test_hinge_and_one_kernel_for_all_members() -> None:
    """With f0 : (E, M, 1) and a kernel (M, N), each member's outputs equal those of a separate run."""
    theta0 = ONE.init(np.random.default_rng(2), ensemble=E)
    kernel, f0 = mn.ntk(ONE, theta0[0], X, X[:N]), ONE(theta0, X)
    how: dict[str, Any] = {"loss": mn.hinge, "optimizer": mn.SGD(0.1, 0.5), "steps": 9, "batch_size": 2}
    y = np.sign(LABELS[:, :1] - 0.5)
    *_, all_of_them = mn.kernel_descent(kernel, f0, y, rng=np.random.default_rng(0), **how)
    for e in range(E):
        *_, alone = mn.kernel_descent(kernel, f0[e], y, rng=np.random.default_rng(0), **how)
        np.testing.assert_allclose(all_of_them.f[e], alone.f, rtol=1e-13)


def test_on_the_full_batch_it_is_the_closed_form() -> None:
    """Descent on an analytic kernel that three outputs share follows the closed form.

    The learning rate is 0.9 times the largest stable rate with momentum.
    """
    k = an.kernel(mn.Sequential(mn.Dense(8, w_std=1.4, b_std=0.3), mn.Erf(), mn.Dense(1)))
    K, y = k.ntk(X, X[:N]), LABELS
    f0 = np.random.default_rng(4).standard_normal((M, C))
    lr = 0.9 * an.max_learning_rate(K[:N], 0.8)
    theory = an.gradient_descent(K[:N], y, lr=lr, momentum=0.8)
    run = mn.kernel_descent(K, f0, y, loss=mn.mse, optimizer=mn.SGD(lr, 0.8), steps=30)
    for snap in run:
        np.testing.assert_allclose(snap.f[:N], theory.predict(snap.step, f0=f0[:N]), atol=1e-12)
        want = theory.predict(snap.step, K[N:], f0=f0[:N], f0_test=f0[N:])
        np.testing.assert_allclose(snap.f[N:], want, atol=1e-12)
        np.testing.assert_allclose(snap.theta, theory.coefficients(snap.step, f0=f0[:N]), atol=1e-11)


def scaled_batch(right: Any) -> Any:
    """Plant an error: divide the batch's gradient by N, not by the batch size."""
    return lambda self, u, out: right(self, u * (u.shape[-2] / N), out)


def wrong_rows(right: Any) -> Any:
    """Plant an error: apply the gradient of a batch to the first rows instead of the batch's rows."""

    def pull(self: Any, u: Array, out: Array) -> None:
        at, self.at = self.at, np.arange(u.shape[-2])
        right(self, u, out)
        self.at = at

    return pull


def summed(right: Any) -> Any:
    """Plant an error: replace each output's gradient with the mean over all outputs."""
    return lambda self, u, out: right(self, 0 * u + u.mean(axis=-1, keepdims=True), out)


@pytest.mark.parametrize("mistake", [scaled_batch, wrong_rows, summed], ids=lambda f: f.__name__)
def test_the_law_refuses_planted_mistakes(mistake: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    kind = module.InCoefficients
    monkeypatch.setattr(kind, "pull", mistake(kind.pull))
    assert departure("momentum", batch_size=3) > 1e-3


def test_the_law_refuses_decay_towards_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decay of theta towards 0 violates the law, because decay of the coefficients moves theta towards theta_0."""
    monkeypatch.setitem(OPTIMIZERS, "decay", lambda _: mn.SGD(0.05, momentum=0.9, weight_decay=0.1))
    assert departure("decay") > 1e-3


def test_it_resumes_with_the_same_bits() -> None:
    K, f0 = X @ X[:N].T, np.zeros((M, C))
    how: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(0.05, 0.9), "batch_size": 3}
    *_, whole = mn.kernel_descent(K, f0, LABELS, steps=20, rng=np.random.default_rng(0), **how)
    *_, half = mn.kernel_descent(K, f0, LABELS, steps=9, rng=np.random.default_rng(0), **how)
    *_, end = mn.kernel_descent(K, f0, LABELS, steps=20, rng=np.random.default_rng(5), resume=half.state, **how)
    assert np.array_equal(end.theta, whole.theta)
    assert np.array_equal(end.f, whole.f)


def test_a_full_batch_copies_no_kernel() -> None:
    K, f0, y = np.eye(1000), np.zeros((1000, 1)), np.ones((1000, 1))
    tracemalloc.start()
    *_, _ = mn.kernel_descent(K, f0, y, loss=mn.mse, optimizer=mn.SGD(0.1), steps=3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**25 + K.nbytes / 4  # `keep_freed_memory` allocates and frees up to 2**25


def test_float32_stays() -> None:
    K, f0, y = (a.astype(np.float32) for a in (X @ X[:N].T, np.zeros((M, C)), LABELS))
    *_, end = mn.kernel_descent(K, f0, y, loss=mn.mse, optimizer=mn.SGD(0.05, 0.9), steps=3)
    assert end.f.dtype == end.theta.dtype == end.loss.dtype == np.float32


def test_a_rate_above_the_bound_warns() -> None:
    K, f0, y = np.diag([1.0, 4.0]), np.zeros((2, 1)), np.ones((2, 1))
    with pytest.warns(RuntimeWarning, match=r"learning rate 1\.1 is above the stability bound 1\b") as found:
        next(iter(mn.kernel_descent(K, f0, y, loss=mn.mse, optimizer=mn.SGD(1.1), steps=3)))
    assert found[0].filename == __file__


def test_a_run_that_is_never_asked_for_says_so_once() -> None:
    K, f0, y = np.eye(2), np.zeros((2, 1)), np.ones((2, 1))
    with pytest.warns(RuntimeWarning, match=r"mn\.kernel_descent\(\.\.\.\) computes each result") as found:
        mn.kernel_descent(K, f0, y, loss=mn.mse, optimizer=mn.SGD(0.1), steps=3)
    assert [warned.filename for warned in found] == [__file__]


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"optimizer": mn.Adam(0.1)}, TypeError, r"expects mn.SGD or mn.Nesterov, without towards=, got Adam"),
    ({"optimizer": mn.SGD(0.1, towards=np.zeros(3))}, TypeError, r"without towards="),
    ({"kernel": np.eye(M)}, ValueError, r"kernel expects shape \(\[E\], 10, 7\), or \(\[E\], 10, 3, 7, 3\)"),
    ({"f0": np.zeros(M)}, ValueError, r"f0 expects shape \(\[E\], M, C\)"),
    ({"f0": np.zeros((M, C), np.float32)}, TypeError, r"f0 must have the dtype of the kernel"),
    ({"kernel": np.full((M, N), np.nan)}, ValueError, r"kernel"),
    ({"f0": np.zeros((N - 1, C)), "kernel": np.ones((N - 1, N))}, ValueError, r"training points first, got 7"),
    ({"batch_size": 3}, TypeError, r"rng, of mini-batches .* expects"),
    ({"steps": 2.5}, ValueError, r"steps expects a whole number"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD)
def test_bad_input_is_refused_at_once(change: dict[str, Any], error: type[Exception], message: str) -> None:
    good: dict[str, Any] = {"kernel": X @ X[:N].T, "f0": np.zeros((M, C)), "y": LABELS}
    good |= {"loss": mn.mse, "optimizer": mn.SGD(0.1), "steps": 3}
    arguments = good | change
    with pytest.raises(error, match=message):
        mn.kernel_descent(arguments.pop("kernel"), arguments.pop("f0"), arguments.pop("y"), **arguments)
