"""Train wider and narrower networks of the same spec, and estimate the width n* at which the gap is 5 %.

    gap = A n^b,    n* = (0.05 / A)^(1/b)

`power_law` fits the gaps of a few networks at each of three widths.  Bootstrap fits give the interval of n*.  No n* is
reported if this interval spans more than a factor of 4, or if b could be positive.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from minintk import spec as s
from minintk.arrays import Host, array_namespace
from minintk.diagnostics.power_laws import Estimate, PowerLaw, power_law
from minintk.examination.alike import refrozen, restarted
from minintk.examination.runs import Problem, parted
from minintk.models.network import Network
from minintk.spec.parametrization import Parametrization
from minintk.spec.shapes import has_weights

TARGET, FACTOR = 0.05, 4.0
"""The target gap, and the largest ratio of the interval's ends for which a width is reported."""


def widened(spec: s.Layer, factor: float, sizes: list[int] | None = None, last: bool = True) -> Any:
    """Return the spec with `factor` times as many features and channels in all layers with weights except the last.

    Sizes are rounded and are at least 1.  Depthwise convolutions stay depthwise.  sizes : a list to which the original
    widths are appended.  last : True if no layer with weights follows the spec.
    """
    if isinstance(spec, s.Sequential):
        heavy = [has_weights(one) for one in spec.layers]
        ends = [last and not any(heavy[i + 1 :]) for i in range(len(heavy))]
        return s.Sequential(*(widened(one, factor, sizes, end) for one, end in zip(spec.layers, ends, strict=True)))
    if spec.inside and not hasattr(spec, "channels"):  # attention has channels
        return type(spec)(*(widened(one, factor, sizes, last) for one in spec.inside))
    name = next((f.name for f in fields(spec) if f.name in ("width", "channels")), "")  # type: ignore[arg-type]
    if last or not has_weights(spec) or not name:
        return spec
    size = getattr(spec, name)
    if sizes is not None:
        sizes.append(size)
    wide = {name: max(1, round(factor * size))}
    if getattr(spec, "groups", 1) == size > 1:
        wide["groups"] = wide[name]
    return replace(spec, **wide)  # type: ignore[type-var]


def narrowest(spec: s.Layer) -> int:
    """Return the smallest width of a hidden layer, or 0 if there is no hidden layer."""
    widened(spec, 1, found := list[int]())
    return min(found, default=0)


@dataclass(frozen=True, eq=False)
class WidthLaw:
    """The gap against width.  gaps[i] : (S,), the gaps of S networks of width widths[i].

    width, widths : widths of the narrowest hidden layer, in the examined network and in those trained.  fit : None if
    not all gaps were measured.  needed : the width for a gap of 5 %, or None if unknown.  why : the reason for None.
    """

    parametrization: str
    width: int
    widths: tuple[int, ...] = ()
    gaps: tuple[Host, ...] = ()
    fit: PowerLaw | None = None
    needed: Estimate | None = None
    why: str = ""

    @property
    def answer(self) -> str:
        """Return the width for a gap of 5 % with its interval as text, or "refused"."""
        if self.needed is None:
            return "refused"
        text = "{} ({} to {})".format(*(f"{float(f'{n:.3g}'):.0f}" for n in (self.needed.value, *self.needed.interval)))
        low, high = min(self.widths), max(self.widths)
        return text + ("" if low <= self.needed.value <= high else f", extrapolated from {low} to {high}")

    def __str__(self) -> str:
        if self.needed is None or self.fit is None:
            here = [100 * float(np.exp(np.log(g).mean())) for n, g in zip(self.widths, self.gaps) if n == self.width]
            return f"refused: {self.why}" + (f"; here the gap is {here[0]:.3g} %" if here else "")
        law = f"gap ~ n^{self.fit.exponent:.2f} ({self.fit.interval[0]:.2f} to {self.fit.interval[1]:.2f})"
        return f"{self.answer}, {self.needed.value / self.width:.3g} times this width; {law}"


def gaps_by_width(
    one: Problem, how: Parametrization, fresh: bool, fraction: float, steps: int, factors: tuple[float, ...],
    seeds: int, rng: np.random.Generator,
) -> WidthLaw:  # fmt: skip
    """Train networks of `factors` times the width and their linearisations, each at `fraction` of its stable rate.

    The sizes of initial weights (`restarted`), the BatchNorms (`refrozen`) and the examples are taken from `one`.
    """
    width, gaps, name = narrowest(one.net.spec), list[Host](), repr(how)
    if not width:
        return WidthLaw(name, width, why="the spec has no hidden layer to widen")
    widths = tuple(dict.fromkeys(max(1, round(factor * width)) for factor in factors))
    try:
        spec = restarted(one.net, one.theta, how, fresh).spec
        for n in widths:
            wide, found = Network(widened(spec, n / width), one.net.input_shape, how), []
            for _ in range(seeds):
                theta = array_namespace(one.x).asarray(wide.init(rng, dtype=one.x.dtype))
                problem = replace(one, net=refrozen(wide, theta, one), theta=theta)
                run, _ = parted(problem, fraction * problem.stable_rate(), steps)
                if run.diverged:
                    raise ValueError(f"a network of width {n} diverged")
                found.append(float(run.gap.max()))
            gaps.append(np.array(found))
        return law(name, width, widths, tuple(gaps))
    except (ValueError, TypeError, FloatingPointError, RuntimeError) as error:
        return WidthLaw(name, width, widths, tuple(gaps), why=str(error).split(": ")[0])


def law(parametrization: str, width: int, widths: tuple[int, ...], gaps: tuple[Host, ...]) -> WidthLaw:
    """Fit gap = A n^b and solve for n*.  `needed` is None if the seeds do not determine the exponent or the width."""
    fit, why, needed = power_law(widths, gaps), "", None
    low, high = fit.interval
    logs = (np.log(TARGET) - fit.draws[:, 0]) / np.minimum(fit.draws[:, 1], -1e-3)
    least, most = map(float, np.exp(np.clip(np.percentile(logs, [2.5, 97.5]), -50, 50)))
    if high >= 0:
        why = f"the gap does not surely fall with the width, exponent {low:.2f} to {high:.2f}"
    elif most / least > FACTOR:
        why = f"its interval spans more than a factor of {FACTOR:g}, {min(most / least, 1e4):.3g}"
    else:
        needed = Estimate(float((TARGET / fit.prefactor) ** (1 / fit.exponent)), (least, most), 0.95)
    return WidthLaw(parametrization, width, widths, gaps, fit, needed, why)
