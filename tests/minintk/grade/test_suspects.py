"""Test twenty wrong variants of Dense: the report names jvp, vjp or gram, the tensor, and what the error looks like."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.grade import compare, diagnose_layer
from minintk.layers.contract import WeightAndBias, bind, weight_and_bias
from minintk.layers.dense import BoundDense, DenseJacobian
from minintk.spec.layers import Layer
from minintk.spec.shapes import out_shape
from minintk.testing import check_layer

Change = Callable[..., Any]
N, n = 3, 4


@dataclass(frozen=True)
class Square(Layer):
    """A Dense layer with as many outputs as inputs, in which some methods are replaced."""

    weights = True
    change: tuple[tuple[str, Change], ...] = ()


@dataclass(frozen=True)
class SquareBound:
    """A bound layer that does not inherit from BoundDense, because networks replace BoundDense by faster layers."""

    parameters: WeightAndBias
    methods: tuple[tuple[str, Change], ...] = ()

    @property
    def tensors(self) -> Any:
        return self.parameters.tensors

    def __call__(self, w: Any, x: Any) -> Any:
        y, J = BoundDense(self.parameters)(w, x)
        kind = type("SquareJacobian", (DenseJacobian,), dict(self.methods))
        return y, kind(J.layer, J.x, J.W)


@out_shape.register
def _(layer: Square, shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape


@bind.register
def _(layer: Square, site: Any, parametrization: Any, name: str) -> SquareBound:
    width = site.shape[-1]
    like = mn.Dense(width, w_std=1.3, b_std=0.7)
    return SquareBound(weight_and_bias(like, site, parametrization, name, (width, width)), layer.change)


right = DenseJacobian


def vjp(what: str, change: Callable[[Any, Any, Any], Any]) -> Change:
    """Return vjp with one of dx, dW, db replaced by change(correct value, J, u)."""

    def method(self: Any, u: Any, dw: Any) -> Any:
        dx = right.vjp(self, u, dw)
        if what == "x":
            return change(dx, self, u)
        if dw is not None:
            name = next(name for name in dw if name.endswith(f".{what}"))
            dw[name][...] = change(dw[name].copy(), self, u)
        return dx

    return method


def adding(self: Any, u: Any, dw: Any) -> Any:
    if dw is not None:
        dw[self.layer.parameters.W.name][...] += self.layer.parameters.m * self.x.swapaxes(-1, -2) @ u
        dw[self.layer.parameters.b.name][...] = self.layer.parameters.c * u.sum(axis=-2)
    return self.layer.parameters.m * (u @ self.W.swapaxes(-1, -2))


def rebinding(self: Any, u: Any, dw: Any) -> Any:
    dx = right.vjp(self, u, None)
    if dw is not None:
        dw[self.layer.parameters.W.name] = self.layer.parameters.m * self.x.swapaxes(-1, -2) @ u
        dw[self.layer.parameters.b.name][...] = self.layer.parameters.c * u.sum(axis=-2)
    return dx


def in_place(self: Any, u: Any, dw: Any) -> Any:
    out = right.vjp(self, u, dw)
    u *= 2
    return out


def jvp(change: Callable[[Any, Any, Any, Any], Any]) -> Change:
    def method(self: Any, dw: Any, dx: Any) -> Any:
        return change(right.jvp(self, dw, dx), self, dw, dx)

    return method


def gram(weight: float, bias: float, turned: bool = False) -> Change:
    def method(self: Any, u: Any, other: Any, v: Any, kernel: Any) -> Any:
        p = self.layer.parameters
        inner = self.x @ other.x.swapaxes(-1, -2)
        return kernel(u, v, weight * p.m**2 * inner * (0 if turned else 1) + bias * p.c**2)

    return method


def variants() -> Iterator[tuple[str, str, Change, str, tuple[str, ...]]]:
    """Yield (mistake, method, wrong version, place to be named, allowed names)."""
    yield "dW transposed", "vjp", vjp("W", lambda g, J, u: g.swapaxes(-1, -2)), "vjp, dW", ("transpose",)
    yield (
        "dx without transpose",
        "vjp",
        vjp("x", lambda g, J, u: J.layer.parameters.m * (u @ J.W)),
        "vjp, dx",
        ("map transposed",),
    )
    yield "dx with the wrong sign", "vjp", vjp("x", lambda g, J, u: -g), "vjp, dx", ("sign",)
    yield "dW with the wrong sign", "vjp", vjp("W", lambda g, J, u: -g), "vjp, dW", ("sign",)
    yield "dW a mean", "vjp", vjp("W", lambda g, J, u: g / J.x.shape[-2]), "vjp, dW", ("mean for sum",)
    yield "db a mean", "vjp", vjp("b", lambda g, J, u: g / J.x.shape[-2]), "vjp, db", ("mean for sum",)
    yield "dW without m", "vjp", vjp("W", lambda g, J, u: g / J.layer.parameters.m), "vjp, dW", ("factor",)
    yield "dx without m", "vjp", vjp("x", lambda g, J, u: g / J.layer.parameters.m), "vjp, dx", ("factor",)
    yield "db without c", "vjp", vjp("b", lambda g, J, u: g / J.layer.parameters.c), "vjp, db", ("factor",)
    yield "dx None", "vjp", vjp("x", lambda g, J, u: None), "vjp, dx", ("nothing",)
    yield "db not written", "vjp", vjp("b", lambda g, J, u: 0 * g), "vjp, db", ("zeros",)
    yield "dW with +=", "vjp", adding, "vjp, dW", ("accumulated",)
    yield "dw[name] rebound", "vjp", rebinding, "vjp, dW", ("nothing",)
    yield "u changed in place", "vjp", in_place, "vjp, u", ("in place",)
    yield "jvp without dx", "jvp", jvp(lambda y, J, dw, dx: right.jvp(J, dw, None)), "jvp, dx", ("zeros",)
    yield "jvp without m in dx", "jvp", jvp(lambda y, J, dw, dx: y if dx is None else y + (1 - J.layer.parameters.m) * (dx @ J.W)), "jvp, dx", ("factor",)  # fmt: skip # noqa: E501
    yield "jvp without db", "jvp", jvp(lambda y, J, dw, dx: y - J.layer.parameters.c * dw[J.layer.parameters.b.name][..., None, :]), "jvp, db", ("zeros",)  # fmt: skip # noqa: E501
    yield "gram without the bias", "gram", gram(1, 0), "gram", ("part missing",)
    yield "gram without the weights", "gram", gram(0, 1, True), "gram", ("part missing",)
    yield "gram with W's part twice", "gram", gram(2, 1), "gram", ("factor",)


WRONG = list(variants())


@pytest.mark.parametrize(("mistake", "method", "wrong", "where", "causes"), WRONG, ids=[row[0] for row in WRONG])
def test_the_cause_is_named(mistake: str, method: str, wrong: Change, where: str, causes: tuple[str, ...]) -> None:
    layer = Square(((method, wrong),))
    said = diagnose_layer(layer, (n,))
    assert said.causes.get(where) in causes, said
    with pytest.raises(AssertionError) as error:
        check_layer(layer, (n,))
    assert str(said).splitlines()[0] in str(error.value)


def test_what_is_said_tells_them_apart() -> None:
    said = {str(diagnose_layer(Square(((method, wrong),)), (n,))) for _, method, wrong, _, _ in WRONG}
    assert len(said) == len(WRONG) == 20


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (Square(), (n,)),
        (mn.Dense(3), (4,)),
        (mn.Conv2d(2, 3, stride=2, b_std=0.3), (5, 4, 2)),
        (mn.MaxPool(2), (4, 4, 2)),
        (mn.AvgPool(2), (4, 4, 2)),
        (mn.ReLU(), (5,)),
        (mn.LayerNorm(), (4,)),
        (mn.BatchNorm(), (4,)),
        (mn.Flatten(), (2, 2, 2)),
    ],
)
def test_right_layers_pass(layer: Layer, shape: tuple[int, ...]) -> None:
    assert diagnose_layer(layer, shape).passed


def test_a_rounded_result_is_no_factor_of_1() -> None:
    right = np.array([5.20096, 1.0, 3.0])
    said = str(compare("y", right.astype(np.float32).astype(np.float64), right))
    assert "digits: float32 somewhere?" in said
    assert "factor" not in said
    expected, got = re.findall(r"(?:expected|got) ([\d.]+)", said)
    assert expected != got
    assert "somewhere" not in str(compare("y", 1.3 * right + 1, right))


@pytest.mark.parametrize("got", [np.empty(0), np.ones(3), np.array(["relu"])])
@pytest.mark.parametrize("want", [True, "relu"])
def test_arrays_are_neither_strings_nor_truth_values(got: Any, want: Any) -> None:
    assert not compare("f", got, want).passed
    assert compare("f", np.array(want)[()], want).passed
