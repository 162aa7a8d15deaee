"""Linear networks at infinite width: what the limits in which features move share, their scales and their data.

    f(x) = 1/(gamma0 sqrt(n)) f_net(x),    theta' = -gamma0^2 n grad L,    f_net the spec in the NTK parametrization

with hidden widths n -> infinity and gamma0 fixed.  The division makes outputs small, so features have to move to fit
the targets; the learning rate gamma0^2 n makes up for it, so f starts with the tangent kernel of f_net.  gamma0 is how
much features move: gamma0 -> 0 is the NTK's linearised training, gamma0 = 1 mean field (muP for these networks).  At
width n it is

    model = mn.Centred(net, theta0, alpha=1 / (gamma0 * n**0.5)),    lr = (t / steps) / alpha**2

(f starts at zero in the limit; `Centred` takes off what is left of it at width n, of order 1/(gamma0 sqrt(n)).)

A linear network sees inputs through their span alone.  With x~ = x / sqrt(d) and B, (d, r), an orthonormal basis of
the span of X~, all that happens in training is F : (r, C) with f(x) = (x~ B) F, driven by e = (X~ B)' (Y - f(X)) / N.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

import numpy as np

from analytic.training.dynamics import check_targets
from minintk import spec as s
from minintk.arrays import Array, array_namespace, check_examples, to_host, to_library
from minintk.spec.shapes import UnsupportedLayer

Host = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False, repr=False)
class LinearProblem:
    """A bias-free linear network's data, in the basis of the directions that it sees; on the host, in float64.

    w_std : sigma of each weight matrix, input first, L + 1 of them for L hidden layers.  gamma0 : >= 0.
    Z : (N, r), X~ B.  B : (d, r).  Y : (N, C).  like : the caller's x, for its library and dtype.
    """

    w_std: tuple[float, ...]
    gamma0: float
    Z: Host
    B: Host
    Y: Host
    like: Array

    @property
    def sizes(self) -> tuple[int, int]:
        """(r, C)."""
        return self.Z.shape[1], self.Y.shape[1]

    def drive(self, F: Host) -> Host:
        """e = Z' (Y - Z F) / N, (r, C): minus the gradient of L = 1/(2N) sum |f - y|^2 in F."""
        return np.asarray(self.Z.T @ (self.Y - self.Z @ F) / len(self.Z))

    def seen(self, x: Array | None) -> tuple[Host, Host]:
        """(x~, x~ B), (M, d) and (M, r); of the training set where x is None."""
        if x is None:
            return self.Z @ self.B.T, self.Z
        check_examples("x_test", x, (len(self.B),))
        array_namespace(x, self.like)
        tilde = np.asarray(to_host(x), dtype=np.float64) / sqrt(len(self.B))
        return tilde, tilde @ self.B

    def given(self, a: Host) -> Array:
        """A result in the caller's library and dtype."""
        return to_library(np.asarray(a, dtype=str(self.like.dtype)), array_namespace(self.like))


def problem(spec: s.Layer, x: Array, y: Array, gamma0: float) -> LinearProblem:
    """Check and reduce: a spec of Dense layers without bias or activation, x : (N, d), y : (N, C)."""
    layers = [layer for layer in s.as_sequential(spec).layers if not isinstance(layer, s.Identity)]
    for layer in layers:
        if not isinstance(layer, s.Dense) or layer.b_std > 0:
            raise UnsupportedLayer(
                f"the limits in which features move are closed for linear networks only, Dense layers with b_std = 0, "
                f"got {layer!r}"
            )
    dense = [layer for layer in layers if isinstance(layer, s.Dense)]
    if len(dense) < 2:
        raise ValueError(f"expected a hidden layer at least, mn.Dense(n), mn.Dense(C), got {len(dense)} layer(s)")
    check_gamma0(gamma0)
    check_examples("x", x)
    check_targets(y)
    array_namespace(x, y)
    if x.ndim != 2:
        raise ValueError(f"x expects shape (N, d), got {tuple(x.shape)}: flatten it, x.reshape({x.shape[0]}, -1)")
    N, d = x.shape
    if d == 0:
        raise ValueError(f"x expects shape (N, d), d >= 1, got {tuple(x.shape)}: there is nothing to learn from")
    if N == 0 or tuple(y.shape) != (N, dense[-1].width):
        raise ValueError(f"y expects shape (N, C) = {(N, dense[-1].width)}, N >= 1, got {tuple(y.shape)}")
    tilde = np.asarray(to_host(x), dtype=np.float64) / sqrt(d)
    _, size, Bt = np.linalg.svd(tilde, full_matrices=False)
    B = Bt[size > max(N, d) * np.finfo(np.float64).eps * size[0]].T
    return LinearProblem(
        tuple(layer.w_std for layer in dense), float(gamma0), tilde @ B, B, np.asarray(to_host(y), dtype=np.float64), x
    )


def check_gamma0(gamma0: float) -> None:
    """ValueError unless gamma0 is a finite number >= 0."""
    if isinstance(gamma0, bool) or not hasattr(gamma0, "__float__") or not isfinite(gamma0) or gamma0 < 0:
        raise ValueError(f"gamma0 expects a finite number >= 0 (0: features stay, the NTK's training), got {gamma0!r}")
