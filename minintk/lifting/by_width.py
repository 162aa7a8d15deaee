"""Convert a function that makes a torch module of a given width into networks whose weights torch draws.

    make(n) -> module                        all weights train at one rate, as with a plain torch optimiser
    make(n) -> module, {name: factor}        the factors multiply the rates of named parameters, like optimiser groups

A coordinate check of these networks tests the module with its own initialisation and learning rates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from minintk.layers.contract import Layout
from minintk.lifting.lift import lift
from minintk.lifting.slots import pairs
from minintk.models.network import Network
from minintk.spec.shapes import Shape, UnsupportedLayer
from minintk.validate import precision, whole


def of_width(make: Callable[[int], Any], width: int, shape: Shape) -> Network:
    """Return the lifted network of this width.  `init` calls `make` again for every member.

    Torch draws the weights, so `torch.manual_seed` makes them reproducible; rng is unused.  Raises the errors of
    `lift`, and ValueError if a rate factor names an unknown parameter.
    """
    made = make(width)
    module, rates = made if isinstance(made, tuple) else (made, {})
    net, _ = lift(module, shape)
    names = {group[key][0]: t.name for slot, group in pairs(net, module.state_dict(), "torch")
             for key, t in slot.tensors.items()}  # fmt: skip
    if unknown := sorted(set(rates) - set(names)):
        raise ValueError(f"rates expects names among {list(names)}, got {unknown}: the module's named_parameters()")
    scales = {names[name]: float(rate) for name, rate in rates.items()}
    drawn = Drawn(net, make, width, scales)
    drawn.check_statistics()
    return drawn


class Drawn(Network):
    """A lifted network with weights drawn by torch, from a new module for each member of an ensemble."""

    def __init__(self, net: Network, make: Callable[[int], Any], width: int, scales: Mapping[str, float]) -> None:
        vars(self).update(vars(net))
        self.make, self.width, self.scales = make, width, scales
        rows = {t.name: replace(t.row, lr=scales.get(t.name, 1.0), adam=None) for t in net.layout.tensors}
        self.layout = Layout(tuple(replace(t, row=rows[t.name]) for t in net.layout.tensors))

    def check_statistics(self) -> None:
        """Raise UnsupportedLayer for frozen statistics, e.g. of BatchNorm, because they belong to one module."""
        if self.statistics:
            raise UnsupportedLayer(
                "a function of width expects modules without normalisation by batches or with weights"
            )

    def init(
        self, rng: np.random.Generator, *, ensemble: int | None = None, dtype: Any = np.float64
    ) -> np.ndarray[Any, Any]:
        """Return theta : (P,) or (E, P), as torch draws it.  rng is not used."""
        drawn = []
        for _ in range(1 if ensemble is None else whole("ensemble", ensemble)):
            made = self.make(self.width)
            module = made[0] if isinstance(made, tuple) else made
            drawn.append(lift(module, self.input_shape, check=False)[1].astype(precision(dtype)))
        return drawn[0] if ensemble is None else np.stack(drawn)
