"""Report problems of a network that its initial signals and its training runs show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from minintk.examination.judge import Finding, Kind, Statement
from minintk.examination.runs import Problem, Run
from minintk.examination.signals import Signal, apart, rms, uneven
from minintk.models.network import Network

DEAD, SHARE = 0.5, 0.01
"""Limits on the share of constant features, and on a layer's share of the kernel in units of 1 / number of layers."""
LEAST, MOST = 0.05, 20.0
"""The smallest and largest acceptable size of inputs and targets, and of hidden signals relative to the inputs."""
ROUNDING = 2**-23
"""Hidden signals below this share of the inputs are dead: float32 loses them in a sum with the inputs."""
OUTPUT, UNEVEN = 3.0, 100.0
"""The largest acceptable ratios of initial outputs to targets, and of a column's spread to the median spread in x."""


def typical(values: Sequence[float]) -> str:
    """Return the median and the range of the values as text."""
    return f"{np.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def at_start(problems: Sequence[Problem], seen: Sequence[Mapping[str, Signal]]) -> Iterator[Finding]:
    """Yield findings from the initial signals, which are judged by their medians over replicates."""
    bad: Kind = "badly scaled"
    first, names, outputs = problems[0], list(seen[0]), [one.net(one.theta, one.x) for one in problems]
    size, targets, dead = rms(first.x), rms(first.y), False
    for name in names:
        shares = [100 * s.dead for one in seen if (s := one[name]).dead is not None]
        if shares and np.median(shares) > 100 * DEAD:
            same = f"are the same for all {len(first.x)} examples"
            text = f"{typical(shares)} % of the features before layer {name} {same}"
            advice = f"Draw the weights before layer {name} larger, its biases nearer 0, or take another activation."
            dead = True
            yield Finding("dead", text, advice)
    still = [100 * apart(f) for f in outputs]
    if not dead and np.median(still) < 0.1:
        text = f"outputs of different examples differ by {typical(still)} % of their size"
        yield Finding("dead", text, "Let the inputs through: larger w_std, smaller b_std, or a shortcut around layers.")
    for what, found in (("inputs", size), ("targets", targets)):
        if found and not LEAST < found < MOST:
            yield Finding(bad, f"the root mean square of the {what} is {found:.3g}", f"Divide the {what} by it.")
    if (by := uneven(first.x)) > UNEVEN:
        text = f"one column of x spreads {by:.3g} times as far as the median column"
        yield Finding(bad, text, "Standardise the columns: (x - x.mean(0)) / x.std(0).")
    hidden = [name for name in names[:-1] if ".branch." not in name]  # a branch can be much smaller than its shortcut
    sizes = {name: [one[name].size / max(size, 1e-300) for one in seen] for name in hidden}
    middle = {name: float(np.median(found)) for name, found in sizes.items()}
    wrong = [name for name, found in middle.items() if 0 < found < LEAST or found > MOST]
    if wrong:
        way = "explode" if middle[wrong[0]] > 1 else "vanish"
        text = f"signals {way}: rms of layer {wrong[0]} over the inputs' {typical(sizes[wrong[0]])}"
        advice = "Take a w_std that keeps their size (2**0.5 before ReLU, 1 before tanh and erf), or LayerNorm."
        lost = min(middle[name] for name in wrong) < ROUNDING
        yield Finding("dead" if lost else bad, text, advice)
    factors = [rms(f) / max(targets, 1e-300) for f in outputs]
    if np.median(factors) > OUTPUT:
        text = f"outputs start at {typical(factors)} times the size of the targets"
        yield Finding(bad, text, "Draw the last layer smaller, or train mn.Centred: the first steps undo the start.")


def along(
    net: Network, runs: Sequence[Run], statements: Mapping[str, Statement], rates: Sequence[float], given: bool
) -> Iterator[Finding]:
    """Yield findings from the runs: instability, layers that do not learn, and runs that are too short.

    rates : the learning rates of the runs.  given : True if the caller chose the rates.
    """
    bound, count, rate = statements["rate"], len(runs), rates[0]
    passed = [run.rates.size > 0 and float(run.rates.min()) < lr for run, lr in zip(runs, rates, strict=True)]
    counts = {
        "diverged": sum(run.diverged for run in runs),
        "doubled their loss": sum(float(run.loss.max()) > 2 * float(run.loss[0]) for run in runs),
        "passed 2 / lambda_max": sum(passed),
    }
    if what := next((what for what, n in counts.items() if 2 * n > count), [*counts][-1] if passed[0] else ""):
        own = f"; the least bound met in yours is {runs[0].rates.min():.3g}" if passed[0] else ""
        text = f"at the rate {rate:.3g}, {counts[what]} of {count} runs {what}{own}; the bound at the start is {bound}"
        lowest = min([bound.interval[0], *(float(run.rates.min()) for run in runs if run.rates.size)])
        remedy = f"Take a rate below {lowest / 2:.2g}" if given else f"Warm the rate up from {rate / 10:.2g}"
        yield Finding("unstable", text, f"{remedy}, or draw smaller weights.")
    shares = {key.removeprefix("share "): s for key, s in statements.items() if key.startswith("share ")}
    layers = {name: s for name, s in shares.items() if f"{name}.W" in net.layout.slices}
    for name, share in layers.items():
        if share.interval[1] * len(layers) < SHARE:
            text = f"layer {name} makes {share} of the tangent kernel: it hardly learns beside the others"
            yield Finding("badly scaled", text, f"Raise the rate of layer {name} (lr_scales), or w_std after it.")
    learned = float(np.median([run.learned for run in runs]))
    if learned < 0.1 and not counts["diverged"]:
        text = f"the linearisation learned {100 * learned:.2g} % of the way to y in {runs[0].steps[-1]} steps"
        yield Finding("short", text, "Pass more steps, or a larger lr.")
