"""theta is one vector: the Layout gives its named pieces as views, and draws it.

theta : (P,), or (E, P) for an ensemble of E networks.  A piece of shape (a, b) is a view (a, b), or (E, a, b).
Differences, norms, optimisers and checkpoints work on the vector and need no code of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from minintk.arrays import Array, array_namespace
from minintk.spec.parametrization import Row, Rule
from minintk.spec.shapes import Shape
from minintk.validate import number


@dataclass(frozen=True)
class Tensor:
    """A named piece of theta: its shape and its row of the parametrization table."""

    name: str
    shape: Shape
    row: Row

    @property
    def size(self) -> int:
        return prod(self.shape)


class Layout:
    """Where each tensor lies in theta.

    >>> from minintk import Dense, Network
    >>> layout = Network(Dense(2, b_std=0.1), (3,)).layout
    >>> layout
    Layout(0.W (3, 2), 0.b (2,); P = 8)
    >>> theta = layout.pack({"0.W": np.ones((3, 2)), "0.b": np.zeros(2)})
    >>> layout.unpack(theta)["0.b"]
    array([0., 0.])
    """

    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        self.tensors = tensors
        self.slices: dict[str, slice] = {}
        start = 0
        for tensor in tensors:
            self.slices[tensor.name] = slice(start, start + tensor.size)
            start += tensor.size
        self.size = start

    def __repr__(self) -> str:
        return f"Layout({', '.join(f'{t.name} {t.shape}' for t in self.tensors)}; P = {self.size})"

    def unpack(self, theta: Array) -> dict[str, Array]:
        """Named views into theta : (..., P); writing to a view writes to theta."""
        if theta.ndim < 1 or theta.shape[-1] != self.size:
            raise ValueError(f"theta expects shape (..., {self.size}), got {tuple(theta.shape)}")
        lead = theta.shape[:-1]
        return {t.name: theta[..., self.slices[t.name]].reshape(lead + t.shape) for t in self.tensors}

    def pack(self, pieces: Mapping[str, Array]) -> Array:
        """theta : (P,) from named tensors, or (E, P) where each has a leading ensemble axis."""
        if missing := [t.name for t in self.tensors if t.name not in pieces]:
            raise ValueError(f"pack expects {[t.name for t in self.tensors]}, missing {missing}")
        if unknown := [name for name in pieces if name not in self.slices]:
            raise ValueError(f"pack got unknown names {unknown}; this layout has {[t.name for t in self.tensors]}")
        xp = array_namespace(*pieces.values())
        flat, lead = [], None
        for t in self.tensors:
            a = pieces[t.name]
            here = tuple(a.shape[: a.ndim - len(t.shape)])
            if tuple(a.shape[a.ndim - len(t.shape) :]) != t.shape or (lead is not None and here != lead):
                want = t.shape if not lead else (*lead, *t.shape)
                raise ValueError(f"pack expects {t.name} of shape {want}, got {tuple(a.shape)}")
            lead = here
            flat.append(a.reshape((*here, t.size)))
        return xp.concat(flat, axis=-1)

    def init(self, rng: np.random.Generator, ensemble: int | None, dtype: Any) -> np.ndarray[Any, Any]:
        """Draw theta on the host: every tensor from its row, member after member, tensor after tensor.

        The draws are made in float64 and cast, so float32 and float64 networks start from the same numbers,
        and the first member of an ensemble is the network that the same generator gives alone.
        """
        theta = np.empty((1 if ensemble is None else ensemble, self.size), dtype)
        for member in theta:
            for t in self.tensors:
                piece, std = member[self.slices[t.name]], t.row.std
                if std == 0:
                    piece[:] = 0
                elif t.row.draw == "normal":
                    piece[:] = std * rng.standard_normal(t.size)
                else:
                    piece[:] = rng.uniform(-(3**0.5) * std, 3**0.5 * std, t.size)
        return theta[0] if ensemble is None else theta

    def learning_rate_scales(
        self, override: Mapping[str, float] | None = None, rule: Rule = "sgd"
    ) -> np.ndarray[Any, Any] | None:
        """The scale of each parameter's learning rate, (P,); None where all are 1.

        override : {tensor name: scale}; 0 freezes a tensor.  rule : the optimiser's, `Optimizer.rule`.
        """
        if override is not None and not isinstance(override, Mapping):
            raise TypeError(f"lr_scales expects {{tensor name: scale}}, got {override!r}")
        override = dict(override or {})
        if unknown := sorted(set(override) - set(self.slices)):
            raise ValueError(f"lr_scales names unknown tensors {unknown}; this layout has {list(self.slices)}")
        own = {t.name: t.row.rate(rule) for t in self.tensors}
        scales = {name: number(f"lr_scales[{name!r}]", s, zero=True) for name, s in (own | override).items()}
        if all(scale == 1 for scale in scales.values()):
            return None
        return np.concatenate([np.full(t.size, scales[t.name]) for t in self.tensors])
