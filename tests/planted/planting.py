"""Define planted errors, and collect them in PLANTED (see `planted`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.kit.laws import Array, Patch


@dataclass(frozen=True)
class Planted:
    """A planted error: its description, the function that plants it, and the law that must fail."""

    error: str
    plant: Callable[[Patch], None]
    law: Callable[[], None]


PLANTED: list[Planted] = []


def planted(error: str, law: Callable[[], None]) -> Callable[[Callable[[Patch], None]], None]:
    """Return a decorator that adds an error to PLANTED. The decorated function plants the error."""
    return lambda plant: PLANTED.append(Planted(error, plant, law))


# ------------------------------------------------------------------- errors that several layers can have


def change_gradient(patch: Patch, kind: type[Any], wrong: Callable[[Any, Array, Any], None]) -> None:
    """Make kind.vjp call wrong(J, u, dw) at the end, to change the gradients dw that kind.vjp has computed."""
    right = kind.vjp

    def vjp(self: Any, u: Array, dw: Any) -> Any:
        du = right(self, u, dw)
        if dw is not None:
            wrong(self, u, dw)
        return du

    patch.setattr(kind, "vjp", vjp)


def weights_by(patch: Patch, kind: type[Any], parameters: Callable[[Any], Any]) -> None:
    """Plant an error: the gradient dW lacks the multiplier of the weights.

    parameters : function that returns the parameters of a Jacobian of class `kind`.
    """

    def wrong(J: Any, u: Array, dw: Any) -> None:
        dw[parameters(J).W.name][...] /= parameters(J).m

    change_gradient(patch, kind, wrong)


def bias_by(patch: Patch, kind: type[Any], parameters: Callable[[Any], Any], factor: float) -> None:
    """Plant an error: the gradient of the bias is multiplied by a wrong factor."""

    def wrong(J: Any, u: Array, dw: Any) -> None:
        if parameters(J).b is not None:
            dw[parameters(J).b.name][...] *= factor

    change_gradient(patch, kind, wrong)


def with_parameters(J: Any, **wrong: Any) -> Any:
    """Return a layer's Jacobian with the parameters `wrong` (multipliers or tensors) in place of the correct ones."""
    return replace(J, layer=replace(J.layer, parameters=replace(J.layer.parameters, **wrong)))


def without_weights(patch: Patch, kind: type[Any]) -> None:
    """Plant an error: jvp omits the term with the change dW of the weights."""
    right = kind.jvp

    def jvp(self: Any, dw: Any, dx: Any) -> Any:
        name = self.layer.parameters.W.name
        return right(self, dw | {name: 0 * dw[name]}, dx)

    patch.setattr(kind, "jvp", jvp)


def multiplier_twice(patch: Patch, bound: type[Any]) -> None:
    """Plant m^2 in place of the multiplier m in jvp, vjp and gram. Only a comparison with the outputs detects m^2."""
    right = bound.__call__

    def call(self: Any, w: Any, x: Array) -> Any:
        y, J = right(self, w, x)
        return y, with_parameters(J, m=self.parameters.m**2)

    patch.setattr(bound, "__call__", call)


def first_members_weights(patch: Patch, bound: type[Any]) -> None:
    """Make all members of an ensemble use the weights of the first member."""
    right = bound.__call__

    def call(self: Any, w: Any, x: Array) -> Any:
        W, tensor = w[self.parameters.W.name], self.parameters.W
        return right(self, w | {tensor.name: W if W.ndim == len(tensor.shape) else 0 * W + W[:1]}, x)

    patch.setattr(bound, "__call__", call)


def gram_with(patch: Patch, kind: type[Any], wrong: Callable[[Any], dict[str, Any]]) -> None:
    """Plant wrong parameters in `gram` of a kind of layer. wrong(parameters) returns {name: changed parameter}."""
    right = kind.gram

    def gram(self: Any, u: Array, other: Any, v: Array, kernel: Any) -> Any:
        return right(with_parameters(self, **wrong(self.layer.parameters)), u, other, v, kernel)

    patch.setattr(kind, "gram", gram)
