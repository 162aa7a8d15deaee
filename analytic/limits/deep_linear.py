"""Model feature learning in infinitely wide linear networks of any depth by mean-field theory.

Let n be the width of the hidden layers h^l, l = 1 ... L, and g^l = gamma0 n df/dh^l their backward signals.  Weights
W^l ~ N(0, 1) between layers l and l + 1 enter as sigma_l / sqrt(n) W^l.  `analytic.limits.linear_problem` gives a basis
of directions i, with h^l : (r, n), g^l : (C, n) and the drive e : (r, C).  A step of descent at rate lr gamma0^2 n adds
lr gamma0 sigma_l / sqrt(n) sum_ic g^{l+1}_c(s) e_ic(s) h^l_i(s)' to W^l.  Over all steps s < k,

    h^{l+1}(k) = chi(k) + lr gamma0 sigma_l^2 sum_s H^l(k, s) e(s) g^{l+1}(s)      chi = sigma_l/sqrt(n) W^l(0) h^l
    g^l(k)     = xi(k)  + lr gamma0 sigma_l^2 sum_s G^{l+1}(k, s) e(s)' h^l(s)     xi  = sigma_l/sqrt(n) W^l(0)' g^{l+1}

The kernels over time are H^l(k, s) = h^l(k) h^l(s)' / n : (r, r) and G^l(k, s) = g^l(k) g^l(s)' / n : (C, C).  They
become deterministic as n -> infinity.  W^l(0) enters both chi and xi.  Hence chi is the sum of a Gaussian u with the
covariance sigma_l^2 H^l, independent across neurons, and a response to g^{l+1} through h^l.  Likewise for xi:

    chi = u + gamma0 sigma_l^2 A^l g^{l+1},    A^l(k, s) = (1/gamma0) dh^l(k)/dr(s),     cov u = sigma_l^2 H^l
    xi  = r + gamma0 sigma_l^2 B^{l+1} h^l,    B^l(k, s) = (1/gamma0) dg^l(k)/du(s),     cov r = sigma_l^2 G^{l+1}

Let C = sigma_{l-1}^2 (A^{l-1} + lr H^{l-1} e) and D = sigma_l^2 (B^{l+1} + lr G^{l+1} e'), both zero unless k > s.  A
neuron then obeys two linear equations, in which C is this matrix, not the number of outputs:

    h = u + gamma0 C g      =>    h = M u + gamma0 A r,    M = I + gamma0^2 C B,    A = C N
    g = r + gamma0 D h            g = N r + gamma0 B u,    N = I + gamma0^2 D A,    B = D M

    H = M U M' + gamma0^2 A R A'    G = N R N' + gamma0^2 B U B'    f = E[h g'] / gamma0 = M U B' + A R N'   (U = cov u)

The boundary values are H^0 = I, A^0 = 0, G^{L+1} = I, B^{L+1} = 0.  Row k depends only on earlier rows, so no iteration
is needed, unlike in Bordelon and Pehlevan 2022.  One pass up the layers and one pass down give each step of descent
exactly, at any rate.  At gamma0 = 0, M = N = I, H and G are constant, and f follows descent with the NTK.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from analytic.limits.linear_problem import LinearProblem, linear_problem
from analytic.training.eigen import check_memory
from minintk import spec as s
from minintk.arrays import Array, Host, array_namespace
from minintk.validate import number, whole


class Signal:
    """The forward signal h or the backward signal g of a layer at T times, computed row by row in time.

    size : r for h, C for g.   own, echo, cov : M, A and H for h; N, B and G for g, which obey the same equations.
    sigma2 : sigma^2 of the weights that transmit the signal; 0 for h^0 and g^{L+1}, which are given: cov = I, echo = 0.
    """

    def __init__(self, T: int, size: int, other: int, sigma2: float) -> None:
        self.size, self.sigma2, square = size, sigma2, (T * size, T * size)
        self.own, self.echo, self.cov = np.zeros(square), np.zeros((T * size, T * other)), np.zeros(square)
        if not sigma2:
            self.cov[...] = np.tile(np.eye(size), (T, T))

    def at(self, k: int) -> slice:
        """Return the slice of the rows that belong to time k."""
        return slice(self.size * k, self.size * (k + 1))

    def advance(self, k: int, source: Signal, driven: Host, gamma2: float, back: Signal, beyond: Signal) -> None:
        """Compute row k of own, echo and cov from earlier rows and row k of `source`.

        source : the signal from which this signal is computed, h^{l-1} for h^l.   back, beyond : the other direction's
        signals in this layer and in the next layer, g^l and g^{l+1}.   driven : lr e(s), one block per time.
        """
        now, i, j = self.at(k), self.size * k, back.size * k
        C = self.sigma2 * (source.cov[now, :i] @ driven[:i, :j] + source.echo[now, :j])
        self.own[now, :i] = gamma2 * C @ back.echo[:j, :i]
        self.own[now, now] = np.eye(self.size)
        self.echo[now, :j] = C @ back.own[:j, :j]
        end = now.stop
        row = (self.sigma2 * self.own[now, :end] @ source.cov[:end, :end]) @ self.own[:end, :end].T
        row += (gamma2 * back.sigma2 * self.echo[now, :j] @ beyond.cov[:j, :j]) @ self.echo[:end, :j].T
        self.cov[now, :end], self.cov[:end, now] = row, row.T


def outputs(k: int, low: Signal, h: Signal, g: Signal, high: Signal) -> Host:
    """Return F(k) = (M U B' + A R N')(k, k) : (r, C), the same for all layers.   low, high : h^{l-1} and g^{l+1}."""
    i, j, at, to = h.size * k, g.size * k, h.at(k), g.at(k)
    F = h.sigma2 * (h.own[at, : at.stop] @ low.cov[: at.stop, :i]) @ g.echo[to, :i].T
    return np.asarray(F + g.sigma2 * h.echo[at, :j] @ (high.cov[:j, : to.stop] @ g.own[to, : to.stop].T))


@dataclass(frozen=True, eq=False, repr=False)
class DeepLinearLimit:
    """Gradient descent of an infinitely wide deep linear network; built by `deep_linear_limit`.

    F : (T, r, C), T = steps + 1, for f(x) = (x~ B) F as in `LinearProblem`.  h : h^0 ... h^L.  g : g^1 ... g^{L+1}.
    """

    problem: LinearProblem
    lr: float
    F: Host
    h: tuple[Signal, ...]
    g: tuple[Signal, ...]

    def predict(self, k: Any = None, x_test: Array | None = None) -> Array:
        """Return f at x_test or on the training set: (M, C) after k steps or, for None, (T, M, C) after 0 ... T - 1."""
        F = self.F if k is None else self.F[self._step(k)]
        return self.problem.to_caller(self.problem.in_basis(x_test)[1] @ F)

    def features(self, layer: int, k: int, x: Array | None = None) -> Array:
        """Return H^l(k, k) = E[h h'], (M, M), of hidden layer l >= 1 after k steps, at x or on the training set."""
        if not 1 <= layer < len(self.h):
            raise ValueError(f"layer expects 1 to {len(self.h) - 1}, a hidden one, got {layer!r}")
        H, _ = self._kernels(k)
        return self.problem.to_caller(self.problem.spread(layer, H[layer - 1], x))

    def ntk(self, k: int, x: Array | None = None) -> Array:
        """Return Theta_k = sum_l sigma_l^2 H^l(k, k) tr G^{l+1}(k, k) / C, l = 0 ... L, (M, M), as in `minintk.ntk`."""
        return self.problem.ntk(*self._kernels(k), x)

    def _kernels(self, k: int) -> tuple[list[Host], list[Host]]:
        """Return H^l(k, k) : (r, r) and G^l(k, k) : (C, C), l = 1 ... L."""
        k = self._step(k)
        H, G = ([one.cov[one.at(k), one.at(k)] for one in ones] for ones in (self.h[1:], self.g[:-1]))
        return H, G

    def _step(self, k: int) -> int:
        if not hasattr(k, "__index__") or not 0 <= k < len(self.F):
            raise ValueError(f"k expects a step, 0 to {len(self.F) - 1}, got {k!r}")
        return int(k)


def deep_linear_limit(
    spec: s.Layer, x: Array, y: Array, *, gamma0: float = 1.0, lr: float, steps: int
) -> DeepLinearLimit:
    """Run full-batch gradient descent on L = 1/(2N) sum |f - y|^2 for an infinitely wide linear network of any depth.

    spec : mn.Sequential(mn.Dense(n, w_std=...), ..., mn.Dense(C, w_std=...)); hidden widths have no effect.
    x : (N, d), y : (N, C).  gamma0 >= 0 : the strength of feature learning; 0 gives descent with the NTK.
    lr : the learning rate, with t = lr * steps.  It corresponds to lr gamma0^2 n for the weights at width n
    (`analytic.limits.linear_problem`).  The result differs from gradient flow by c_1 lr + c_2 lr^2 + ...

    If x has rank r, a step takes O(L (r + C) ((r + C) steps)^2) operations.  For example, 100 steps with 5 inputs and
    two hidden layers take about .07 s.  Raises UnsupportedLayer for activations or biases, and ValueError for invalid
    shapes or settings.  Raises MemoryError if too little memory is free, and FloatingPointError if the run diverges.

    >>> import numpy as np, minintk as mn
    >>> spec = mn.Sequential(mn.Dense(512), mn.Dense(512), mn.Dense(1))
    >>> x, y = np.array([[1.0]]), np.array([[1.0]])
    >>> for gamma0 in (0.0, 1.0):
    ...     limit = deep_linear_limit(spec, x, y, gamma0=gamma0, lr=0.1, steps=4)
    ...     print(limit.predict()[1:, 0, 0].round(4), limit.features(2, 4)[0, 0].round(4))
    [0.3    0.51   0.657  0.7599] 1.0
    [0.3    0.5244 0.6971 0.8205] 1.5205
    """
    found, lr = linear_problem(spec, x, y, gamma0), number("lr", lr)
    whole("steps", steps, 0)
    (r, C), sigma2, T = found.sizes, [w**2 for w in found.w_std], int(steps) + 1
    need = (len(sigma2) + 1) * 8 * 3 * T**2 * (r * r + r * C + C * C)
    remedy = "take fewer and longer steps, or inputs of lower rank"
    check_memory(array_namespace(found.Z), f"a kernel over {T} times in {r} directions", need, remedy)
    h = [Signal(T, r, C, below) for below in (0.0, *sigma2[:-1])]  # h^0, the inputs, to h^L
    g = [Signal(T, C, r, above) for above in (*sigma2[1:], 0.0)]  # g^1 to g^{L+1}, the outputs
    F, gamma2 = np.zeros((T, r, C)), found.gamma0**2
    driven = np.zeros((T * r, T * C))  # lr e(s), one block per time
    with np.errstate(over="ignore", invalid="ignore"):  # F is checked below
        for k in range(T):
            for at in range(1, len(h)):
                h[at].advance(k, h[at - 1], driven, gamma2, g[at - 1], g[at])
            for at in range(len(h) - 1, 0, -1):
                g[at - 1].advance(k, g[at], driven.T, gamma2, h[at], h[at - 1])
            F[k] = outputs(k, h[0], h[1], g[0], g[1])
            if not np.all(np.isfinite(F[k])):
                raise FloatingPointError(f"the descent has diverged at step {k}: take a smaller lr than {lr:g}")
            driven[h[0].at(k), g[0].at(k)] = lr * found.drive(F[k])
    return DeepLinearLimit(found, lr, F, tuple(h), tuple(g))
