"""Networks of a draw at growing widths, their linearisations beside them, and the gate on what lies between."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from minintk.arrays import Array
from minintk.diagnostics import relative_distance
from minintk.fast.threads import alone, single_threaded_blas
from minintk.models.empirical import ntk, ntk_full
from minintk.models.jacobian import Jacobian
from minintk.models.network import Model
from minintk.models.wrappers import Centred, Linearized
from minintk.training.optimizers import SGD
from minintk.training.train import train
from minintk.verify import theory
from minintk.verify.draws import ANOTHER, FACTOR, LOSSES, WIDTHS, Draw, by, drawn
from minintk.verify.sequential import ROUNDS, SEEDS, decide, slopes


class WrongFactor(Linearized):
    """f(theta_0) + 3/2 J (theta - theta_0): a control."""

    def forward(self, theta: Array, x: Array) -> tuple[Array, Jacobian]:
        f, J = super().forward(theta, x)
        return f + J.push(theta - self._anchor(theta)) / 2, J


def record(control: str, draw: int, *, seed: int = 0, widths: Sequence[int] = WIDTHS) -> dict[str, Any]:
    """The gate on the draw of this number, `minintk.sweep`'s work; on one core, as others run beside it."""
    with single_threaded_blas(), alone():
        return gate(drawn(by(np.random.default_rng([seed, draw])), control), widths)


def gate(draw: Draw, widths: Sequence[int] = WIDTHS) -> dict[str, Any]:
    """Train rounds of networks until the law holds or is refused on the wider half of the widths.

    Returns what `sequential.decide` says, and every quantity of `errors` as lists (seeds, widths).
    """
    sizes, wider, rng = draw.widths(widths), len(widths) // 2, np.random.default_rng([draw.seed, 1])
    lr, k = draw.fraction * critical_rate(draw, sizes, rng), analytic_kernel(draw, sizes[0])
    rounds: list[dict[str, Array]] = []
    verdict = "undecided"
    while verdict == "undecided" and len(rounds) < ROUNDS:
        at = [errors(draw, n, lr * draw.rate(n), SEEDS, rng, k) for n in sizes]
        rounds.append({key: np.stack([found[key] for found in at], axis=-1) for key in at[0]})
        verdict, _ = decide(slopes(sizes[wider:], np.stack([found["linearisation"] for found in rounds])[..., wider:]))
    measured = {key: np.concatenate([found[key] for found in rounds]).tolist() for key in rounds[0]}
    about = {"name": str(draw), "smooth": draw.smooth, "widths": sizes, "gate": verdict, "rounds": len(rounds)}
    return about | measured


def critical_rate(draw: Draw, widths: Sequence[int], rng: np.random.Generator, members: int = 8) -> float:
    """The largest rate, in units of `draw.rate`, at which some networks of the first and the last width are stable.

    lr = 2 N / (c lambda_max),    c the largest curvature of the loss, lambda_max that of J S J', S the rates' scales
    """
    (_, C, curvature), (x, _, _), bounds = LOSSES[draw.loss], draw.data(), []
    for n in (widths[0], widths[-1]):
        net = draw.network(n)
        for theta in net.init(rng, ensemble=members):
            top = float(np.linalg.eigvalsh(ntk_full(net, theta, x).reshape(len(x) * C, -1))[-1])
            bounds.append(2 * len(x) / (curvature * top * draw.rate(n)))
    return min(bounds)


def analytic_kernel(draw: Draw, width: int) -> Array | None:
    """The tangent kernel of all points at infinite width, in NTK parametrization, else None."""
    x, _, x_test = draw.data()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is by quadrature and exact to", UserWarning)  # 1e-8 is enough here
        points, plain = np.concatenate([x, x_test]), draw.regime == "NTK" and not draw.control
        return theory.kernels(draw.network(width).spec, points)[1] if plain else None


def errors(
    draw: Draw, width: int, lr: float, members: int, rng: np.random.Generator, k: Array | None
) -> dict[str, Array]:
    """{quantity: (E,)} of networks of one width, each beside its linearisation; suprema over some ten snapshots.

    linearisation, infinite width : sup_t of the root mean square, over all points, of f - f_lin, f - f_inf.
    kernel movement, kernel : relative distances of the empirical kernel at the end, and of the analytic one k : (A, A),
    from the empirical one at the start.  weights : |theta_T - theta_0|, over sqrt(n) where weights are of order 1.
    """
    (loss, _, _), (x, y, x_test), net = LOSSES[draw.loss], draw.data(), draw.network(width)
    points, theta0 = np.concatenate([x, x_test]), net.init(rng, ensemble=members)
    anchor = net.init(rng, ensemble=members) if draw.control == ANOTHER else theta0
    steps = range(0, draw.steps + 1, max(1, draw.steps // 10))

    def outputs(model: Model) -> tuple[Array, Array]:
        """f on all points, (T, E, A, C), and theta at the end."""
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
        path = [np.zeros_like(f[0, 0])]
        for _ in range(draw.steps):
            path.append(path[-1] - lr * k[:, : len(x)] @ loss.cotangent(path[-1][: len(x)], y))
        found["kernel"] = relative_distance(k0, k[None])
        found["infinite width"] = supremum(f - np.stack(path)[steps, None])
    return found


def supremum(difference: Array) -> Array:
    """sup over t of the root mean square over points and outputs, (T, E, A, C); (E,)."""
    found: Array = np.sqrt(np.mean(difference**2, axis=(-2, -1))).max(axis=0)
    return found
