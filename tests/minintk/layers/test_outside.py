"""Test user-defined layers, activations and models that follow the docstrings. Some deliberately lack a part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from minintk import testing
from minintk.layers.activation import Pointwise, pointwise
from minintk.layers.contract import LayerJacobian, Tensor, bind
from minintk.spec.parametrization import Row
from minintk.spec.shapes import out_shape

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Scale(mn.spec.Layer):
    """The layer y = g x with one trainable g per feature."""

    weights = True


@dataclass(frozen=True)
class Forgetful(mn.spec.Layer):
    """A copy of Scale that does not declare its weights."""


@dataclass(frozen=True)
class ScaleJacobian(LayerJacobian):
    g: Array
    x: Array
    name: str

    def jvp(self, dw: Any, dx: Any) -> Any:
        dy = self.x * dw[self.name][..., None, :]
        return dy if dx is None else dy + self.g[..., None, :] * dx

    def vjp(self, u: Any, dw: Any) -> Any:
        if dw is not None:
            dw[self.name][...] = (self.x * u).sum(axis=-2)
        return self.g[..., None, :] * u

    def gram(self, u: Any, other: Any, v: Any, kernel: Any) -> Any:
        return kernel(u * self.x, v * other.x, kernel.scale(Tensor(self.name, (), Row(1.0, 1.0))))


@dataclass(frozen=True)
class BoundScale:
    tensors: tuple[Tensor, ...]
    jacobian: type[ScaleJacobian] = ScaleJacobian

    def __call__(self, w: Any, x: Any) -> Any:
        g = w[self.tensors[0].name]
        return g[..., None, :] * x, self.jacobian(g, x, self.tensors[0].name)


for kind in (Scale, Forgetful):
    out_shape.register(kind, lambda layer, shape: shape)
    bind.register(
        kind, lambda layer, site, parametrization, name: BoundScale((Tensor(f"{name}.g", site.shape, Row(1.0, 1.0)),))
    )


def test_a_layer_obeys_the_laws() -> None:
    testing.check_layer(Scale(), (3,))


def test_a_layer_without_a_frozen_dataclass_is_refused() -> None:
    """If a layer were not a frozen dataclass, its arguments could be ignored, or it could not be hashed."""

    class Forgotten(mn.ReLU):
        slope: float = 0.0

    @dataclass(frozen=False)
    class Changing(mn.spec.Layer):
        slope: float = 0.0

    for layer in (Forgotten(), Changing()):
        with pytest.raises(TypeError, match=r"expects @dataclass\(frozen=True\) before its class"):
            testing.check_layer(layer, (3,))


@pytest.mark.parametrize(
    "spec",
    [
        mn.Sequential(Forgetful(), mn.Dense(2)),
        mn.Sequential(mn.Residual(mn.Sequential(Forgetful(), mn.Dense(3))), mn.Dense(2)),
        mn.Sequential(mn.Dense(3), mn.Sequential(mn.Tanh(), Forgetful())),
    ],
)
def test_a_layer_that_does_not_say_that_it_owns_weights_is_refused(spec: mn.Sequential) -> None:
    """A layer that owns weights without declaring them raises TypeError.

    Otherwise the next Dense would count as the first layer with weights and return uninitialised memory as a gradient.
    """
    with pytest.raises(TypeError, match=r"Forgetful owns .*\.g: write `weights = True` into class Forgetful"):
        mn.Network(spec, (3,))


class Stops(ScaleJacobian):
    """A Jacobian that does not return u dy/dx, although weights come before the layer."""

    def vjp(self, u: Any, dw: Any) -> Any:
        super().vjp(u, dw)


class Silent(ScaleJacobian):
    """A Jacobian that does not write the gradient of its own weights."""

    def vjp(self, u: Any, dw: Any) -> Any:
        return super().vjp(u, None)


def planted(wrong: type[ScaleJacobian], monkeypatch: pytest.MonkeyPatch) -> tuple[mn.Network, Array, Array]:
    """Return (network, theta, x): a network whose middle layer has the Jacobian `wrong`."""
    monkeypatch.setattr(BoundScale, "__init__", lambda self, tensors: object.__setattr__(self, "tensors", tensors))
    monkeypatch.setattr(BoundScale, "jacobian", wrong)
    net = mn.Network(mn.Sequential(mn.Dense(3), Scale(), mn.Dense(2)), (3,))
    return net, net.init(np.random.default_rng(0)), np.eye(3)


def test_a_sweep_that_stops_early_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    net, theta, x = planted(Stops, monkeypatch)
    _, J = net.linearize(theta, x)
    calls: list[Callable[[], Any]] = [lambda: J.vjp(np.ones((3, 2))), J.gram, lambda: mn.ntk(net, theta, x)]
    for call in calls:
        with pytest.raises(TypeError, match=r"Stops\.vjp returned None, but 0\.W come before it: return u dy/dx"):
            call()


def test_a_gradient_that_is_not_written_is_nan_and_training_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    net, theta, x = planted(Silent, monkeypatch)
    gradient = net.linearize(theta, x)[1].vjp(np.ones((3, 2)))
    assert np.isnan(net.layout.unpack(gradient)["1.g"]).all()
    assert np.isfinite(net.layout.unpack(gradient)["0.W"]).all()
    with pytest.raises(
        TypeError, match=r"no layer wrote the gradient of 1\.g: vjp\(u, dw\) must fill dw\['1\.g'\], with ="
    ):
        list(mn.train(net, theta, x, np.ones((3, 2)), loss=mn.mse, optimizer=mn.SGD(0.1), steps=2))


def test_a_gradient_that_is_written_in_part_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Half(ScaleJacobian):
        def vjp(self, u: Any, dw: Any) -> Any:
            if dw is not None:
                dw[self.name][:2] = (self.x * u).sum(axis=-2)[:2]
            return super().vjp(u, None)

    net, theta, x = planted(Half, monkeypatch)
    with pytest.raises(TypeError, match=r"no layer wrote the gradient of 1\.g"):
        list(mn.train(net, theta, x, np.ones((3, 2)), loss=mn.mse, optimizer=mn.SGD(0.1), steps=2))


class Adds(ScaleJacobian):
    """A Jacobian that adds to the gradient of its weights instead of overwriting it."""

    def vjp(self, u: Any, dw: Any) -> Any:
        if dw is not None:
            dw[self.name][...] += (self.x * u).sum(axis=-2)
        return super().vjp(u, None)


class Gramless(ScaleJacobian):
    """A Jacobian that inherits the default `gram`."""

    gram = LayerJacobian.gram


@pytest.mark.parametrize("wrong", [Adds, Silent])
def test_the_laws_refuse_a_gradient_that_is_not_written(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(wrong, monkeypatch)
    with pytest.raises(AssertionError, match="adjoint"):
        testing.check_layer(Scale(), (3,))


@pytest.mark.parametrize("residual", [False, True])
def test_weights_without_a_gram_are_refused(residual: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(Gramless, monkeypatch)
    net = mn.Network(mn.Sequential(mn.Dense(3), mn.Residual(Scale()) if residual else Scale(), mn.Dense(2)), (3,))
    theta = net.init(np.random.default_rng(0))
    with pytest.raises(TypeError, match=r"Gramless has no gram, but its layer owns 1\..*g: write gram\("):
        mn.ntk(net, theta, np.eye(3))


@dataclass(frozen=True)
class Squared(mn.spec.Activation):
    """The activation phi(x) = x^2."""


pointwise.register(Squared, lambda layer: Pointwise(lambda xp, x: x**2, lambda xp, x: 2 * x))


def test_an_activation_has_its_kernels_too() -> None:
    """For Gaussian (u, u') with variances q, q' and covariance k, E u^2 u'^2 = q q' + 2 k^2 and E 2u 2u' = 4 k."""
    testing.check_layer(Squared(), (3,))
    x = np.random.default_rng(0).standard_normal((4, 3))
    k = an.kernel(mn.Sequential(mn.Dense(8), Squared(), mn.Dense(1)))
    K = x @ x.T / 3
    q = np.diag(K)
    nngp = np.outer(q, q) + 2 * K**2
    np.testing.assert_allclose(k.nngp(x), nngp, rtol=1e-12)
    np.testing.assert_allclose(k.ntk(x), nngp + 4 * K * K, rtol=1e-12)


class Sum(mn.Model):
    """A user-defined model f_1(theta) + f_2(theta) with the required attributes, `forward` and `footprint`."""

    def __init__(self, one: mn.Network, two: mn.Network) -> None:
        self.pair, self.input_shape, self.layout, self.outputs = (one, two), one.input_shape, one.layout, one.outputs

    @property
    def footprint(self) -> tuple[int, int]:
        return self.pair[0].footprint

    def forward(self, theta: Any, x: Any) -> Any:
        (f, J), (g, K) = (net.forward(theta, x) for net in self.pair)
        return f + g, SumJacobian(J, K)


class SumJacobian(mn.models.jacobian.Jacobian):
    """The Jacobian J_1 + J_2 with the required attributes, `push` and `pull`."""

    def __init__(self, J: Any, K: Any) -> None:
        self.J, self.K, self.size, self.outputs, self.ensemble, self.like = J, K, J.size, J.outputs, J.ensemble, J.like

    def push(self, v: Any) -> Any:
        return self.J.push(v) + self.K.push(v)

    def pull(self, u: Any, out: Any) -> None:
        out[...] = self.J.vjp(u) + self.K.vjp(u)


@pytest.mark.parametrize("ensemble", [None, 2])
def test_a_model_obeys_the_laws_and_trains(ensemble: int | None) -> None:
    nets = [mn.Network(mn.Sequential(mn.Dense(4), phi, mn.Dense(2)), (3,)) for phi in (mn.Tanh(), mn.Erf())]
    rng = np.random.default_rng(0)
    model, x = Sum(*nets), rng.standard_normal((5, 3))
    theta = nets[0].init(rng, ensemble=ensemble)
    testing.check_model(model, theta, x, rng)
    testing.check_model(mn.Linearized(model, theta), theta + 0.1, x, rng)
    y, moved = np.ones((5, 2)), theta
    *_, last = mn.train(model, theta, x, y, loss=mn.mse, optimizer=mn.SGD(0.1), steps=3)
    for _ in range(3):
        f, J = model.linearize(moved, x)
        moved = moved - 0.1 * J.vjp((f - y) / 5)
    np.testing.assert_allclose(last.theta, moved, rtol=1e-12, atol=1e-13)
