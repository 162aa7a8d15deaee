"""Draw the figures of `minintk verify` without opening a window."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from analytic.verify.claims import CLAIMS, JudgedClaim
from analytic.verify.experiment import TIMES, Result, Trained
from analytic.verify.problem import N_LINE, N_TEST, N_TRAIN

PANELS = {  # panel: (axis label, claims)
    "kernels": ("relative distance of kernels (Frobenius norm)", CLAIMS[:3]),
    "weights": (r"relative movement of weights, $|W_T - W_0| / |W_0|$", CLAIMS[3:6]),
    "outputs": ("distance of outputs, root mean square, sup over t", CLAIMS[6:]),
}
LEGEND: dict[str, Any] = {"fontsize": 8.5, "frameon": False}
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")  # colour-blind safe (Okabe and Ito)
MARKERS = ("o", "s", "^", "D")
INK, FAINT = "#222222", "#999999"


def figures(result: Result) -> Iterator[tuple[str, str, bytes]]:
    """Yield (file name, caption, PNG) of every figure."""
    for activation, study in result.studies.items():
        ensemble = study.ensemble
        drawn = exponent_figure(activation, study.rows)
        yield f"exponents-{activation}.png", _EXPONENTS.format(activation=activation), _png(drawn)
        caption = _ENSEMBLE.format(activation=activation, E=ensemble.f.shape[1], n=ensemble.width)
        yield f"ensemble-{activation}.png", caption, _png(ensemble_figure(ensemble))


_EXPONENTS = (
    "{activation}: every error against the width. Points: geometric mean over networks; bars: one standard deviation "
    "over networks. Solid: the fit on the wider half of the widths, with its 95 % interval. Dashed: the power that "
    "theory predicts."
)
_ENSEMBLE = (
    "{activation}: {E} trained networks of width {n} against the Gaussian process of eqs. (14) and (15), on an arc "
    "between two test images, and over time at both ends of the arc. Bands and bars: mean ± 2 standard deviations."
)


def exponent_figure(activation: str, rows: list[JudgedClaim]) -> Any:
    """Plot errors against the width on logarithmic axes, for kernels, weights and outputs."""
    figure = Figure(figsize=(15, 5.2), layout="constrained")
    axes = figure.subplots(1, 3)
    for axis, (panel, (label, claims)) in zip(axes, PANELS.items(), strict=True):
        for row, colour, marker in zip([row for row in rows if row.claim in claims], COLOURS, MARKERS):
            _series(axis, row, colour, marker)
        axis.plot([], [], color=INK, lw=1, ls="--", label="theory")
        axis.set(xscale="log", yscale="log", xlabel="width n of the hidden layers (units)", ylabel=label, title=panel)
        widths = rows[0].widths
        axis.set_xticks(widths, [str(n) for n in widths])
        axis.minorticks_off()
        low, high = axis.get_ylim()
        axis.set_ylim(low / (high / low) ** 0.38, high)  # room for the legend
        axis.legend(title="fitted exponent (theory)", title_fontsize=8.5, alignment="left", loc="lower left", **LEGEND)
    figure.suptitle(f"{activation}: how finite networks approach infinite width", x=0.01, ha="left")
    return figure


def _series(axis: Any, row: JudgedClaim, colour: str, marker: str) -> None:
    """Plot one claim: points with error bars, the fit with its band, and a line with the theory's slope."""
    widths = np.array(row.widths, dtype=np.float64)
    logs = [np.log(v) for v in row.values]
    mean = np.exp([v.mean() for v in logs])
    sd = np.array([v.std(ddof=1) if len(v) > 1 else 0.0 for v in logs])
    bars = [mean * (1 - np.exp(-sd)), mean * (np.exp(sd) - 1)]
    (low, high), (theory, fitted, _) = row.fit.interval, row.cells
    label = f"{row.claim.title}: {fitted} ± {(high - low) / 2:.2f}  ({theory})"
    axis.errorbar(widths, mean, bars, color=colour, marker=marker, ms=5, ls="none", lw=1, capsize=2, label=label)
    n = np.geomspace(row.fit.widths[0], row.fit.widths[-1], 30)
    axis.plot(n, row.fit(n), color=colour, lw=1.6)
    axis.fill_between(n, *row.fit.band(n), color=colour, alpha=0.2, lw=0)
    centre = np.exp(np.mean(np.log(row.fit.widths)))
    axis.plot(widths, row.fit(centre) * (widths / centre) ** row.theory, color=colour, lw=1, ls="--", alpha=0.8)


def ensemble_figure(ensemble: Trained) -> Any:
    """Plot networks' outputs beside eqs. (14) and (15), on the arc at three times and at the arc's ends over time."""
    figure = Figure(figsize=(15, 4.2), layout="constrained")
    axes = figure.subplots(1, 4, sharey=True)
    line = np.arange(N_TRAIN + N_TEST, N_TRAIN + N_TEST + N_LINE)
    s = np.linspace(0, 1, N_LINE)
    for axis, t in zip(axes, (TIMES[0], TIMES[1], TIMES[-1])):
        at = int(np.flatnonzero(ensemble.steps == t)[0])
        _band(axis, s, ensemble.mean[t, line], ensemble.sd[t, line], COLOURS[0], "eqs. (14), (15)")
        _bars(axis, s[::2], ensemble.f[at][:, line[::2]], COLOURS[1], "networks")
        axis.set(xlabel="position on the arc from one test image to another", title=f"t = {t} steps")
        axis.axhline(0, color=FAINT, lw=0.5)
    axes[0].set_ylabel("output $f_t(x)$")
    axes[0].legend(loc="upper left", **LEGEND)
    axis, every_step = axes[3], np.arange(len(ensemble.mean))
    for end, colour, label in ((line[0], COLOURS[0], "left end"), (line[-1], COLOURS[2], "right end")):
        _band(axis, every_step, ensemble.mean[:, end], ensemble.sd[:, end], colour, label)
        _bars(axis, ensemble.steps, ensemble.f[:, :, end].T, colour, None)
        axis.plot(every_step, ensemble.last_layer[:, end], color=colour, lw=1, ls=":")
    axis.plot([], [], color=INK, lw=1, ls=":", label="theory if only the last layer trained")
    axis.legend(loc="upper left", **LEGEND)
    axis.set(xlabel="time t (steps)", title="the two ends of the arc over time")
    low, high = axes[0].get_ylim()
    axes[0].set_ylim(low, high + 0.18 * (high - low))
    return figure


def _band(axis: Any, x: Any, mean: Any, sd: Any, colour: str, label: str | None) -> None:
    axis.fill_between(x, mean - 2 * sd, mean + 2 * sd, color=colour, alpha=0.18, lw=0)
    axis.plot(x, mean, color=colour, lw=1.6, label=label)


def _bars(axis: Any, x: Any, f: Any, colour: str, label: str | None) -> None:
    """Draw the sample mean and ± 2 sample standard deviations of f : (E, points)."""
    style = {"marker": "o", "ms": 3.5, "ls": "none", "lw": 0.9, "capsize": 2}
    axis.errorbar(x, f.mean(axis=0), 2 * f.std(axis=0, ddof=1), color=colour, label=label, **style)


def _png(figure: Any) -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
