"""Examine a network: its training regime, stable rates, movement during training, and the width at which it is lazy."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from minintk.arrays import Array, array_namespace, check_floating
from minintk.diagnostics.kernel_over_time import layer_kernels
from minintk.examination import wrong
from minintk.examination.alike import refrozen, restarted
from minintk.examination.judge import Finding, Statement, interval, regime
from minintk.examination.report import Report
from minintk.examination.runs import Problem, Run, full_run
from minintk.examination.signals import drawn, signals
from minintk.examination.widths import WidthLaw, gaps_by_width, narrowest, widened
from minintk.models.model import check_model
from minintk.models.network import Network
from minintk.spec.parametrization import NTK
from minintk.training.losses import Loss, mse, softmax_cross_entropy
from minintk.training.optimizers import SGD
from minintk.validate import generator, number, whole

FRACTION = 0.25
"""The default learning rate, as a fraction of a run's largest stable rate at the start."""
WORK, MOST = 1e8, 256
"""Default limits on the multiplications of a forward pass on all examples, and on the number of examples."""
STEPS, SHARPNESS, CURVED = 8, 5, 3
"""A stable rate costs as much as STEPS training steps, a sharpness as SHARPNESS such rates.  CURVED runs measure it."""

OTHERS = "it again on {} random halves of the examples, as theta is no draw of net.init", "{} others, drawn by net.init"
MSE = "mean over examples of sum over outputs (f - y)^2 / 2; torch.nn.MSELoss, a mean over {} outputs: rates times {:g}"
UNITS = {mse: MSE, softmax_cross_entropy: "that and the rates of torch.nn.CrossEntropyLoss"}
"""Texts about the replicates (with their number inserted) and about the losses (with C outputs and C / 2 inserted)."""


def examine(
    net: Network, theta: Array, x: Array, y: Array, *, loss: Loss = mse, lr: float | None = None,
    steps: int | None = None, examples: int | None = None, replicates: int = 5, widths: bool = True,
    seconds: float = 80.0, rng: np.random.Generator | None = None, progress: Callable[[str], None] | None = None,
) -> Report:  # fmt: skip
    """Return a `Report` on how this network trains on these examples: regime, findings, statements and a text.

        gap = max_t |f_t - f_lin,t| / max_t |f_lin,t - f_0|

    The network and its linearisation at theta are trained in the same way, by full-batch gradient descent.  Intervals
    are computed from replicates.  If the statistics of theta are those of a draw from `net.init`, replicates are
    networks with other initial weights.  Otherwise, they are the same network on random halves of the examples.

    regime : "lazy" if the gap is below 5 %, "rich" if the gap and the movement of the tangent kernel are above 25 %,
    otherwise "between".  It is "undecided" if an interval contains the deciding threshold, a signal is dead, or runs
    diverge or hardly learn.  findings : problems of the kinds "unstable", "dead", "badly scaled" and "short".

    net : a `Network`, built from a spec or lifted.  theta : (P,).  x : (N, *input_shape).  y : (N, C).  Runs use
    float32.  loss : a loss with a `hessian`.  lr : the rate to examine, by default a quarter of the largest stable rate
    of each network.  steps : steps per run, by default 200, or fewer if they are expensive.  examples : the number of
    examples, by default at most 256.  replicates : the number of runs, including yours, at least 3.  widths : True to
    also train networks of other widths.  seconds : the CPU time to spend.  Parts that would exceed it are skipped and
    noted; the regime needs none of them.  progress : called with a text before each part, first with a time estimate.

    Raises TypeError for a wrong type (e.g. integer arrays), NotImplementedError for a loss without `hessian`, and
    ValueError for other invalid arguments.  See Lee et al. 2019, eq. 5; Chizat, Oyallon and Bach 2019 (lazy training).

    >>> import minintk as mn
    >>> x, y = mn.datasets.digits().subset(40, np.random.default_rng(0)).one_hot()
    >>> net = mn.Network(mn.Sequential(mn.Dense(512), mn.Erf(), mn.Dense(10)), x.shape[1:])
    >>> report = examine(net, net.init(np.random.default_rng(1)), x, y, widths=False)
    >>> report.regime, report.findings
    ('lazy', ())
    """
    start, say, rng = time.perf_counter(), progress or (lambda text: None), generator(rng)
    net, theta, x, y = _checked(net, theta, x, y)
    notes, replicates = list[str](), whole("replicates", replicates, 3)
    work = signals(net, theta, x[:2])[1]
    few = min(32, int(12 * WORK / work))
    n = min(len(x), MOST, max(8, few, int(WORK / work))) if examples is None else whole("examples", examples, 4, len(x))
    least = 10 if steps is None else whole("steps", steps, 2)
    steps, seconds = steps or int(np.clip(200 * WORK / (n * work), 50, 200)), number("seconds", seconds)
    if n < len(x):
        notes.append(f"{n} of {len(x)} examples, drawn at random, were used: pass examples= for more")
        at = np.sort(rng.choice(len(x), n, replace=False))
        x, y = x[at], y[at]
    if net.coupled:
        net = net.calibrate(theta, x)
        notes.append("the statistics of BatchNorms were frozen at those of the examples, at the start")
    fresh = drawn(net, theta)
    cost, hows = work * min(n, 128) / WORK, dict.fromkeys((net.parametrization, NTK()))
    factors, seeds = ((0.5, 1.0, 2.0), 4) if 4 * cost < 1 else ((0.25, 0.5, 1.0), 4)
    if 32 * cost < 1:
        factors, seeds = (0.5, 1.5, 4.0), 8
    with warnings.catch_warnings(), np.errstate(all="ignore"):  # an overflow becomes a finding
        warnings.simplefilter("ignore", RuntimeWarning)
        problems = _replicas(Problem(net, theta, x, y, loss), replicates, fresh, rng)
        seen = [signals(one.net, one.theta, one.x)[0] for one in problems]
        findings = tuple(wrong.at_start(problems, seen))
        try:
            first, rate, each = _costs(problems[0])
            most, every = 1 + (replicates - 1) * (1.0 if fresh else 0.5), widths * min(1.0, 128 / n) * len(hows)
            every *= seeds * sum(factor**1.5 for factor in factors)  # small networks take longer than expected
            enough = _afforded(np.inf, rate, each, steps, least, most, every)[-1]
            steps, points, curved, wide, needed = _afforded(seconds, rate, each, steps, least, most, every)
            say(f"about {max(needed, 1):.0f} s on an idle machine")
            bounds = [first, *(one.stable_rate() for one in problems[1:])]
        except NotImplementedError:  # the loss has no second derivative
            raise
        except (ValueError, FloatingPointError, RuntimeError) as error:
            why = f"no gradient can be followed, {str(error).split(': ')[0]}"
            findings = findings or (Finding("dead", why, "Mend the layers that pass no signal before training."),)
            return Report("undecided", why, findings, about=repr(net), notes=tuple(notes), signals=seen[0])
    rates, runs = [FRACTION * b for b in bounds] if lr is None else [number("lr", lr)] * replicates, list[Run]()
    for i, one in enumerate(problems):
        say(f"run {i + 1} of {replicates}: the network and its linearisation, {steps} steps")
        fewer = min(points, 3) if i else points
        runs.append(full_run(one, rates[i], steps, bounds[i], points=fewer, hessian=i < curved))
    about = f"{net!r}; {n} examples, {steps} steps of full batches at the rate {rates[0]:.3g}"
    about += ", a quarter of the largest stable one" if lr is None else ""
    about += f"; your network and {OTHERS[fresh].format(replicates - 1)}"
    about += f"; loss: {UNITS.get(loss, repr(loss)).format(net.outputs, net.outputs / 2)}"
    statements = _statements(runs, bounds, fresh)
    broken = "a signal is dead, and a run shows only what is left" if any(f.kind == "dead" for f in findings) else ""
    findings += () if broken else tuple(wrong.along(net, runs, statements, rates, lr is not None))
    broken = "training diverged" if any(run.diverged for run in runs) else broken
    gap, kernel = (statements[name].interval if name in statements else (0.0, np.inf) for name in ("gap", "kernel"))
    verdict, reason = regime(gap, kernel, float(np.median([run.learned for run in runs])), broken)
    dear = [] if curved else ["sharpness, and the rate between start and end"]
    dear += ["the width for a gap of 5 %, and the coordinate check"] * (widths and not broken and not wide)
    if dear:
        asked = f"seconds={seconds:g} (--seconds)"
        notes.append(f"undecided, too dear for {asked}: {'; '.join(dear)}. Some {enough + 1:.0f} would do")
    part, laws = replace(problems[0], x=x[:128], y=y[:128]), list[WidthLaw]()
    for how in hows if wide and not broken else ():
        say(f"networks of {', '.join(f'{f:g}' for f in factors)} times the width, {how!r}")
        laws.append(gaps_by_width(part, how, fresh, FRACTION, steps, factors, seeds, rng))
    scaling = _scaling(problems[0], rates[0], fresh, say) if laws else {}
    return Report(
        verdict, reason, findings, statements, about, tuple(notes), seen[0], runs[0], tuple(laws), scaling, rates[0],
        time.perf_counter() - start,
    )  # fmt: skip


def _costs(one: Problem) -> tuple[float, float, float]:
    """Return the stable rate, and the CPU seconds that this thread needs for it and for a tangent kernel."""
    n, few, clock = len(one.x), max(2, len(one.x) // 8), list[float]()
    part = Problem(one.net, one.theta, one.x[:few], one.y[:few], one.loss)
    for work in (part.stable_rate, lambda: layer_kernels(one.net, one.theta, part.x)) * 2:  # the first call compiles
        clock.append(time.thread_time())
        work()
    kernel, start = time.thread_time() - clock[-1], time.thread_time()
    return one.stable_rate(), time.thread_time() - start, kernel * n / few


def _afforded(
    seconds: float, rate: float, kernel: float, steps: int, least: int, runs: float, widths: float
) -> tuple[int, int, int, bool, float]:
    """Return (steps, points, runs with Hessians, True if other widths fit too, total seconds) for the budget `seconds`.

    rate, kernel : seconds to compute a stable rate and a kernel.  runs, widths : costs relative to the first run.
    """
    for points, curved in ((8, CURVED), (2, 0)):
        kernels = points + (runs - 1) * min(points, 3)
        fixed = kernels * (kernel + rate) + 2 * SHARPNESS * rate * min(curved, runs)
        if (needed := fixed + runs * steps * rate / STEPS) <= seconds:
            break
    else:
        steps = int(np.clip((seconds - fixed) * STEPS / (runs * rate), least, steps))
        needed = fixed + runs * steps * rate / STEPS
    more = widths * rate * (steps / STEPS + 1)
    wide = 0 < more <= seconds - needed
    return steps, points, curved, wide, round(needed + wide * more, 6)


def _checked(net: Any, theta: Array, x: Array, y: Array) -> tuple[Network, Array, Array, Array]:
    """Return the network without masks, and float32 arrays.  Raise TypeError or ValueError if they do not match."""
    check_model(net, Network)
    net.check_theta(theta, "theta")
    for name, a in (("x", x), ("y", y)):
        check_floating(name, a)
    array_namespace(theta, x, y)
    if theta.ndim != 1:
        raise ValueError(f"theta expects one network, ({net.size},), got {tuple(theta.shape)}: pass theta[i]")
    if tuple(y.shape) != (x.shape[0], net.outputs) or x.shape[0] < 8:
        want, got = f"x (N, *{net.input_shape}), y (N, {net.outputs}), N >= 8", f"{tuple(x.shape)} and {tuple(y.shape)}"
        raise ValueError(f"examine expects {want}, got {got}: classes as one-hot rows, one example a row")
    theta, x, y = (a.astype(np.float32) for a in (theta, x, y))
    net = net._with({name: a.astype(np.float32) for name, a in net.statistics.items()})
    net.check(theta, x)
    return net, theta, x, y


def _replicas(first: Problem, replicates: int, fresh: bool, rng: np.random.Generator) -> list[Problem]:
    """Return the problem and its replicates with other initial weights or on complementary halves of the examples."""
    found, order, half = [first], np.arange(0), len(first.x) // 2
    while len(found) < replicates:
        if fresh:
            theta = array_namespace(first.theta).asarray(first.net.init(rng, dtype=np.float32))
            found.append(replace(first, net=refrozen(first.net, theta, first), theta=theta))
        else:
            order = order[half : 2 * half] if len(order) > half else rng.permutation(len(first.x))
            at = np.sort(order[:half])
            found.append(replace(first, x=first.x[at], y=first.y[at]))
    return found


def _statements(runs: Sequence[Run], bounds: Sequence[float], fresh: bool) -> dict[str, Statement]:
    """Return the measured quantities as statements, with intervals over the replicates."""
    found = dict[str, Statement]()

    def state(key: str, name: str, how: str, values: Sequence[Any], percent: bool = False) -> None:
        own = np.nan if len(values) < len(runs) and runs[0].kernel is None else float(values[0])  # run 0 diverged
        found[key] = Statement(name, *interval([float(v) for v in values], fresh), how, percent, own)

    state("rate", "largest stable rate at the start", "SGD: 2 / lambda_max(J S J' L'')", bounds)
    state("momentum", "largest stable rate, momentum 0.9", "the same, times 1 + 0.9", [1.9 * b for b in bounds])
    if not (done := [(run, run.kernel) for run in runs if run.kernel is not None]):
        return found
    state("safe", "largest stable rate along the run", "the least 2 / lambda_max met", [r.rates.min() for r, _ in done])
    for i, when in (ends := ((0, "start"), (-1, "end"))):
        if values := [r.sharpness[i] for r, _ in done if r.sharpness]:
            state(f"sharpness {when}", f"sharpness at the {when}", "largest eigenvalue of the loss's Hessian", values)
    gap, way, kernel = zip(*((r.gap.max(), r.learned, k.movement.max()) for r, k in done))
    state("gap", "distance from its linearisation", "max |f - f_lin| / max |f_lin - f_0|", gap, True)
    state("learned", "learned by the linearisation", "max |f_lin - f_0| / |y - f_0|", way, True)
    state("kernel", "tangent kernel moved", "max |Theta_t - Theta_0| / |Theta_0|", kernel, True)
    how = "of Theta with y y', centred"
    for i, when in ends:
        state(f"alignment {when}", f"alignment at the {when}", how, [k.alignment[i] for _, k in done])
    for i, when in ends:
        state(f"rank {when}", f"effective rank at the {when}", "of Theta", [k.effective_rank[i] for _, k in done])
    values = [k.eigenvalues[0, 0] / k.eigenvalues[0].sum() for _, k in done]
    state("top", "largest eigenvalue at the start", "of Theta, over the sum of the ten largest", values, True)
    for key, about in (("features", "inputs of layer {} moved"), ("weights", "weights {} moved")):
        for name in getattr(done[0][0], key):
            state(f"{key} {name}", about.format(name), "", [getattr(r, key)[name] for r, _ in done], True)
    for name in done[0][1].share:
        state(f"share {name}", f"layer {name}'s share of the trace", "", [k.share[name][0] for _, k in done], True)
    return found


def _scaling(one: Problem, rate: float, fresh: bool, say: Callable[[str], None]) -> dict[str, str]:
    """Return {layer: width exponents of |h| and |dh|, with the coordinate check's verdicts}, or {} if it fails."""
    width = narrowest(one.net.spec)
    if width < 2 or one.net._couples:
        return {}
    say("coordinate check")
    sizes = [width // 4, width // 2, width] if width > 256 else [width, 2 * width, 4 * width]
    try:
        from minintk.lab.experiments.coordinate_check import coordinate_check

        spec = restarted(one.net, one.theta, one.net.parametrization, fresh).spec
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            check = coordinate_check(
                lambda m: widened(spec, m / width), one.x[:32], one.y[:32], optimizer=SGD(rate / 4),
                parametrization=one.net.parametrization, loss=one.loss, widths=sizes, seeds=4,
            )  # fmt: skip
    except (ValueError, TypeError, FloatingPointError, RuntimeError, ModuleNotFoundError):  # the last if lab is missing
        return {}
    rows = {(row.quantity, row.name): f"{row} {row.verdict}" for row in check.rows}
    names = dict.fromkeys(row.name for row in check.rows if row.quantity == "dh")
    return {name: f"|h| {rows.get(('h', name), '')}, |dh| {rows['dh', name]}" for name in names}
