"""The coordinate check: do features and their changes keep their size as the width grows?

Networks of growing width are trained for a few steps, and four sizes are measured, layer by layer:

    |h|     root mean square of a layer's outputs after the last step
    |dh|    root mean square of their change since the start              feature learning: of order one
    |W|     spectral norm at the start, over that of spectral muP with w_std = 1    (`minintk.diagnostics.weight_norms`)
    |dW|    spectral norm of the first step, over sqrt(fan_out / fan_in)

Each is fitted as A n^b.  The check passes if b of |h| and |dh| is 0 for every layer, up to `tolerance`; for |h| of the
network's outputs, which may start at n^-1/2, b <= 0 suffices.  If it fails, |W| and |dW| locate the cause: |W| depends
on a layer's own initial scale only; once all |W| are right, the first |dW| depends on the layer's own learning rate
only (with Adam, whose steps do not depend on the size of the gradient, even before that).

Yang et al. 2022 (tensor programs V), appendix D.1; norms: Yang, Simon, Bernstein 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from minintk.arrays import Array, array_namespace, available_memory, check_floating, to_host, to_library
from minintk.diagnostics.layer_io import trace
from minintk.diagnostics.power_laws import PowerLaw, power_law
from minintk.diagnostics.weight_norms import natural_norms, spectral_norms
from minintk.models.network import Network
from minintk.spec.abc_parametrization import exponents
from minintk.spec.layers import Layer
from minintk.spec.parametrization import Parametrization, Rule, SpectralMuP
from minintk.training.batches import Batches
from minintk.training.losses import Loss
from minintk.training.optimizers import Optimizer
from minintk.training.train import Descent, check_run
from minintk.validate import generator, number, whole

if TYPE_CHECKING:
    from minintk.grade.slope import Verdict as Decision

Quantity = Literal["h", "dh", "W", "dW"]
Verdict = Literal["pass", "fail", "undecided"]
Values = np.ndarray[Any, Any]

QUANTITIES: dict[Quantity, str] = {
    "h": "rms of h", "dh": "rms of dh", "W": "|W| / spectral muP's", "dW": "first |dW| / sqrt(fan_out / fan_in)",
}  # fmt: skip
"""{quantity: the label of its axis}"""
ENSEMBLE_BYTES = 2**31
"""Memory limit for the members that are trained together."""


@dataclass(frozen=True, eq=False, repr=False)
class Scaling:
    """How one size of one layer (h, dh) or tensor (W, dW) scales with the width: the values, the fit, the verdict.

    values[i] : (S,) at width i.  fit : None if a value is zero.  at_most : whether only growth is an error.
    verdict : "pass" if the whole interval of the exponent is within `tolerance` of 0, "fail" if none of it is.
    """

    quantity: Quantity
    name: str
    values: tuple[Values, ...]
    fit: PowerLaw | None
    tolerance: float
    at_most: bool = False

    @property
    def verdict(self) -> Verdict:
        if self.fit is None:
            return "fail"
        low, high = self.fit.interval
        least = -np.inf if self.at_most else -self.tolerance
        if high < least or low > self.tolerance:
            return "fail"
        return "pass" if low >= least and high <= self.tolerance else "undecided"

    def __repr__(self) -> str:
        return f"Scaling(|{self.quantity}| of {self.name}: {self}, {self.verdict})"

    def __str__(self) -> str:
        if self.fit is None:
            return "zero"
        return f"{self.fit.exponent:+.2f} ± {(self.fit.interval[1] - self.fit.interval[0]) / 2:.2f}"


@dataclass(frozen=True, eq=False, repr=False)
class CoordinateCheck:
    """What `coordinate_check` measured.

    rows : in the order of the layers, h and dh of each, then W and dW of each tensor.  notes : caveats.
    """

    title: str
    rule: Rule
    widths: tuple[int, ...]
    rows: tuple[Scaling, ...]
    tolerance: float
    notes: tuple[str, ...] = ()
    looks: int = 1

    @property
    def passed(self) -> bool:
        """Whether every |h| and |dh| passes."""
        return self.verdict == "pass"

    @property
    def verdict(self) -> Verdict:
        """Pass, fail, or undecided: too few seeds to decide."""
        verdicts = {row.verdict for row in self.rows if row.quantity in ("h", "dh")}
        return "fail" if "fail" in verdicts else "undecided" if "undecided" in verdicts else "pass"

    @property
    def confidence(self) -> float:
        """That of every interval."""
        return max((row.fit.confidence for row in self.rows if row.fit), default=0.95)

    @property
    def decision(self) -> Decision:
        """The verdict as `minintk.grade.exponent` gives one, with seeds, looks and the confidence of every interval."""
        from minintk.grade.slope import Verdict

        text = f"{len(self.rows)} exponents within {self.tolerance:g} of 0; to blame: {self.blame or 'nothing'}"
        seeds = max(len(values) for row in self.rows for values in row.values)
        return Verdict(self.verdict, text, seeds, self.looks, self.confidence)

    @property
    def blame(self) -> dict[str, Literal["start", "rate", "start and rate"]]:
        """The tensors whose initial scale or learning rate is wrong; {} for a pass, or if none of them stands out."""
        if self.passed:
            return {}
        start, rate = ([r.name for r in self.rows if r.quantity == q and r.verdict == "fail"] for q in ("W", "dW"))
        if start and self.rule == "sgd":
            rate = []
        both = {name: "start and rate" for name in start if name in rate}
        return dict.fromkeys(rate, "rate") | dict.fromkeys(start, "start") | both  # type: ignore[return-value]

    def __getitem__(self, key: tuple[Quantity, str]) -> Scaling:
        """check["dh", "2"], check["W", "2.W"]."""
        rows = {(row.quantity, row.name): row for row in self.rows}
        if key not in rows:
            raise KeyError(f"{key!r}; there are {list(rows)}")
        return rows[key]

    def __repr__(self) -> str:
        return f"CoordinateCheck({self.title}: {self.verdict})"

    def report(self) -> str:
        """The exponents as a table, the verdict, and the tensors to blame."""
        widths = " ".join(map(str, self.widths))
        lines = [self.title, f"exponents b of n^b, {widths}; ± half of the {100 * self.confidence:.4g} % interval", ""]
        texts: dict[tuple[str, str], str] = {(row.quantity, row.name): f"{row} {row.verdict}" for row in self.rows}
        for pair, kind in ((("h", "dh"), "layer"), (("W", "dW"), "tensor")):
            names = dict.fromkeys(name for quantity, name in texts if quantity in pair)
            wide = max(len(kind), *map(len, names))
            rows = [(name, *(texts.get((q, name), "") for q in pair)) for name in names]
            for first, left, right in [(kind, *map("|{}|".format, pair)), *rows]:
                lines.append(f"{first:<{wide}}  {left:<26}{right:<26}".rstrip())
            lines.append("")
        lines.append(f"{self.verdict}: every |h| and |dh| must be within {self.tolerance:g} of 0")
        for name, why in self.blame.items():
            off = [f"its size at the start, off by n^({self['W', name]})"] if "start" in why else []
            off += [f"its learning rate, off by n^({self['dW', name]})"] if "rate" in why else []
            lines.append(f"to blame: {name}, {' and '.join(off)}")
        return "\n".join([*lines, *self.notes])

    def plot(self) -> Any:
        """A matplotlib Figure: size against width, with a panel for each of |h|, |dh|, |W|, |dW|."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(15, 4.2), layout="constrained")
        axes = figure.subplots(1, 4)
        for axis, (quantity, label) in zip(axes, QUANTITIES.items(), strict=True):
            for row in self.rows:
                if row.quantity == quantity and row.fit is not None:
                    means = [float(np.exp(np.log(v).mean())) for v in row.values]
                    (line,) = axis.plot(self.widths, means, "o", ms=4, label=f"{row.name}: {row}")
                    axis.plot(self.widths, row.fit(self.widths), lw=1, color=line.get_color())
            axis.set(xscale="log", yscale="log", xlabel="width n", title=label)
            axis.set_xticks(self.widths, [str(n) for n in self.widths], rotation=45)
            axis.minorticks_off()
            low, high = axis.get_ylim()
            axis.set_ylim(min(low, high / 30), max(high, low * 30))  # so that a flat line looks flat
            axis.legend(fontsize=7)
        figure.suptitle(f"{self.title}: {self.verdict}", fontsize=10)
        return figure


def coordinate_check(
    spec_of_width: Callable[[int], Layer],
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
    progress: Callable[[float, str], None] | None = None,
) -> CoordinateCheck:
    """Train networks of these widths for a few steps and fit how the sizes of features and weights scale with width.

    spec_of_width : n -> the spec of width n, `lambda n: mn.zoo.mlp(3, n, 10)`.  The initial outputs should be small
    compared with the targets, w_std = C^-1/2 in the last layer: they fall as n^-1/2, which biases every exponent.
    x : (N, *input_shape), y : (N, C); a few dozen examples are enough.
    parametrization : `SpectralMuP()` by default.  optimizer : an optimiser, or a function network -> optimiser.
    seeds : networks of each width, at least two.  steps : of training, on all of x.
    budget : networks of each width at most, `seeds` by default: while the verdict is undecided, their number is
    doubled, and the level 0.05 of the intervals is divided among these looks as in `minintk.grade.exponent`.
    tolerance : how far from 0 an exponent may be.
    rng : draws the initial weights, numpy.random.default_rng(0) by default.  progress : called as
    progress(fraction, text).

    ValueError for widths or specs that do not match each other, FloatingPointError if training diverges.

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
    parametrization = parametrization or SpectralMuP()
    widths = check_widths(spec_of_width, x, widths)
    seeds, steps = whole("seeds", seeds, 2), whole("steps", steps)
    tolerance, rng = number("tolerance", tolerance), generator(rng)
    nets = [Network(spec_of_width(n), x.shape[1:], parametrization) for n in widths]
    names = [t.name for t in nets[0].layout.tensors]
    if odd := [n for n, net in zip(widths, nets) if [t.name for t in net.layout.tensors] != names]:
        raise ValueError(f"spec_of_width expects the same layers at every width, but {odd[0]} and {widths[0]} differ")
    if nets[0].size == nets[-1].size:
        raise ValueError(f"spec_of_width gives {nets[0].size} parameters at widths {widths[0]} and {widths[-1]} alike")
    found: dict[tuple[Quantity, str], list[Values]] = {}
    work = np.cumsum([float(net.size) for net in nets])
    most = seeds if budget is None else whole("budget", budget, seeds)
    had, looks = 0, 0
    while True:
        for i, net in enumerate(nets):
            if progress is not None:
                progress(float(work[i - 1] / work[-1]) if i else 0.0, f"width {widths[i]}")
            chosen = _chosen(optimizer, net)
            for theta in initial_thetas(net, x, rng, seeds - had):
                for key, values in _measure(net, theta, x, y, loss, chosen, steps, widths[i]).items():
                    of = found.setdefault(key, [np.empty(0)] * len(nets))
                    of[i] = np.concatenate([of[i], values])
        looks += 1
        level = 0.05 / 2**looks if budget else 0.05
        title = f"{parametrization!r}, {chosen!r}, {seeds} seeds, {steps} steps{_regime(parametrization, chosen)}"
        rows = _rows(found, widths, tolerance, 1 - level)
        check = CoordinateCheck(title, chosen.rule, widths, rows, tolerance, looks=looks)
        if check.verdict != "undecided" or 2 * seeds > most:
            return replace(check, notes=tuple(_notes(check, nets, float(np.finfo(str(x.dtype)).eps))))
        had, seeds = seeds, 2 * seeds


def _rows(
    found: dict[tuple[Quantity, str], list[Values]], widths: Sequence[int], tolerance: float, confidence: float
) -> tuple[Scaling, ...]:
    output = next(name for q, name in reversed(found) if q == "h")
    rows = []
    for (q, name), values in found.items():
        positive = [bool(np.all(v > 0)) for v in values]
        if q in ("h", "dh") or any(positive):
            draws = max(2000, round(100 / (1 - confidence)))  # a hundred in the tails, whatever the confidence
            fit = power_law(widths, values, confidence=confidence, resamples=draws) if all(positive) else None
            rows.append(Scaling(q, name, tuple(values), fit, tolerance, at_most=q == "h" and name == output))
    return tuple(rows)


def _notes(check: CoordinateCheck, nets: Sequence[Network], eps: float) -> Iterator[str]:
    """Warnings about changes of the size of rounding errors, and about widths below the number of inputs."""
    for row in (row for row in check.rows if row.quantity == "dh" and row.fit):
        if any(np.any(dh < 300 * eps * h) for dh, h in zip(row.values, check["h", row.name].values)):
            yield f"note: |dh| of {row.name} is close to the rounding error of |h|: use float64 or a larger rate"
    first = min(nets, key=lambda net: net.size).layout.tensors[0]
    fan_in = prod(first.shape[:-1])
    if first.shape[-1] < fan_in:
        smaller = f"below that width features start smaller, as sqrt(n / {fan_in}), in spectral muP"
        yield f"note: {first.name} has fan-in {fan_in}; {smaller}: use widths of at least {fan_in}"


def _regime(parametrization: Parametrization, optimizer: Optimizer) -> str:
    """The regime that the parametrization's exponents predict."""
    try:
        return f" (by its exponents: {exponents(parametrization, optimizer.rule).regime})"
    except ValueError:
        return ""


def check_widths(spec_of_width: Any, x: Array, widths: Any) -> tuple[int, ...]:
    """The widths; TypeError or ValueError unless there are at least two and spec_of_width is callable."""
    if not callable(spec_of_width):
        raise TypeError(f"spec_of_width expects a function, width -> spec, got {spec_of_width!r}")
    check_floating("x", x)
    found = tuple(widths) if isinstance(widths, Iterable) else ()
    if len(set(found)) < 2 or not all(hasattr(n, "__index__") and n >= 1 for n in found):
        raise ValueError(f"widths expects two different whole numbers >= 1 at least, got {widths!r}")
    return tuple(map(int, found))


def _chosen(optimizer: Any, net: Network) -> Optimizer:
    """The optimiser that a function returns for a network."""
    chosen = optimizer(net) if callable(optimizer) and not isinstance(optimizer, type) else optimizer
    if not isinstance(chosen, Optimizer):
        raise TypeError(f"optimizer expects one such as mn.SGD(lr=0.1), or a function network -> one, got {chosen!r}")
    return chosen


def initial_thetas(net: Network, x: Array, rng: np.random.Generator, seeds: int) -> Iterator[Array]:
    """Initial parameters theta : (E, P) drawn with `rng`, for as many members at a time as memory allows."""
    xp = array_namespace(x)
    room = min(ENSEMBLE_BYTES, available_memory(xp) // 4)
    E = max(1, min(seeds, room // (8 * net.size * x.dtype.itemsize)))
    for i in range(0, seeds, E):
        yield to_library(net.init(rng, ensemble=min(E, seeds - i), dtype=x.dtype), xp)


def _measure(
    net: Network, theta: Array, x: Array, y: Array, loss: Loss, optimizer: Optimizer, steps: int, width: int
) -> dict[tuple[Quantity, str], Values]:
    """{(quantity, name): (E,)}."""
    check_run(net, theta, x, y, loss, optimizer, steps, None, None, 1, None)
    run = Descent(net, theta, Batches(x, y, None, None, None), loss, optimizer)
    before, natural, xp = trace(net, theta, x), natural_norms(net), array_namespace(theta)
    try:
        run.advance()
        if not bool(xp.all(xp.isfinite(run.theta))):
            raise FloatingPointError(f"training diverged in the first step: choose a rate below {optimizer.lr}")
        step = spectral_norms(net, run.theta - theta, rtol=1e-2)
        for _ in range(steps - 1):
            run.advance()
        run.advance(learn=False)
    except FloatingPointError as error:
        raise FloatingPointError(f"at width {width}: {error}") from error
    after, start = trace(net, run.theta, x), spectral_norms(net, theta, rtol=1e-2)
    # std = min(1, r) / sqrt(fan_in) gives |W| = min(1, r) (1 + r); a bias gives r
    mup = {name: min(1.0, r) * (1 + r) if name.endswith(".W") else r for name, r in natural.items()}
    found: dict[Quantity, dict[str, Array]] = {
        "h": {name: _rms(passage.h) for name, passage in after.items()},
        "dh": {name: _rms(passage.h - before[name].h) for name, passage in after.items()},
        "W": {name: norm / mup[name] for name, norm in start.items()},
        "dW": {name: norm / natural[name] for name, norm in step.items()},
    }
    return {(q, name): to_host(a).astype(np.float64) for q, of in found.items() for name, a in of.items()}


def _rms(h: Array) -> Array:
    """Root mean square over examples and features, (E,)."""
    xp = array_namespace(h)
    return xp.sqrt(xp.mean(h * h, axis=tuple(range(1, h.ndim))))
