"""Apply the Jacobian of a model's outputs with respect to theta, J : (N, C, P), as a linear map without forming it.

    jvp    v -> J v          from a change of the parameters to a change of the outputs
    vjp    u -> J' u         from a cotangent of the outputs to a gradient
    gram   J J'              (N, C, N, C); the tangent kernel includes learning-rate scales (`minintk.models.empirical`)

With an ensemble, every result has an axis E.  v and u can have an additional leading axis K, for K vectors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import nan
from typing import Any

from minintk.arrays import Array, array_namespace, check_finite_by, check_floating, to_host, to_library
from minintk.layers.contract import Contraction, LayerJacobian, Layout
from minintk.layers.norm import UNCALIBRATED


class Jacobian(ABC):
    """The linear map J, (P,) -> (N, C), of one network or of each of the E members of an ensemble.

    To write your own Jacobian, define the four attributes and the maps `push` and `pull`.

    size : P.  outputs : (N, C).  ensemble : E, or None.  like : an array with the library and the dtype of theta.
    """

    size: int
    outputs: tuple[int, int]
    ensemble: int | None
    like: Array

    @abstractmethod
    def push(self, v: Array) -> Array:
        """Return J v : ([K], [E], N, C) for v : ([K], [E], P).  `jvp` checks the shape and dtype of v."""

    @abstractmethod
    def pull(self, u: Array, out: Array) -> None:
        """Write J' u to out : ([K], [E], P), for u : ([K], [E], N, C).  `vjp` checks both shapes and the dtype of u."""

    def contract(self, other: Jacobian, kernel: Contraction) -> Array:
        """Return J S J_other' as `kernel` specifies, with a backward and a forward sweep per row of J_other."""
        (N, C), (M, _), xp = self.outputs, other.outputs, array_namespace(self.like)
        k = xp.zeros((*self.lead, N, C, M, C) if kernel.full else (*self.lead, N, M), dtype=self.like.dtype)
        for row in range(M * C):
            u = xp.zeros((*self.lead, M * C), dtype=self.like.dtype)
            u[..., row] = 1
            v = xp.zeros((*self.lead, self.size), dtype=self.like.dtype)
            other.pull(u.reshape((*self.lead, M, C)), v)
            if kernel.S is not None:
                v *= to_library(kernel.S.astype(str(v.dtype)), xp)
            if kernel.full:
                k[..., row // C, row % C] = self.push(v)
            else:
                k[..., row // C] += self.push(v)[..., row % C]
        return k

    @property
    def lead(self) -> tuple[int, ...]:
        """Return the leading axes of all results, () or (E,)."""
        return () if self.ensemble is None else (self.ensemble,)

    def jvp(self, v: Array) -> Array:
        """Return J v : ([K], [E], N, C) for a tangent v : ([K], [E], P).  Raise ValueError if v is not finite."""
        check_argument("v", v, self.like, (*self.lead, self.size), 1)
        dy = self.push(v)
        check_finite_by(dy, "v", v)
        return dy

    def vjp(self, u: Array, out: Array | None = None) -> Array:
        """Return J' u : ([K], [E], P), in `out` if given.  Raise ValueError unless u : ([K], [E], N, C) is finite."""
        check_argument("u", u, self.like, (*self.lead, *self.outputs), 1)
        check_finite_by(u, "u", u)
        shape = (*u.shape[:-2], self.size)
        if out is None:
            out = array_namespace(u).full(shape, nan, dtype=u.dtype)  # NaN reveals layers that do not write their part
        elif tuple(out.shape) != shape:
            raise ValueError(f"vjp(out=...) expects shape {shape}, got {tuple(out.shape)}")
        self.pull(u, out)
        return out

    def gram(self, other: Jacobian | None = None) -> Array:
        """Return J J' : ([E], N, C, N, C), or J J_other' : ([E], N, C, M, C).  Reshape to (N*C, M*C) for a matrix."""
        return self.gram_by(other, Contraction(full=True))

    def trace_gram(self, other: Jacobian | None = None) -> Array:
        """Return sum_c (J J')[n, c, m, c] : ([E], N, M), at as little as 1/C of the cost of `gram`."""
        return self.gram_by(other, Contraction(full=False))

    def gram_by(self, other: Jacobian | None, kernel: Contraction) -> Array:
        """Return J S J_other' : ([E], N, C, M, C), or its trace over outputs, as `kernel` specifies."""
        other = self if other is None else other
        xp = array_namespace(self.like, other.like)
        mine, theirs = ((A.size, A.outputs[1], A.ensemble, A.like.dtype) for A in (self, other))
        if mine != theirs:
            raise ValueError(f"gram(other) expects a Jacobian of the same (P, C, E, dtype) = {mine}, got {theirs}")
        (N, C), M = self.outputs, other.outputs[0]
        if not N * M:
            return xp.zeros((*self.lead, N, C, M, C) if kernel.full else (*self.lead, N, M), dtype=self.like.dtype)
        return self.contract(other, kernel)

    def dense(self) -> Array:
        """Compute J as an array ([E], N, C, P), with little additional memory.  A sweep yields up to 16 rows."""
        xp, C = array_namespace(self.like), self.outputs[1]
        rows = xp.empty((*self.lead, self.outputs[0] * C, self.size), dtype=self.like.dtype)
        for start, J in self.parts():
            n = J.outputs[0]
            for i in range(0, n * C, 16):
                u = xp.eye(n * C, dtype=self.like.dtype)[i : i + 16].reshape((-1, *(1 for _ in self.lead), n, C))
                some = J.vjp(xp.broadcast_to(u, (u.shape[0], *self.lead, n, C)))
                rows[..., start * C + i : start * C + i + u.shape[0], :] = xp.moveaxis(some, 0, -2)
        return rows.reshape((*self.lead, *self.outputs, self.size))

    def parts(self) -> Iterator[tuple[int, Jacobian]]:
        """Yield (index of the first example, Jacobian) for each block of examples, by default a single block."""
        yield 0, self

    def as_linear_operator(self) -> Any:
        """Return J of one network as a SciPy `LinearOperator` of shape (N C, P) that acts on host vectors.

        >>> import numpy as np, minintk as mn, scipy.sparse.linalg
        >>> net = mn.Network(mn.Dense(2), (3,))
        >>> _, J = net.linearize(net.init(np.random.default_rng(0)), np.eye(3))
        >>> w, *_ = scipy.sparse.linalg.lsqr(J.as_linear_operator(), np.ones(6))
        >>> bool(np.allclose(J.jvp(w), 1))
        True
        """
        from scipy.sparse.linalg import LinearOperator

        if self.ensemble is not None:
            raise ValueError("as_linear_operator expects the Jacobian of one network: a member theta[i]")
        xp, (N, C), dtype = array_namespace(self.like), self.outputs, str(self.like.dtype)

        def on_vectors(by: Callable[[Array], Array], shape: tuple[int, ...]) -> Callable[[Any], Any]:
            return lambda a: to_host(by(to_library(a.astype(dtype, copy=False).reshape(shape), xp))).ravel()

        across, back = on_vectors(self.jvp, (self.size,)), on_vectors(self.vjp, (N, C))
        return LinearOperator((N * C, self.size), matvec=across, rmatvec=back, dtype=dtype)


@dataclass(frozen=True, eq=False)
class NetworkJacobian(Jacobian):
    """The Jacobian of a network, computed from its layers' Jacobians and the layout that splits theta into weights.

    coupled : `Model.coupled`; if True, no kernel exists.  at : the network, layers and x with which J was computed.
    """

    root: LayerJacobian
    layout: Layout
    outputs: tuple[int, int]
    ensemble: int | None
    like: Array
    coupled: bool = False
    at: tuple[Any, Any, Any] = (None, None, None)

    @property
    def size(self) -> int:  # type: ignore[override]
        return self.layout.size

    def push(self, v: Array) -> Array:
        dy = self.root.jvp(self.layout.unpack(v), None)
        return array_namespace(v).zeros((*v.shape[:-1], *self.outputs), dtype=v.dtype) if dy is None else dy

    def pull(self, u: Array, out: Array) -> None:
        self.root.vjp(u, self.layout.unpack(out))

    def parts(self) -> Iterator[tuple[int, Jacobian]]:
        """Yield J for blocks of eight examples, or one block if coupled.  Sweeps for an example need only its block."""
        net, layers, x = self.at
        if net is None or self.coupled:
            yield 0, self
        else:
            yield from ((i, net._through(layers, self.like, x[i : i + 8])[1]) for i in range(0, self.outputs[0], 8))

    def contract(self, other: Jacobian, kernel: Contraction) -> Array:
        """Return J S J_other', layer by layer and without forward sweeps if `other` is a `NetworkJacobian` too."""
        if self.coupled:
            raise ValueError(UNCALIBRATED)
        net, layers, _ = self.at
        if isinstance(other, NetworkJacobian) and net is other.at[0] is not None and layers is not other.at[1]:
            other = net._through(layers, other.like, other.at[2])[1]  # the choice of layers depends on the batch size
        if not isinstance(other, NetworkJacobian) or type(other.root) is not type(self.root):
            return super().contract(other, kernel)
        (N, C), M, xp = self.outputs, other.outputs[0], array_namespace(self.like)
        u = xp.eye(C, dtype=self.like.dtype).reshape((C, *(1 for _ in self.lead), 1, C))
        k = self.root.gram(u, other.root, u, kernel)
        kernel.check_asked(self.layout)
        shape = (*self.lead, N, C, M, C) if kernel.full else (*self.lead, N, M)
        return k if not isinstance(k, float | int) and k.shape == shape else xp.zeros(shape, dtype=self.like.dtype) + k


def check_argument(name: str, a: Array, like: Array, shape: tuple[int, ...], more: int) -> None:
    """Raise an error unless `a` has the dtype of `like` and a shape of at most `more` axes followed by `shape`."""
    check_floating(name, a)
    array_namespace(like, a)
    if tuple(a.shape[-len(shape) :]) != shape or a.ndim > len(shape) + more:
        raise ValueError(f"{name} expects shape {shape}, or (K, ...) in front of it, got {tuple(a.shape)}")
    if a.dtype != like.dtype:
        raise TypeError(f"{name} expects {like.dtype}, the dtype of theta, got {a.dtype}: convert it by astype")
