"""Check learning-rate transfer, i.e. that the best learning rate stays the same as the network grows.

At each width (or depth), networks are trained at every rate from the same initial weights.  The best rate at a width is
the minimum of the parabola in log lr through the lowest mean log loss and its two neighbours.  In Yang et al. 2022
(tensor programs V), figure 1, the best rate is constant in muP, but not in the standard parametrization.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2
from textwrap import fill
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtrit

from minintk.arrays import Array, Host, to_host
from minintk.diagnostics.power_laws import Estimate
from minintk.lab.experiments.layer_sizes import chosen_optimizer, initial_thetas, networks
from minintk.models.network import Network
from minintk.progress import progress_of
from minintk.spec.parametrization import Parametrization
from minintk.training.losses import Loss
from minintk.training.optimizers import Optimizer
from minintk.training.train import Descent
from minintk.validate import generator, numbers, whole

RESAMPLES = 1000  # of the seeds, by bootstrap


@dataclass(frozen=True, eq=False, repr=False)
class Transfer:
    """The losses and the best rates that `learning_rate_transfer` found.

    widths : the widths, or the depths if `variable` is "L" instead of "n".
    losses : (widths, rates, seeds), final losses, or initial ones if they are lower or training diverged.
    optima : the best rate at each width, with an interval from a bootstrap over seeds.
    shift : log2 of the factor by which the best rate changes if the width doubles: 0 if constant, -1 if lr ~ 1/n.
    """

    title: str
    widths: tuple[int, ...]
    rates: tuple[float, ...]
    losses: Host
    optima: tuple[Estimate, ...]
    shift: Estimate
    variable: str = "n"

    @property
    def untrained(self) -> tuple[int, ...]:
        """Return the widths at which no rate lowers the loss."""
        return tuple(n for n, losses in zip(self.widths, self.losses) if np.all(losses == losses[:1]))

    @property
    def at_edge(self) -> tuple[int, ...]:
        """Return the widths whose best rate is the smallest or largest tried.  The optimum may be beyond that rate."""
        best = _logs(self.losses).mean(axis=-1).argmin(axis=-1)
        return tuple(n for n, i in zip(self.widths, best) if i in (0, len(self.rates) - 1))

    @property
    def spread(self) -> float:
        """Return the ratio of the largest to the smallest best rate."""
        best = [optimum.value for optimum in self.optima]
        return max(best) / min(best)

    @property
    def regret(self) -> float:
        """Return the loss at the best rate of another width, relative to the best loss, for the worst pair of widths.

        If a minimum is flat, its position and therefore `spread` are uncertain, but the regret is not.
        """
        logs = _logs(self.losses).mean(axis=-1)
        return float(np.exp(np.max(logs[:, logs.argmin(axis=-1)] - logs.min(axis=-1)[:, None])))

    @property
    def passed(self) -> bool:
        """True if `at_edge` is empty and the best rates differ by at most a factor of 2."""
        return not self.at_edge and self.spread <= 2

    def __repr__(self) -> str:
        return f"Transfer({self.title}: best rates within a factor {self.spread:.2f})"

    def report(self) -> str:
        """Return the report as text: a table of the best rates, their shift, and the verdict."""
        name = "width" if self.variable == "n" else "depth"
        lines = [self.title, "", f"{name:>6}  best learning rate (95 % interval)"]
        for n, optimum in zip(self.widths, self.optima):
            edge = ", at the edge of the rates" if n in self.at_edge else ""
            lines.append(f"{n:>6}  {'none: no rate trained' if n in self.untrained else f'{optimum}{edge}'}")
        shift = f"per doubling of the {name}: 2^b with b = {self.shift}"
        said = f"{'pass' if self.passed else 'fail'}: constant within a factor {self.spread:.2f} (2 allowed)"
        edge, untrained = (", ".join(map(str, some)) for some in (self.at_edge, self.untrained))
        if edge:
            said = f"fail: the best rate is at the edge of the rates at {name} {edge}: add rates there"
        if untrained:
            said = f"fail: no rate trained at {name} {untrained}: choose smaller rates, or more steps"
        return "\n".join([*lines, "", *(() if self.untrained else (shift,)), said])

    def plot(self, axes: Any = None) -> Any:
        """Plot loss against learning rate, with one line per width.  Return `axes`, or a new Figure if it is None."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 4.4), layout="constrained") if axes is None else None
        axes = axes if figure is None else figure.subplots()
        means = np.exp(_logs(self.losses).mean(axis=-1))
        for i, (n, optimum) in enumerate(zip(self.widths, self.optima)):
            shade = 0.15 + 0.75 * i / max(1, len(self.widths) - 1)
            colour = (0.2 + 0.7 * (1 - shade), 0.3, shade)
            label = f"{self.variable} = {n}: {optimum.value:.3g}"
            axes.plot(self.rates, means[i], "os^Dv"[i % 5] + "-", ms=3, lw=1.2, color=colour, label=label)
            axes.axvline(optimum.value, color=colour, lw=0.7, ls=":")
        axes.set(xscale="log", yscale="log", xlabel="learning rate", ylabel="loss after training")
        axes.set_title(fill(self.title, 90), fontsize=8)
        axes.legend(fontsize=7, title=f"best rate; 2^({self.shift.value:+.2f}) per doubling", title_fontsize=7)
        return axes if figure is None else figure


def learning_rate_transfer(
    spec_of_width: Callable[[int], Any],
    x: Array,
    y: Array,
    *,
    rates: Sequence[float],
    optimizer: Callable[[float], Optimizer | Callable[[Network], Optimizer]] | type[Optimizer],
    loss: Loss,
    steps: int,
    parametrization: Parametrization | None = None,
    widths: Sequence[int] = (64, 128, 256, 512),
    seeds: int = 4,
    rng: np.random.Generator | None = None,
    progress: bool = False,
) -> Transfer:
    """Train networks of these widths at these rates, and find the best rate at each width.

    spec_of_width : a function that returns the spec of width n, or the spec with L residual branches.  It can also
    return a torch module or a pair (module, {parameter name: learning-rate factor}).  The module keeps the initial
    weights that torch draws, unless a parametrization is given.  x : (N, *input_shape).  y : (N, C).  rates : at least
    three, increasing, with the best rate in the interior.  optimizer : a class such as `mn.SGD`, `mn.Adam` or
    `mn.Muon`, or a function of the rate that returns an optimiser or a function network -> optimiser.  steps :
    full-batch steps.  parametrization : defaults to `SpectralMuP()` for specs.  seeds : networks per width, at least
    two, with the same initial weights at every rate.  rng : generator for the weights and the bootstrap.  Defaults to
    numpy.random.default_rng(0).  progress : True to show a bar with the remaining time on stderr.

    Losses are computed on all of x after training.  Invalid arguments raise ValueError or TypeError before training.

    >>> import minintk as mn
    >>> x, y = mn.datasets.digits(dtype=np.float32).subset(48, np.random.default_rng(0)).one_hot()
    >>> def spec(n: int) -> mn.Sequential:
    ...     return mn.Sequential(mn.Dense(n), mn.Tanh(), mn.Dense(n), mn.Tanh(), mn.Dense(10, w_std=0.3))
    >>> found = learning_rate_transfer(spec, x, y, rates=[0.5, 1, 2, 4, 8, 16], optimizer=mn.SGD, loss=mn.mse, steps=20,
    ...                                widths=(64, 256))
    >>> found.losses.shape, found.passed
    ((2, 6, 4), True)
    """
    asked, rates = rates, numbers(rates)
    if len(rates) < 3 or not all(0 < a < b < np.inf for a, b in pairwise(rates)):
        raise ValueError(f"rates expects three or more learning rates > 0, increasing, got {asked!r}")
    if not callable(optimizer):
        raise TypeError(f"optimizer expects a function rate -> optimiser, such as mn.SGD itself, got {optimizer!r}")
    seeds, steps, rng = whole("seeds", seeds, 2), whole("steps", steps), generator(rng)
    widths, nets = networks(spec_of_width, x, widths, parametrization)
    variable = "n" if len({len(net.spec) for net in nets}) == 1 else "L"
    at = [[_at(lr, net, optimizer) for lr in rates] for net in nets]
    losses, total = np.empty((len(nets), len(rates), seeds)), sum(net.size for net in nets) * len(rates) * seeds
    with progress_of("networks", total, progress) as advance:
        for i, net in enumerate(nets):
            first = 0
            for theta in initial_thetas(net, x, rng, seeds):
                members = slice(first, first + theta.shape[0])
                for r in range(len(rates)):
                    losses[i, r, members] = _train(net, theta, x, y, loss, at[i][r], steps)
                    advance(net.size * theta.shape[0])
                first = members.stop
    title = f"{nets[0].parametrization!r}, {at[0][0]!r} and other rates, {steps} steps, {seeds} seeds"
    return Transfer(title, widths, rates, losses, *_optima(widths, rates, losses, rng), variable)


def _at(lr: float, net: Network, optimizer: Any) -> Optimizer:
    """Return the network's optimiser with learning rate `lr`."""
    if "layout" in getattr(optimizer, "__dataclass_fields__", ()):
        return optimizer(lr, net.layout)
    return chosen_optimizer(optimizer(lr), net)


def _train(net: Network, theta: Array, x: Array, y: Array, loss: Loss, optimizer: Optimizer, steps: int) -> Host:
    """Return each member's loss after training, (E,), or its initial loss if that is lower or the member diverged."""
    run = Descent(net, theta, x, y, loss, optimizer, steps)
    with np.errstate(over="ignore", invalid="ignore"):
        start = to_host(loss(net(theta, x), y)).astype(np.float64)
    if not np.all(np.isfinite(start)):
        raise FloatingPointError(f"the loss before training is {start.max()}: scale x and y to be of order 1")
    try:
        for _ in range(steps):
            run.advance()
    except FloatingPointError:
        if theta.shape[0] == 1:
            return start
        alone = (theta[e : e + 1] for e in range(theta.shape[0]))  # retrain one by one: some did not diverge
        return np.concatenate([_train(net, one, x, y, loss, optimizer, steps) for one in alone])
    with np.errstate(over="ignore", invalid="ignore"):
        end = to_host(loss(net.forward(run.theta, x)[0], y)).astype(np.float64)
    return np.where(end < start, end, start)


def _optima(
    widths: Sequence[int], rates: Sequence[float], losses: Host, rng: np.random.Generator
) -> tuple[tuple[Estimate, ...], Estimate]:
    """Return the best rate at each width, and its shift per doubling of the width, with 95 % bootstrap intervals."""
    K, _, S = losses.shape
    logs, log_n = _logs(losses), np.log2(np.asarray(widths, dtype=np.float64))
    means, log_n = logs.mean(axis=-1), log_n - log_n.mean()
    wider = (S / (S - 1)) ** 0.5 * float(stdtrit(S - 1, 0.975) / ndtri(0.975))  # see power_law
    here, draws = np.array([_minimum(rates, row) for row in means]), np.empty((RESAMPLES, K))
    for d in range(RESAMPLES):
        chosen = np.broadcast_to(rng.integers(S, size=(K, 1, S)), logs.shape)
        drawn = np.take_along_axis(logs, chosen, axis=-1).mean(axis=-1)
        draws[d] = [_minimum(rates, row) for row in means + wider * (drawn - means)]
    low, high = np.percentile(draws, [2.5, 97.5], axis=0)
    optima = tuple(Estimate(float(2**b), (float(2**p), float(2**q)), 0.95) for b, p, q in zip(here, low, high))
    slopes = np.vstack([here, draws]) @ log_n / (log_n @ log_n)
    least, most = np.percentile(slopes[1:], [2.5, 97.5])
    return optima, Estimate(float(slopes[0]), (float(least), float(most)), 0.95)


def _logs(losses: Host) -> Host:
    """Return the log losses; a loss of exactly 0 (hinge) is replaced by the smallest normal number."""
    return np.log(np.maximum(losses, np.finfo(np.float64).tiny))


def _minimum(rates: Sequence[float], values: Host) -> float:
    """Return log2 of the rate with the lowest value, refined by a parabola through it and its two neighbours, if any.

    >>> round(_minimum([1.0, 2.0, 8.0], np.array([(np.log2(lr) - 1.25) ** 2 for lr in (1, 2, 8)])), 12)
    1.25
    """
    i = int(np.argmin(values))
    if i in (0, len(rates) - 1):
        return log2(rates[i])
    a, b, c = (log2(rates[j]) for j in (i - 1, i, i + 1))
    p, q, r = values[i - 1 : i + 2]
    left, right = (q - p) / (b - a), (r - q) / (c - b)  # the slopes of the two chords determine the parabola's vertex
    return float((a + b) / 2 - left * (c - a) / (2 * (right - left))) if right > left else b
