"""Test output shapes, and which weights count as first and as last."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given

import minintk as mn
from minintk.layers.activation import pointwise
from minintk.layers.contract import bind
from minintk.spec.shapes import Site, UnsupportedLayer, has_weights, out_shape, sites
from tests.kit.strategies import chains


@given(chains((3,)))
def test_the_shape_after_a_chain_is_that_of_its_layers_in_turn(spec: mn.Sequential) -> None:
    shape: tuple[int, ...] = (3,)
    for layer, site in sites(spec.layers, Site((3,))):
        assert site.shape == shape
        shape = out_shape(layer, shape)
    assert shape == out_shape(spec, (3,))


def test_shapes() -> None:
    assert out_shape(mn.Dense(5), (3,)) == (5,)
    assert out_shape(mn.Flatten(), (4, 5, 3)) == (60,)
    assert out_shape(mn.ReLU(), (4, 5, 3)) == (4, 5, 3)
    assert out_shape(mn.Residual(mn.Dense(3)), (3,)) == (3,)


def test_first_and_last_weights() -> None:
    """The place is "input" for the first weights, even if they are the only ones, and "output" for the last."""
    spec = mn.Sequential(
        mn.Tanh(),
        mn.Dense(3),
        mn.ReLU(),
        mn.Residual(mn.Dense(3)),
        mn.Sequential(mn.Dense(3), mn.ReLU()),
        mn.Dense(1),
        mn.Sin(),
    )
    places = [site.place for layer, site in sites(spec.layers, Site((2,))) if has_weights(layer)]
    assert places == ["input", "hidden", "hidden", "output"]
    ((_, only),) = sites([mn.Dense(1)], Site((2,)))
    assert only.place == "input"


def test_places_inside_a_residual() -> None:
    """If a spec starts with a residual block, the branch's and the shortcut's first weights have the place "input"."""
    spec = mn.Sequential(mn.Residual(mn.Sequential(mn.Dense(3), mn.Dense(3)), shortcut=mn.Dense(3)), mn.Dense(1))

    @dataclass(frozen=True)
    class Places(mn.spec.parametrization.Parametrization):
        def row(
            self, role: mn.spec.parametrization.Role, fan_in: int, fan_out: int, sigma: float
        ) -> mn.spec.parametrization.Row:
            return mn.spec.parametrization.Row({"input": 1.0, "hidden": 2.0, "output": 3.0}[role.place], 1.0)

    tensors = mn.Network(spec, (2,), Places()).layout.tensors
    assert {t.name: t.row.multiplier for t in tensors} == {
        "0.branch.0.W": 1.0,
        "0.branch.1.W": 2.0,
        "0.shortcut.W": 1.0,
        "1.W": 3.0,
    }


def test_dense_wants_vectors() -> None:
    with pytest.raises(
        ValueError, match=r"expects examples of shape \(d,\), got \(4, 5\): put mn\.Flatten\(\) before it"
    ):
        out_shape(mn.Dense(3), (4, 5))


def test_residual_wants_equal_shapes() -> None:
    with pytest.raises(
        ValueError, match=r"they give \(4,\), \(3,\): make the widths equal, or .*shortcut=mn\.Dense\(4\)"
    ):
        out_shape(mn.Residual(mn.Dense(4)), (3,))


def test_an_unknown_layer_says_what_to_register() -> None:
    class Unknown(mn.spec.Layer):
        pass

    with pytest.raises(
        UnsupportedLayer, match=r"Unknown has no output shape: register minintk\.spec\.shapes\.out_shape"
    ):
        mn.Network(mn.Sequential(Unknown()), (3,))
    out_shape.register(Unknown, lambda layer, shape: shape)
    with pytest.raises(
        UnsupportedLayer, match=r"Unknown has no finite meaning: register minintk\.layers\.contract\.bind"
    ):
        mn.Network(mn.Sequential(Unknown()), (3,))
    with pytest.raises(UnsupportedLayer, match=r"Unknown has no phi: register minintk\.layers\.activation\.pointwise"):
        pointwise(Unknown())


def test_every_layer_of_the_package_has_a_finite_meaning() -> None:
    layers = [
        thing
        for thing in vars(mn.spec).values()
        if isinstance(thing, type)
        and issubclass(thing, mn.spec.Layer)
        and thing not in (mn.spec.Layer, mn.spec.Activation, mn.spec.Convolution, mn.spec.Pooling, mn.spec.Several)
    ]
    assert len(layers) >= 14
    for layer in layers:
        meaning = bind.dispatch(layer)
        assert meaning is not bind.dispatch(mn.spec.Layer), layer
