"""Check that the size of features and of their changes does not depend on the width or the depth.

Networks of increasing width are trained for a few steps.  Two sizes are measured per layer and two per tensor:

    |h|     root mean square of a layer's outputs after the last step
    |dh|    root mean square of their change since the start              feature learning: of order one
    |W|     initial spectral norm of a tensor, divided by that of spectral muP with w_std = 1 (see `weight_norms`)
    |dW|    spectral norm of the first step, divided by that of spectral muP and, for gradient descent, by |dL/df|

Each size is fitted as A n^b in width n.  The check passes if b's confidence interval is within `tolerance` of 0 for |h|
and |dh| of every layer, and overlaps this range for every |dW|.  Initial outputs can be of order n^-1/2, so b < 0 is
accepted for |h| of the outputs.  Features depend on all earlier layers, so |W| and |dW| show which layer is wrong.  |W|
depends only on the tensor's own initial scale.  If all |W| are correct, or with Adam, the first |dW| depends only on
the tensor's learning rate.  For gradient descent, |dW| is divided by the size of dL/df, which multiplies all gradients.

For networks with L residual branches, the sizes are fitted as A L^b.  Branches at equal relative depth are compared,
and |W| and |dW| are divided by the powers of depth in `minintk.spec.parametrization`.

See Yang et al. 2022 (tensor programs V), appendix D.1; Yang, Simon, Bernstein 2023 (norms); Yang et al. 2023 (depth).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from minintk.arrays import Array, Host
from minintk.diagnostics.power_laws import Outcome, PowerLaw, Verdict, judged, power_law
from minintk.lab.experiments.layer_sizes import Quantity, chosen_optimizer, initial_thetas, matched, measure, networks
from minintk.models.network import Network
from minintk.progress import progress_of
from minintk.spec.parametrization import Parametrization, Rule
from minintk.training.losses import Loss
from minintk.training.optimizers import Optimizer
from minintk.validate import generator, number, whole

QUANTITIES: dict[Quantity, str] = {
    "h": "rms of h", "dh": "rms of dh", "W": "|W| / spectral muP's", "dW": "first |dW| / spectral muP's",
}  # fmt: skip
"""{quantity: the label of its axis}"""
GROWN = 10.0
"""Training is reported as divergent if the loss grows by this factor."""


@dataclass(frozen=True, eq=False, repr=False)
class Scaling:
    """The scaling with width of one quantity of a layer (h, dh) or a tensor (W, dW): its values, fit and verdict.

    values[i] : (S,) for S seeds at widths[i].  fit : a `PowerLaw`, or None if a value is 0.  at_most : True if
    exponents < 0 also pass.  curves[i] : (S, steps + 1), values at the start and after each step, of h and dh only.
    verdict : "pass" if the whole interval of the exponent is within `tolerance` of 0, "fail" if no part of it is.
    """

    quantity: Quantity
    name: str
    values: tuple[Host, ...]
    fit: PowerLaw | None
    tolerance: float
    at_most: bool = False
    curves: tuple[Host, ...] = ()

    @property
    def verdict(self) -> Outcome:
        if self.fit is None:
            return "fail"
        return judged(self.fit.interval, -np.inf if self.at_most else -self.tolerance, self.tolerance)

    def __repr__(self) -> str:
        return f"Scaling(|{self.quantity}| of {self.name}: {self}, {self.verdict})"

    def __str__(self) -> str:
        if self.fit is None:
            return "zero" if self.quantity in ("h", "W") else "does not move"
        return f"{self.fit.exponent:+.2f} ± {(self.fit.interval[1] - self.fit.interval[0]) / 2:.2f}"


@dataclass(frozen=True, eq=False, repr=False)
class CoordinateCheck:
    """The result of `coordinate_check`.

    rows : h of layers, dh of layers, W of tensors that do not start at 0, dW of tensors, and the initial dL/df.
    variable : "n" for widths, "L" for depths.  diverged : the widths at which training diverged.  notes : caveats.
    """

    title: str
    rule: Rule
    widths: tuple[int, ...]
    rows: tuple[Scaling, ...]
    tolerance: float
    variable: str = "n"
    diverged: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    looks: int = 1

    @property
    def passed(self) -> bool:
        """True if every |h| and |dh| passes and no |dW| fails, unless training diverged at every width."""
        return self.verdict == "pass"

    @property
    def verdict(self) -> Outcome:
        """Return "pass", "fail", or "undecided" if there are too few seeds."""
        wrong = any(row.verdict == "fail" for row in self.rows if row.quantity in ("h", "dh", "dW"))
        if wrong or len(self.diverged) == len(self.widths):
            return "fail"
        unsure = any(row.verdict == "undecided" for row in self.rows if row.quantity in ("h", "dh"))
        return "undecided" if unsure else "pass"

    @property
    def confidence(self) -> float:
        """Return the confidence level of the intervals."""
        return max((row.fit.confidence for row in self.rows if row.fit), default=0.95)

    @property
    def decision(self) -> Verdict:
        """Return a `Verdict` with the numbers of seeds and tests and the confidence of the intervals."""
        text = f"{len(self.rows)} exponents, to be within {self.tolerance:g} of 0; to blame: {self.blame or 'nothing'}"
        seeds = max(len(values) for row in self.rows for values in row.values)
        return Verdict(self.verdict, text, seeds, self.looks, self.confidence)

    @property
    def blame(self) -> dict[str, Literal["start", "rate", "start and rate"]]:
        """Return the tensors whose initial scale ("start") or learning rate ("rate") is wrong.

        The result is {} if the check does not fail, or if training diverged at every width.
        """
        if self.verdict != "fail" or len(self.diverged) == len(self.widths):
            return {}
        start, rate = ([r for r in self.rows if r.quantity == q and r.verdict == "fail"] for q in ("W", "dW"))
        if start and self.rule == "sgd":  # wrong weights distort all gradients: keep only tensors that did not move
            rate = [row for row in rate if row.fit is None]
        names, late = [row.name for row in start], [row.name for row in rate]
        both = {name: "start and rate" for name in names if name in late}
        return dict.fromkeys(late, "rate") | dict.fromkeys(names, "start") | both  # type: ignore[return-value]

    def __getitem__(self, key: tuple[Quantity, str]) -> Scaling:
        """Return the row of (quantity, name), as in check["dh", "2"] or check["W", "2.W"]."""
        rows = {(row.quantity, row.name): row for row in self.rows}
        if key not in rows:
            raise KeyError(f"{key!r}; there are {list(rows)}")
        return rows[key]

    def __repr__(self) -> str:
        return f"CoordinateCheck({self.title}: {self.verdict})"

    def report(self) -> str:
        """Return the report as text: a table of the exponents, the verdict, and the tensors to blame."""
        widths = " ".join(map(str, self.widths))
        about = f"exponents b of {self.variable}^b, {widths}; ± half of the {100 * self.confidence:.4g} % interval"
        lines = [self.title, about, ""]
        texts: dict[tuple[str, str], str] = {(row.quantity, row.name): f"{row} {row.verdict}" for row in self.rows}
        falls = [row for row in self.rows if row.at_most and row.fit and row.fit.interval[0] < -self.tolerance]
        texts |= {(row.quantity, row.name): f"{row} {row.verdict}, may fall" for row in falls}
        for pair, kind in ((("h", "dh"), "layer"), (("W", "dW"), "tensor")):
            names = dict.fromkeys(name for quantity, name in texts if quantity in pair)
            wide = max(len(kind), *map(len, names))
            rows = [(name, *(texts.get((q, name), "") for q in pair)) for name in names]
            for first, left, right in [(kind, *map("|{}|".format, pair)), *rows]:
                lines.append(f"{first:<{wide}}  {left:<34}{right}".rstrip())
            lines.append("")
        may = ", but |h| of the outputs, which may fall" if falls else ""
        may += "; more networks decide, by seeds= or budget=" if self.verdict == "undecided" else ""
        lines.append(f"{self.verdict}: every |h|, |dh| and |dW| must be within {self.tolerance:g} of 0{may}")
        for name, why in self.blame.items():
            off = [f"its size at the start, off by {self.variable}^({self['W', name]})"] if "start" in why else []
            slow, by = self["dW", name], f"off by {self.variable}^({self['dW', name]})"
            off += [f"its learning rate, {by if slow.fit else slow}"] if "rate" in why else []
            lines.append(f"to blame: {name}, {' and '.join(off)}")
        return "\n".join([*lines, *self.notes])

    def plot(self) -> Any:
        """Return a Matplotlib figure of size against width, with a panel for each of |h|, |dh|, |W| and |dW|.

        Thin lines show |h| and |dh| after each earlier step.
        """
        from matplotlib.figure import Figure

        figure = Figure(figsize=(15, 4.2), layout="constrained")
        axes = figure.subplots(1, 4)
        for axis, (quantity, label) in zip(axes, QUANTITIES.items(), strict=True):
            for row in self.rows:
                if row.quantity == quantity and row.fit is not None:
                    means = [float(np.exp(np.log(v).mean())) for v in row.values]
                    (line,) = axis.plot(self.widths, means, "o", ms=4, label=f"{row.name}: {row}")
                    axis.plot(self.widths, row.fit(self.widths), lw=1, color=line.get_color())
                    for earlier in zip(*(v[:, quantity == "dh" : -1].mean(axis=0) for v in row.curves)):
                        axis.plot(self.widths, earlier, lw=0.5, alpha=0.5, color=line.get_color())
            x = "width n" if self.variable == "n" else "residual branches L"
            axis.set(xscale="log", yscale="log", xlabel=x, title=label)
            axis.set_xticks(self.widths, [str(n) for n in self.widths], rotation=45)
            axis.minorticks_off()
            low, high = axis.get_ylim()
            axis.set_ylim(min(low, high / 30), max(high, low * 30))  # so that a flat line looks flat
            axis.legend(fontsize=7)
        figure.suptitle(f"{self.title}: {self.verdict}", fontsize=10)
        return figure


def coordinate_check(
    spec_of_width: Callable[[int], Any],
    x: Array,
    y: Array,
    *,
    parametrization: Parametrization | None = None,
    optimizer: Optimizer | Callable[[Network], Optimizer],
    loss: Loss,
    widths: Sequence[int] = (64, 128, 256, 512, 1024),
    seeds: int = 16,
    budget: int | None = None,
    steps: int = 3,
    tolerance: float = 0.1,
    rng: np.random.Generator | None = None,
    progress: bool = False,
) -> CoordinateCheck:
    """Train networks of these widths for a few steps and fit how the sizes of features and weights scale with width.

    spec_of_width : a function that returns the spec of width n, such as `lambda n: mn.zoo.mlp(3, n, 10)`, or the spec
    with L residual branches, all of the same width.  In the second case, `widths` are the depths L.  Use w_std = C^-1/2
    in the last layer, because large initial outputs, which decrease as n^-1/2, bias every exponent.
    The function can also return a torch module or a pair (module, {parameter name: learning-rate factor}).  The module
    keeps the initial weights that torch draws, unless a parametrization is given.
    x : (N, *input_shape).  y : (N, C).  A few dozen examples are enough.
    parametrization : defaults to `SpectralMuP()` for specs.  optimizer : an optimiser or a function network ->
    optimiser.  seeds : networks per width, at least two.  steps : training steps, each on all of x.
    budget : the largest number of networks per width.  Defaults to `seeds`.  While the verdict is undecided, the number
    of networks is doubled.  Repeated tests of an exponent have a total level of 0.05, as in `minintk.grade.exponent`.
    tolerance : the largest acceptable |exponent|.
    rng : generator for the initial weights.  Defaults to numpy.random.default_rng(0).  progress : True to show a bar
    with the remaining time on stderr.

    Raises ValueError for invalid widths or specs that do not match, and FloatingPointError if training overflows.

    >>> import minintk as mn
    >>> digits = mn.datasets.digits(dtype=np.float32).subset(32, np.random.default_rng(0))
    >>> x, y = digits.one_hot()
    >>> def spec(n: int) -> mn.Sequential:
    ...     return mn.Sequential(mn.Dense(n), mn.Tanh(), mn.Dense(n), mn.Tanh(), mn.Dense(10, w_std=0.3))
    >>> settings = {"optimizer": mn.SGD(lr=0.1), "loss": mn.mse, "widths": (64, 128, 256, 512)}
    >>> coordinate_check(spec, x, y, **settings).passed
    True
    >>> coordinate_check(spec, x, y, parametrization=mn.NTK(), **settings).blame
    {'4.W': 'start'}
    """
    widths, nets = networks(spec_of_width, x, widths, parametrization)
    seeds, steps = whole("seeds", seeds, 2), whole("steps", steps)
    tolerance, rng = number("tolerance", tolerance), generator(rng)
    variable, names = matched(nets, widths)
    found: dict[tuple[Quantity, str], list[Host]] = {}
    most = seeds if budget is None else whole("budget", budget, seeds)
    had, looks = 0, 0
    while True:
        with progress_of(f"{seeds} seeds", sum(net.size for net in nets), progress) as advance:
            for i, net in enumerate(nets):
                chosen = chosen_optimizer(optimizer, net)
                for theta in initial_thetas(net, x, rng, seeds - had):
                    measured = measure(net, theta, x, y, loss, chosen, steps, variable, widths[i])
                    for (q, name), values in measured.items():
                        hidden = variable == "L" and q in ("h", "dh") and ".branch" in name  # shrinks as L grows
                        if not hidden and (counterpart := names[i](name)) is not None:
                            of = found.setdefault((q, counterpart), [values[:0]] * len(nets))
                            of[i] = np.concatenate([of[i], values])
                advance(net.size)
        looks += 1
        level = 0.05 / 2**looks if budget else 0.05
        title = f"{nets[0].parametrization!r}, {chosen!r}, {seeds} seeds, {steps} steps"
        growth = [float(np.median(v)) for v in found["growth", "loss"]]
        diverged = tuple(n for n, by in zip(widths, growth) if by > GROWN)
        rows = _rows(found, widths, tolerance, 1 - level)
        check = CoordinateCheck(title, chosen.rule, widths, rows, tolerance, variable, diverged, looks=looks)
        if check.verdict != "undecided" or 2 * seeds > most:
            return replace(check, notes=tuple(_notes(check, max(growth), float(np.finfo(str(x.dtype)).eps))))
        had, seeds = seeds, 2 * seeds


def _rows(
    found: dict[tuple[Quantity, str], list[Host]], widths: Sequence[int], tolerance: float, confidence: float
) -> tuple[Scaling, ...]:
    output = next(name for q, name in reversed(found) if q == "h")
    draws, rows = max(2000, round(100 / (1 - confidence))), []  # a hundred draws in the tails at any confidence
    for (q, name), values in found.items():
        curves = tuple(values) if q in ("h", "dh") else ()
        last = tuple(v[:, -1] for v in values) if curves else tuple(values)
        positive = [bool(np.all(v > 0)) for v in last]
        if q != "growth" and (q != "W" or any(positive)):
            fit = power_law(widths, last, confidence=confidence, resamples=draws) if all(positive) else None
            falls = q == "h" and name == output
            rows.append(Scaling(q, name, last, fit, tolerance, falls, curves))
    return tuple(rows)


def _notes(check: CoordinateCheck, growth: float, eps: float) -> Iterator[str]:
    """Yield reasons why a measurement may not reflect the parametrization: divergence, rounding, a varying dL/df."""
    if check.diverged:
        at = f"{check.variable} = {', '.join(map(str, check.diverged))}"
        yield f"training diverges at {at}: the loss grew up to {growth:.3g}-fold; choose a smaller rate"
    if all(not np.any(v) for row in check.rows if row.quantity == "dW" for v in row.values):
        yield "nothing moves: the gradient is zero at these x and y, or the rate is below the rounding errors of theta"
    for row in (row for row in check.rows if row.quantity == "dh" and row.fit):
        if any(np.any(dh < 300 * eps * h) for dh, h in zip(row.values, check["h", row.name].values)):
            yield f"note: |dh| of {row.name} is close to the rounding error of |h|: use float64 or a larger rate"
    error = check["dL/df", "loss"]
    if check.rule == "sgd" and error.fit and error.verdict == "fail":
        share = f"|dL/df| is {check.variable}^({error}) at the start, and so is every first step of gradient descent"
        yield f"note: {share}: this slope is shared by all layers; a smaller w_std of the last layer removes it"
