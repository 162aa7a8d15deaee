"""Define the parts that the feature-learning limits share: layers, scales, and the data of linear networks.

    f(x) = 1/(gamma0 sqrt(n)) f_net(x),    theta' = -gamma0^2 n grad L,    f_net : the spec in the NTK parametrization

with hidden widths n -> infinity and gamma0 fixed.  Dividing by sqrt(n) makes outputs small, so features must move to
fit the targets.  The learning rate gamma0^2 n compensates for this division, so f starts with the tangent kernel of
f_net.  gamma0 controls how much features move: gamma0 -> 0 gives linearised (NTK) training, and gamma0 = 1 the
mean-field limit (muP for these networks).  At width n, the limit corresponds to

    model = mn.Centred(net, theta0, alpha=1 / (gamma0 * n**0.5)),    lr = (t / steps) / alpha**2

(f starts at zero in the limit; `Centred` subtracts its initial value at width n, of order 1/(gamma0 sqrt(n)).)

Let x~ = x / sqrt(d), and let B : (d, r) be an orthonormal basis of the span of the training inputs, the rows of X~.
Then f(x) = (x~ B) F in the limit, and F : (r, C) is driven by e = (X~ B)' (Y - f(X)) / N.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from analytic.training.dynamics import check_targets
from minintk import spec as s
from minintk.arrays import Array, Host, array_namespace, check_examples, own, to_host, to_library
from minintk.spec.shapes import UnsupportedLayer
from minintk.validate import number


@dataclass(frozen=True, eq=False, repr=False)
class LinearProblem:
    """A bias-free linear network's data in a basis of its inputs' span, on the host in float64.

    w_std : sigma of each of the L + 1 weight matrices, starting at the input, for L hidden layers.  gamma0 : >= 0.
    Z : (N, r), X~ B.  B : (d, r).  Y : (N, C).  like : an array of the caller's library and dtype.
    """

    w_std: tuple[float, ...]
    gamma0: float
    Z: Host
    B: Host
    Y: Host
    like: Array

    @property
    def sizes(self) -> tuple[int, int]:
        """Return (r, C)."""
        return self.Z.shape[1], self.Y.shape[1]

    def drive(self, F: Host) -> Host:
        """Return the drive e = Z' (Y - Z F) / N, (r, C), i.e. -dL/dF for L = 1/(2N) sum |f - y|^2."""
        return np.asarray(self.Z.T @ (self.Y - self.Z @ F) / len(self.Z))

    def in_basis(self, x: Array | None) -> tuple[Host, Host]:
        """Return x~ : (M, d) and x~ B : (M, r), for the training set if x is None."""
        if x is None:
            return self.Z @ self.B.T, self.Z
        check_examples("x_test", x, (len(self.B),))
        array_namespace(x, self.like)
        tilde = np.asarray(to_host(x), dtype=np.float64) / sqrt(len(self.B))
        return tilde, tilde @ self.B

    def spread(self, layer: int, H: Host, x: Array | None) -> Host:
        """Return E h h' of layer 1 ... L at x, (M, M), from H : (r, r) in the basis; for layer 0, the input, H = I.

        Directions outside the training set's span keep their initial covariance.
        """
        tilde, z = self.in_basis(x)
        start = float(np.prod(np.square(self.w_std[:layer])))
        return np.asarray(start * tilde @ tilde.T + z @ (H - start * np.eye(len(H))) @ z.T)

    def ntk(self, H: Iterable[Host], G: Iterable[Host], x: Array | None) -> Array:
        """Return Theta = sum_l sigma_l^2 H^l tr G^{l+1} / C, (M, M), for l = 0 ... L, as in `minintk.ntk`.

        H^1 ... H^L : (r, r), in the basis.  G^1 ... G^L : (C, C), the backward signals' kernels; H^0 = I, G^{L+1} = I.
        """
        spreads = [self.spread(at, h, x) for at, h in enumerate([np.eye(self.sizes[0]), *H])]
        shares = [*(np.trace(g) / len(g) for g in G), 1.0]
        return self.to_caller(sum(w**2 * g * h for w, g, h in zip(self.w_std, shares, spreads, strict=True)))

    def to_caller(self, a: Host) -> Array:
        """Convert a result to the caller's library and dtype."""
        return to_library(np.asarray(a, dtype=str(self.like.dtype)), array_namespace(self.like))


def linear_problem(spec: s.Layer, x: Array, y: Array, gamma0: float) -> LinearProblem:
    """Check x : (N, d), y : (N, C) and a spec of bias-free Dense layers; return the problem in the basis."""
    dense, phi = hidden_layers(spec)
    if any(layer.b_std > 0 for layer in dense) or set(phi) != {s.Identity()}:
        raise UnsupportedLayer(
            f"the limits in which features move have closed equations for linear networks only, Dense layers with "
            f"b_std = 0, got {spec!r}: take analytic.feature_learning_limit"
        )
    gamma0 = number("gamma0", gamma0, zero=True)
    check_data(x, y, dense[-1].width)
    N, d = x.shape
    tilde = np.asarray(to_host(x), dtype=np.float64) / sqrt(d)
    _, size, Bt = np.linalg.svd(tilde, full_matrices=False)
    B = Bt[size > max(N, d) * np.finfo(np.float64).eps * size[0]].T
    Y = np.array(to_host(y), dtype=np.float64)  # a copy, because the limits are evaluated later
    return LinearProblem(tuple(layer.w_std for layer in dense), gamma0, tilde @ B, B, Y, own(x[:0]))


def hidden_layers(spec: s.Layer) -> tuple[tuple[s.Dense, ...], tuple[s.Layer, ...]]:
    """Return Dense layers and hidden activations; raise UnsupportedLayer or ValueError for other architectures."""
    dense, phi = list[s.Dense](), list[s.Layer]()
    for layer in s.as_sequential(spec).layers:
        if isinstance(layer, s.Dense):
            dense.append(layer)
            phi.append(s.Identity())
        elif isinstance(layer, s.Activation) and phi and phi[-1] == s.Identity():
            phi[-1] = layer
        elif layer != s.Identity():
            raise UnsupportedLayer(
                f"expected Dense layers, each but the last with one activation after it, got {layer!r}"
            )
    if len(dense) < 2 or phi.pop() != s.Identity():
        raise ValueError("expected a hidden layer at least and no activation at the end, mn.Dense(n), ..., mn.Dense(C)")
    return tuple(dense), tuple(phi)


def integrated(
    rate: Callable[[float, Host], Host], start: Host, times: Host, rtol: float, atol: float
) -> np.ndarray[Any, Any]:
    """Solve d state/dt = rate(t, state) from `start` : (n,); return states (T, n) at times (T,) >= 0 in any order.

    rtol, atol : the tolerated error per step is atol + rtol |value|.  Raises RuntimeError if the solver fails.
    """
    from scipy.integrate import solve_ivp

    order, at = np.unique(times, return_inverse=True)
    if not len(order) or order[-1] == 0:
        return np.tile(start, (len(times), 1))
    method = "LSODA" if len(start) < 1000 else "DOP853"  # LSODA stores n^2 numbers
    done = solve_ivp(rate, (0, order[-1]), start, method, order, rtol=rtol, atol=atol)
    if not done.success:
        raise RuntimeError(f"the solver stopped at t = {done.t[-1] if len(done.t) else 0:g}: {done.message}")
    return np.asarray(done.y.T[at])


def check_data(x: Array, y: Array, C: int, x_test: Array | None = None) -> list[Array]:
    """Check x : (N, d), y : (N, C), x_test : (M, d), of the same array library; return [x, x_test] or [x]."""
    check_examples("x", x)
    check_targets(y)
    array_namespace(x, y)
    if x.ndim != 2:
        raise ValueError(f"x expects shape (N, d), got {tuple(x.shape)}: flatten it, x.reshape({x.shape[0]}, -1)")
    N, d = x.shape
    if d == 0:
        raise ValueError(f"x expects shape (N, d), d >= 1, got {tuple(x.shape)}: there is nothing to learn from")
    if tuple(y.shape) != (N, C):
        raise ValueError(f"y expects shape (N, C) = {(N, C)}, got {tuple(y.shape)}")
    if x_test is None:
        return [x]
    array_namespace(x, x_test)
    check_examples("x_test", x_test, (d,))
    if len(x_test) == 0:
        raise ValueError("x_test expects at least one example, (M, d), got M = 0: leave it out for the training set")
    return [x, x_test]
