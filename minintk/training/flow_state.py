"""Define the state s and gradient g of a flow: s = theta and g = grad L, or s = f and g = K dL/df with constant K."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import ClassVar, Protocol

import numpy as np

from minintk.arrays import Array, array_namespace
from minintk.models.model import Model
from minintk.threads import parallel, single_threaded_blas
from minintk.thresholds import THRESHOLDS
from minintk.training.kernel_descent import product
from minintk.training.train import member_slices

Cotangent = Callable[[Array, Array], Array]
"""A function (f, y) -> dL/df."""


class WeightSpace:
    """A flow of parameters, s = theta and g = S J' dL/df with scales S.  whole : True if each step uses all of x."""

    ndims: ClassVar[int] = 1  # number of axes of s for one network

    def __init__(self, model: Model, x: Array, scales: Array | None, theta: Array, whole: bool) -> None:
        self.model, self.x, self.scales, self.theta, self.whole = model, x, scales, theta, whole
        self.parts = member_slices(model, theta, x.shape[0])
        share = model.members if not whole else lambda at: model.members(at).fixed(x)
        self.models: list[Model] = parallel(share, self.parts)

    def learn(self, s: Array, at: Array | None, y: Array, cotangent: Cotangent) -> tuple[Array, Array]:
        """Return (f, g) for the training examples `at` (None for all) with targets y."""
        xp, x = array_namespace(s), self.x if at is None else self.x[at]
        g = xp.empty_like(s)

        def work(i: int) -> Array:
            with np.errstate(over="ignore", invalid="ignore"):  # steps with an overflow are rejected
                f, J = self.models[i].forward(s[self.parts[i]], x)
                J.pull(cotangent(f, y), g[self.parts[i]])
            return f

        fs = parallel(work, range(len(self.parts)))
        if self.scales is not None:
            g *= self.scales
        return fs[0] if len(fs) == 1 else xp.concat(fs), g

    def outputs(self, s: Array, at: Array | None) -> Array:
        """Return f for the training examples `at`, without g."""
        x = self.x if at is None else self.x[at]
        N, step = x.shape[0], x.shape[0] if self.model.coupled else 1000
        with np.errstate(over="ignore", invalid="ignore"):
            parts = [self.model.forward(s, x[i : i + step])[0] for i in range(0, N, step)]
        return array_namespace(s).concat(parts, axis=-2)

    def on(self, model: Model) -> WeightSpace:
        """Return this system with another model."""
        return self if model is self.model else WeightSpace(model, self.x, self.scales, self.theta, self.whole)

    def after(self, s: Array) -> WeightSpace:
        """Return the system after a step to s: this system itself, unless the model's anchor moves."""
        return self.on(self.model.advance(s))


class FrozenKernel:
    """A flow of outputs, s = f : ([E], M, C) on M points, of which the first N are training points, and g = K dL/df."""

    ndims: ClassVar[int] = 2

    def __init__(self, kernel: Array, full: bool, N: int) -> None:
        self.kernel, self.full, self.N = kernel, full, N

    def learn(self, s: Array, at: Array | None, y: Array, cotangent: Cotangent) -> tuple[Array, Array]:
        f, K = self.outputs(s, at), self.kernel
        small = K.size * f.shape[-1] < THRESHOLDS.contraction
        with np.errstate(over="ignore", invalid="ignore"), single_threaded_blas() if small else nullcontext():
            K = K if at is None else K[..., at, :] if self.full else K[..., at]
            return f, product(K, cotangent(f, y), self.full)

    def outputs(self, s: Array, at: Array | None) -> Array:
        f = s[..., : self.N, :]
        return f if at is None else f[..., at, :]

    def after(self, s: Array) -> FrozenKernel:
        return self


class System(Protocol):
    """The interface between a flow and its integrator (see `WeightSpace`)."""

    @property
    def ndims(self) -> int: ...
    def learn(self, s: Array, at: Array | None, y: Array, cotangent: Cotangent) -> tuple[Array, Array]: ...
    def outputs(self, s: Array, at: Array | None) -> Array: ...
    def after(self, s: Array) -> System: ...
