"""Draw random networks that test the law of scaling with the width, and controls that violate the law.

A draw is a network of unspecified width, with data, a loss and training settings.  The law (Lee et al. 2019, Theorem
2.1) holds below the critical learning rate.  For the network f and its linearisation f_lin, trained in the same way,

    sup_t |f_t - f_lin,t| = O(n^-1/2)

Both outputs are centred, f - f_0, so that the initial residual is the same for all seeds and widths.  This reduces the
scatter of the exponents to a third.  f and f_lin use the same J', which `backward` checks by finite differences.
`JUDGED` lists distances that fall at least as fast: movements of kernel and weights, distances from infinite width.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from analytic.kernels import kernel
from analytic.verify.problem import KINKED
from analytic.verify.sequential import ROUNDS, SEEDS, decide, refuses, slopes
from minintk import spec as s
from minintk.arrays import Array, Host
from minintk.diagnostics import relative_distance
from minintk.models.empirical import ntk, ntk_full
from minintk.models.jacobian import Jacobian
from minintk.models.model import Model
from minintk.models.network import Network
from minintk.models.wrappers import Centred, Linearized
from minintk.spec.parametrization import NTK, MeanField, Parametrization, SpectralMuP, Standard
from minintk.threads import alone, single_threaded_blas
from minintk.training.kernel_descent import kernel_descent
from minintk.training.losses import Loss, logistic, mse, softmax_cross_entropy
from minintk.training.optimizers import SGD
from minintk.training.train import train

PHIS: tuple[s.Layer, ...] = (
    s.ReLU(), s.LeakyReLU(0.1), s.Abs(), s.Erf(), s.GELU(), s.Sin(), s.Tanh(), s.Sigmoid(), s.Softplus(),
    s.Softplus(5.0, 1.404383), s.Identity(),
)  # fmt: skip
LOSSES: dict[str, tuple[Loss, int, float]] = {
    "mse": (mse, 1, 1.0), "logistic": (logistic, 1, 0.25), "cross-entropy": (softmax_cross_entropy, 3, 0.5),
}  # fmt: skip
"""{name: (loss, outputs C, the largest eigenvalue of N d2L/df2)}."""
REGIMES: dict[str, Parametrization] = {
    "NTK": NTK(), "standard": Standard(), "muP": SpectralMuP(), "mean field": MeanField(),
}  # fmt: skip
NO_WIDTH, ANOTHER, FACTOR = "rate without the width", "another theta_0", "jvp times 3/2"
CONTROLS = ("muP", "mean field", NO_WIDTH, ANOTHER, FACTOR)
"""Changes that violate the law.  The test must reject each of them.

In muP and mean field, features move at every width.  NO_WIDTH is the standard parametrization with one rate for all
widths and only five steps, because even this control obeys the law once all networks have learnt.  ANOTHER
linearises at weights other than the initial weights.
"""
JUDGED = ("kernel movement", "weights", "kernel", "infinite width")
"""Quantities that `errors` measures besides the linearisation's error; they fall as n^-1/2 or faster."""
WIDTHS = (16, 32, 64, 128, 256)
N_TEST = 4


@dataclass(frozen=True)
class Draw:
    """A random network of unspecified width, with its data and training settings.

    body : "dense", or the read-out of sequence convolutions, "flatten" or "pool".  fraction : learning rate / critical
    rate.  regime : a key of REGIMES.  seed : the seed of data, labels and weights.  control : one of CONTROLS, or "".
    """

    depth: int
    phi: s.Layer
    body: Literal["dense", "flatten", "pool"]
    residual: bool
    w_std: float
    b_std: float
    b_init: Literal["normal", "zeros"]
    loss: str
    examples: int
    fraction: float
    steps: int
    regime: str
    seed: int
    control: str = ""

    def __str__(self) -> str:
        numbers = ", ".join(f"{v:.3g}" for v in vars(self.phi).values())
        phi = type(self.phi).__name__ + (f"({numbers})" if numbers else "")
        residual = " residual" if self.residual and self.depth > 1 else ""
        bias = f", b {self.b_std:g}{' from 0' if self.b_init == 'zeros' else ''}" if self.b_std else ""
        training = f"{self.loss}, N {self.examples}, {self.steps} steps at {self.fraction:g}"
        spec = f"{self.depth} {phi} {self.body}{residual}, w {self.w_std:.2f}{bias}, {self.regime}"
        return f"{self.control and f'{self.control}: '}{spec}; {training}"

    @property
    def smooth(self) -> bool:
        """True if phi' has no jumps."""
        return not isinstance(self.phi, KINKED)

    def rate(self, width: int) -> float:
        """Return the unit of the learning rate: 1/n in standard parametrization, except for NO_WIDTH; otherwise 1."""
        return 1 / width if self.regime == "standard" and self.control != NO_WIDTH else 1.0

    def widths(self, widths: Sequence[int]) -> list[int]:
        """Return the widths of the hidden layers; convolutions have half as many channels."""
        return [n if self.body == "dense" else n // 2 for n in widths]

    def network(self, width: int) -> Network:
        """Return the network: weights, depth - 1 blocks (phi, weights), residual or not, phi, and the head."""
        scales: Any = {"w_std": self.w_std, "b_std": self.b_std, "b_init": self.b_init}
        image = self.body != "dense"
        weights = s.Conv1d(width, 3, **scales) if image else s.Dense(width, **scales)
        block = s.Residual(s.Sequential(self.phi, weights)) if self.residual else s.Sequential(self.phi, weights)
        end = [s.Flatten() if self.body == "flatten" else s.GlobalAvgPool()] if image else []
        head = s.Dense(LOSSES[self.loss][1], **scales)
        spec = s.Sequential(weights, *[block] * (self.depth - 1), self.phi, *end, head)
        return Network(spec, (4, 3) if image else (6,), REGIMES[self.regime])

    def data(self) -> tuple[Array, Array, Array]:
        """Return (x, y, x_test) with inputs on the sphere |x|^2 = d."""
        rng, C, N = np.random.default_rng(self.seed), LOSSES[self.loss][1], self.examples
        x = rng.standard_normal((N + N_TEST, *((6,) if self.body == "dense" else (4, 3))))
        x /= np.sqrt(np.mean(x**2, axis=tuple(range(1, x.ndim)), keepdims=True))
        y = np.eye(C)[rng.integers(C, size=N)] if C > 1 else rng.choice([-1.0, 1.0], (N, 1))
        return x[:N], y, x[N:]


def drawn(choose: Callable[[Sequence[Any]], Any], control: str = "") -> Draw:
    """Return a draw with fields from `choose(options)`; a control sets some.   choose : a function, as from `by`.

    >>> print(drawn(by(np.random.default_rng(1))))
    2 Sin(1, 1, 0) pool residual, w 1.00, NTK; cross-entropy, N 4, 40 steps at 0.1
    """
    draw = Draw(
        depth=choose((1, 2, 3, 4)), phi=choose(PHIS), body=choose(("dense", "dense", "flatten", "pool")),
        residual=choose((False, True)), w_std=choose((1.0, 1.5**0.5, 2**0.5)), b_std=choose((0.0, 0.1, 0.5)),
        b_init=choose(("normal", "zeros")), loss=choose(tuple(LOSSES)), examples=choose((4, 6, 8)),
        fraction=choose((0.05, 0.1, 0.2, 0.4)), steps=choose((5, 10, 20, 40)), regime=choose(("NTK", "standard")),
        seed=choose(range(2**32)),
    )  # fmt: skip
    if not control:
        return draw
    regime = "standard" if control == NO_WIDTH else control if control in REGIMES else draw.regime
    fraction, steps = (0.02, 5) if control == NO_WIDTH else (0.2, 40)
    return replace(draw, control=control, regime=regime, fraction=fraction, steps=steps)


def by(rng: np.random.Generator) -> Callable[[Sequence[Any]], Any]:
    """Return a function that draws one of several options from `rng`, with equal probabilities."""
    return lambda options: options[int(rng.integers(len(options)))]


class WrongFactor(Linearized):
    """The control f(theta_0) + 3/2 J (theta - theta_0), a linearisation with the wrong factor 3/2."""

    def forward(self, theta: Array, x: Array) -> tuple[Array, Jacobian]:
        f, J = super().forward(theta, x)
        return f + J.push(theta - self._anchor(theta)) / 2, J


def record(control: str, draw: int, *, seed: int = 0, widths: Sequence[int] = WIDTHS) -> dict[str, Any]:
    """Run `gate` on draw number `draw` for `minintk.sweep`, on one core because other draws run in parallel."""
    with single_threaded_blas():
        return alone(gate, drawn(by(np.random.default_rng([seed, draw])), control), widths)


def gate(draw: Draw, widths: Sequence[int] = WIDTHS) -> dict[str, Any]:
    """Train up to ROUNDS rounds of networks, until the test on the wider half of the widths decides; return a record.

    The law is also rejected if one of `JUDGED` falls more slowly than n^-1/2, or if the error of J' exceeds BACKWARD.
    Distances reject nothing if the widest networks' kernels move by more than their size, but less with n: if signals
    vanish with depth, critical rates are large, and such widths are not asymptotic.
    """
    sizes, wider, rng = draw.widths(widths), len(widths) // 2, np.random.default_rng([draw.seed, 1])
    lr, k = draw.fraction * critical_rate(draw, sizes, rng), analytic_kernel(draw, sizes[0])
    rounds: list[dict[str, Array]] = []
    verdict = "undecided"

    def fitted(quantity: str) -> Host:
        """Return a quantity's exponents on the wider half of the widths, (rounds, SEEDS)."""
        return slopes(sizes[wider:], np.stack([found[quantity] for found in rounds])[..., wider:])

    while verdict == "undecided" and len(rounds) < ROUNDS:
        at = [errors(draw, n, lr * draw.rate(n), SEEDS, rng, k) for n in sizes]
        rounds.append({key: np.stack([found[key] for found in at], axis=-1) for key in at[0]})
        verdict, _ = decide(fitted("linearisation"))
    measured = {key: np.concatenate([found[key] for found in rounds]).tolist() for key in rounds[0]}
    ends = {n: backward(draw, n, np.random.default_rng([draw.seed, 2, n])) for n in (sizes[0], sizes[-1])}
    wrong = {f"{name}, {n}": error for n, found in ends.items() for name, error in found.items()}
    slow = [quantity for quantity in JUDGED if quantity in rounds[0] and refuses(fitted(quantity))]
    moves, off = np.median([found["kernel movement"][:, -1] for found in rounds]), max(wrong.values()) > BACKWARD
    if slow or off or verdict == "refused":
        far = moves > 1 and decide(fitted("kernel movement"))[0] == "holds"
        verdict = "undecided" if far and not off else "refused"
    about = {"name": str(draw), "smooth": draw.smooth, "widths": sizes, "gate": verdict, "rounds": len(rounds)}
    return about | {"backward": wrong, "slow": slow} | measured


BACKWARD = 1e-4
"""Largest accepted relative error of u' J d, the median over three directions.  450 correct cases gave at most 2e-6."""


def backward(draw: Draw, width: int, rng: np.random.Generator, step: float = 1e-6) -> dict[str, float]:
    """Return {tensor: relative error of (J' u) d, compared with u' (f(theta + h d) - f(theta - h d)) / 2h}.

    u, d : random, |d| = 1, so that no pre-activation changes much.  The median over three d is used because one d can
    cross a kink of phi.  The error of a tensor is 1/2 if its gradient is halved, and 1 if its gradient is omitted.
    """
    net, (x, _, _) = draw.network(width), draw.data()
    theta = net.init(rng)
    f, J = net.linearize(theta, x)
    u, found = rng.standard_normal(f.shape), {}
    gradient = J.vjp(u)
    for name, place in net.layout.slices.items():
        off = []
        for _ in range(3):
            d = np.zeros_like(theta)
            part = rng.standard_normal(d[place].shape)
            d[place] = part / np.linalg.norm(part)
            right = float(np.sum(u * (net(theta + step * d, x) - net(theta - step * d, x)))) / (2 * step)
            ours, noise = float(gradient @ d), 1e-8 * float(np.sum(np.abs(u) * np.abs(f)))
            off.append(abs(ours - right) / (max(abs(ours), abs(right)) + noise))
        found[name] = float(np.median(off))
    return found


def critical_rate(draw: Draw, widths: Sequence[int], rng: np.random.Generator, members: int = 8) -> float:
    """Return the largest rate, in units of `draw.rate`, at which sampled networks of the extreme widths are stable.

    lr = 2 N / (c lambda_max),    c the largest curvature of the loss,    lambda_max the largest eigenvalue of J S J'
    """
    (_, C, curvature), (x, _, _), bounds = LOSSES[draw.loss], draw.data(), []
    for n in (widths[0], widths[-1]):
        net = draw.network(n)
        for theta in net.init(rng, ensemble=members):
            top = float(np.linalg.eigvalsh(ntk_full(net, theta, x).reshape(len(x) * C, -1))[-1])
            bounds.append(2 * len(x) / (curvature * max(top, 1e-300) * draw.rate(n)))  # top is 0 if the signal vanishes
    return min(bounds)


def analytic_kernel(draw: Draw, width: int) -> Array | None:
    """Return the tangent kernel of all points at infinite width; None for controls and in standard parametrization."""
    x, _, x_test = draw.data()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is by quadrature and exact to", UserWarning)  # 1e-8 is accurate enough
        points, plain = np.concatenate([x, x_test]), draw.regime == "NTK" and not draw.control
        return kernel(draw.network(width).spec).ntk(points) if plain else None


def errors(
    draw: Draw, width: int, lr: float, members: int, rng: np.random.Generator, k: Array | None
) -> dict[str, Array]:
    """Return {quantity: (E,)} for networks of one width and their linearisations.  Suprema are over 6 or 11 snapshots.

    linearisation, infinite width : sup_t of the root mean square of f - f_lin, or of f - f_k, where f_k is trained with
    the kernel k.  kernel movement, kernel : relative distance of the initial empirical kernel from the final one, and
    from the analytic kernel k : (A, A).  weights : |theta_T - theta_0|, over sqrt(n) unless the regime is "standard".
    """
    (loss, _, _), (x, y, x_test), net = LOSSES[draw.loss], draw.data(), draw.network(width)
    points, theta0 = np.concatenate([x, x_test]), net.init(rng, ensemble=members)
    anchor = net.init(rng, ensemble=members) if draw.control == ANOTHER else theta0
    steps = range(0, draw.steps + 1, max(1, draw.steps // 10))

    def outputs(model: Model) -> tuple[Array, Array]:
        """Return f on all points, (T, E, A, C), and the final theta."""
        run = train(model, theta0, x, y, loss=loss, optimizer=SGD(lr=lr), steps=draw.steps, every=steps.step)
        found = [(np.concatenate([snap.f, model(snap.theta, x_test)], axis=-2), snap.theta) for snap in run]
        return np.stack([f for f, _ in found]), found[-1][1]

    centred = Centred(net, theta0, 1.0)
    f, end = outputs(centred)
    f_lin, _ = outputs((WrongFactor if draw.control == FACTOR else Linearized)(centred, anchor))
    k0, moved = ntk(net, theta0, points), np.sqrt(np.sum((end - theta0) ** 2, axis=-1))
    found = {
        "linearisation": supremum(f - f_lin),
        "kernel movement": relative_distance(ntk(net, end, points), k0),
        "weights": moved / (1.0 if draw.regime == "standard" else width**0.5),
    }
    if k is not None:
        how: Any = {"loss": loss, "optimizer": SGD(lr=lr), "steps": draw.steps, "every": steps.step}
        path = np.stack([snap.f for snap in kernel_descent(k[:, : len(x)], np.zeros_like(f[0, 0]), y, **how)])
        found["kernel"] = relative_distance(k0, k[None])
        found["infinite width"] = supremum(f - path[:, None])
    return found


def supremum(difference: Array) -> Array:
    """Return the supremum over t of the root mean square over points and outputs, (E,); difference : (T, E, A, C)."""
    return np.sqrt(np.mean(difference**2, axis=(-2, -1))).max(axis=0)
