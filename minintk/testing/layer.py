"""Every law for one layer, in small networks with the layer in every place; see `minintk.testing`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from minintk import spec as s
from minintk.models.network import Network
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import Shape, out_shape
from minintk.testing.laws import check_float32, check_model


def check_layer(layer: s.Layer, shape: Sequence[int], parametrization: Parametrization | None = None) -> None:
    """Every law for small networks with this layer first, in the middle, last and as a residual branch.

    shape : of one example as it enters the layer, ``(d,)``, ``(L, C)`` or ``(H, W, C)``.  AssertionError with the law
    that is broken, and with what `minintk.grade.diagnose_layer` finds: jvp, vjp or gram, which tensor, what it looks
    like.

    >>> import minintk as mn
    >>> check_layer(mn.Dense(4, b_std=0.5), (3,))
    >>> check_layer(mn.Flatten(), (2, 2, 3))
    """
    try:
        _laws(layer, shape, parametrization)
    except Exception as error:
        from minintk.grade.layer import diagnose_layer  # only for layers that are wrong

        said = ""
        with suppress(Exception):  # a layer may be too broken to be looked at
            said = str(diagnose_layer(layer, shape, parametrization) or "")
        if not said:
            raise
        raise AssertionError(f"{error}\n{said}") from error


def _laws(layer: s.Layer, shape: Sequence[int], parametrization: Parametrization | None) -> None:
    shape = tuple(shape)
    after = out_shape(layer, shape)
    end = [s.Flatten()] if len(after) > 1 else []
    networks = [
        s.Sequential(layer, *end, s.Dense(2)),
        s.Sequential(weights(shape), layer, weights(after), *end, s.Dense(2)),
        s.Sequential(weights(shape), layer, *end),
    ]
    if after == shape:
        networks.append(s.Sequential(weights(shape), s.Residual(layer), *end, s.Dense(2)))
    for number, spec in enumerate(networks):
        rng = np.random.default_rng(number)
        network = Network(spec, shape, parametrization)
        x = rng.standard_normal((4, *shape))
        theta = network.init(rng, ensemble=2)
        theta += 0.5 * rng.standard_normal(theta.shape)  # away from zero-initialised biases
        check_model(network, theta, x, rng)
        check_model(network, theta[0], x[:1], rng)
        check_float32(network, theta[0], x, rng)


def weights(shape: Shape) -> s.Layer:
    """A layer with weights that keeps this shape: those after it must pass u dy/dx on to it."""
    if len(shape) == 1:
        return s.Dense(shape[-1], b_std=0.5)
    return (s.Conv1d if len(shape) == 2 else s.Conv2d)(shape[-1], 1, b_std=0.5)
