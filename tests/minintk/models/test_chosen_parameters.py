"""Test `params=`: the Jacobian, kernel, linearisation and training of some of the parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.models.model import Chosen

Array = Any

DENSE = mn.Sequential(
    mn.Dense(6, w_std=1.4, b_std=0.3), mn.Tanh(),
    mn.Residual(mn.Sequential(mn.Dense(6, b_std=0.2), mn.ReLU()), shortcut=mn.Dense(6)), mn.Dense(2, b_std=0.5),
)  # fmt: skip
CONV = mn.Sequential(
    mn.Conv2d(3, 3, b_std=0.2), mn.ReLU(), mn.MaxPool(2), mn.Flatten(), mn.Dense(2, b_std=0.1)
)  # fmt: skip
NETS = {"dense": mn.Network(DENSE, (5,)), "convolutions": mn.Network(CONV, (6, 6, 2), mn.Standard())}
PARAMS: dict[str, Any] = {"biases": "*.b", "last": "last", "a name": "0.W", "several": ("0.b", "last")}
MEANT: dict[str, Callable[[str], bool]] = {
    "biases": lambda name: name.endswith(".b"), "last": lambda name: name in ("3.W", "3.b", "4.W", "4.b"),
    "a name": lambda name: name == "0.W", "several": lambda name: name in ("0.b", "3.W", "3.b", "4.W", "4.b"),
}  # fmt: skip


def problem(net: mn.Network, *, ensemble: int | None = None) -> tuple[Array, Array, np.random.Generator]:
    rng = np.random.default_rng(0)
    return net.init(rng, ensemble=ensemble), rng.standard_normal((4, *net.input_shape)), rng


def columns(net: mn.Network, which: str) -> Array:
    """Return a mask (P,) with 1 for the named parameters and 0 for the others."""
    return np.concatenate([np.full(t.size, float(MEANT[which](t.name))) for t in net.layout.tensors])


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("which", PARAMS)
@pytest.mark.parametrize("alpha", [None, 3.0])
def test_it_is_the_block_of_the_jacobian(name: str, which: str, alpha: float | None) -> None:
    """J.dense(), J v, J' u and J J' equal those of the dense J in which the columns of other parameters are zero.

    Kernels are tested for a batch with itself, with another batch, and with the full J of another batch.
    """
    net, s = NETS[name], columns(NETS[name], which)
    theta, x, rng = problem(net)
    model: mn.Model = net if alpha is None else mn.Centred(net, theta, alpha)
    whole, other = (model.linearize(theta, a)[1] for a in (x, x[1:] + 1))
    f, J = model.linearize(theta, x, params=PARAMS[which])
    K = model.linearize(theta, x[1:] + 1, params=PARAMS[which])[1]
    block, them = whole.dense() * s, other.dense()
    assert 0 < s.sum() < net.size
    np.testing.assert_array_equal(f, model(theta, x))
    np.testing.assert_allclose(J.dense(), block, rtol=1e-12, atol=1e-14)
    v, u = rng.standard_normal((3, net.size)), rng.standard_normal((3, *J.outputs))
    np.testing.assert_allclose(np.sum(u * J.jvp(v), (1, 2)), np.sum(J.vjp(u) * v, 1), rtol=1e-11)  # adjoint
    np.testing.assert_allclose(J.jvp(v), np.einsum("ncp,kp->knc", block, v), rtol=1e-10, atol=1e-12)
    for B, dense in ((None, block), (K, them * s), (other, them)):
        np.testing.assert_allclose(J.gram(B), np.einsum("ncp,mep->ncme", block, dense), rtol=1e-10, atol=1e-12)
    wrong = np.einsum("ncp,mep->ncme", whole.dense(), whole.dense())
    assert np.abs(wrong - J.gram()).max() > 1e-3 * np.abs(wrong).max()


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("which", PARAMS)
def test_kernels_are_those_of_the_block(name: str, which: str) -> None:
    """Kernels of a block equal J S J' of the block, and kernels of two blocks add up to the whole, for an ensemble."""
    net = mn.Network(NETS[name].spec, NETS[name].input_shape, mn.MeanField())
    theta, x, _ = problem(net, ensemble=2)
    params = PARAMS[which]
    J = net.linearize(theta, x, params=params)[1].dense()
    S = net.layout.learning_rate_scales()
    want = np.einsum("encp,p,emdp->encmd", J, S, J)
    np.testing.assert_allclose(mn.ntk_full(net, theta, x, params=params), want, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(mn.ntk(net, theta, x, params=params), np.einsum("encmc->enm", want) / 2, rtol=1e-10)
    lin = mn.Linearized(net, theta, params)
    np.testing.assert_allclose(mn.ntk(lin, theta + 1, x), np.einsum("encmc->enm", want) / 2, rtol=1e-10)
    rest = [t.name for t in net.layout.tensors if not MEANT[which](t.name)]
    both = mn.ntk(net, theta, x, params=params) + mn.ntk(net, theta, x, params=rest)
    np.testing.assert_allclose(both, mn.ntk(net, theta, x), rtol=1e-11)


@pytest.mark.parametrize("which", PARAMS)
def test_the_linearisation_ignores_the_others(which: str) -> None:
    net, s = NETS["dense"], columns(NETS["dense"], which)
    theta, x, rng = problem(net)
    d = rng.standard_normal(net.size)
    lin = mn.Linearized(net, theta, PARAMS[which])
    np.testing.assert_allclose(lin(theta + (1 - s) * d, x), net(theta, x), rtol=1e-14)
    np.testing.assert_allclose(lin(theta + d, x), mn.Linearized(net, theta)(theta + s * d, x), rtol=1e-12)
    assert np.abs(lin(theta + d, x) - mn.Linearized(net, theta)(theta + d, x)).max() > 1e-2


@pytest.mark.parametrize("optimizer", [mn.SGD(0.05, 0.9, weight_decay=0.1), mn.Adam(0.01, weight_decay=0.1)])
@pytest.mark.parametrize("which", PARAMS)
def test_training_moves_only_them(optimizer: Any, which: str) -> None:
    """Parameters that are not chosen stay fixed even under weight decay.

    Linearising only the trained parameters gives the same weights as linearising all parameters.
    """
    net, s = NETS["dense"], columns(NETS["dense"], which)
    theta, x, rng = problem(net)
    y = rng.standard_normal((4, 2))
    how: dict[str, Any] = {"loss": mn.mse, "optimizer": optimizer, "steps": 5}
    *_, end = mn.train(net, theta, x, y, params=PARAMS[which], **how)
    np.testing.assert_array_equal(end.theta[s == 0], theta[s == 0])
    assert np.all(end.theta[s == 1] != theta[s == 1])
    *_, one = mn.train(mn.Linearized(net, theta), theta, x, y, params=PARAMS[which], **how)
    *_, two = mn.train(mn.Linearized(net, theta, PARAMS[which]), theta, x, y, params=PARAMS[which], **how)
    np.testing.assert_allclose(one.theta, two.theta, rtol=1e-12)


def test_a_frozen_tensor_stays_frozen_beside_params() -> None:
    net = NETS["dense"]
    theta, x, rng = problem(net)
    how: dict[str, Any] = {"loss": mn.mse, "optimizer": mn.SGD(0.1), "steps": 2, "lr_scales": {"3.b": 0, "0.W": 5}}
    *_, end = mn.train(net, theta, x, rng.standard_normal((4, 2)), params="last", **how)
    moved = net.layout.unpack(end.theta - theta)
    assert [name for name, a in moved.items() if a.any()] == ["3.W"]


@pytest.mark.parametrize("params", ["1.*", ["0.W", "*.c"], [], "Last"])
def test_names_that_match_nothing(params: Any) -> None:
    net = NETS["dense"]
    theta, x, _ = problem(net)
    calls: list[Callable[[], Any]] = [
        lambda: mn.ntk(net, theta, x, params=params), lambda: net.linearize(theta, x, params=params),
        lambda: mn.Linearized(net, theta, params),
        lambda: mn.train(net, theta, x, x[:, :2], loss=mn.mse, optimizer=mn.SGD(0.1), steps=1, params=params),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(
            ValueError, match=r"params expects some of \['0\.W', .*, '\*\.b' or 'last', got .*: none matches"
        ):
            call()


def test_columns_of_inputs_are_not_chosen() -> None:
    theta, x, _ = problem(NETS["dense"])
    with pytest.raises(ValueError, match=r"wrt expects 'theta' or, without params, 'x', got 'x'"):
        NETS["dense"].linearize(theta, x, "x", params="last")  # type: ignore[call-overload]


def test_a_mask_that_is_forgotten_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above fail if J' u contains gradients of frozen parameters, or if the kernel uses all parameters."""
    monkeypatch.setattr(Chosen, "pull", lambda self, u, out: self.J.pull(u, out))
    with pytest.raises(AssertionError):
        test_it_is_the_block_of_the_jacobian("dense", "biases", None)
    monkeypatch.undo()
    monkeypatch.setattr(
        Chosen, "contract", lambda self, other, kernel: self.J.gram_by(getattr(other, "J", other), kernel)
    )
    with pytest.raises(AssertionError):
        test_it_is_the_block_of_the_jacobian("convolutions", "last", 3.0)
