"""The report: results.json, the figures, and report.html, one file that needs nothing else."""

from __future__ import annotations

import base64
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Sequence
from datetime import datetime
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from minintk.verify.claims import FAMILY, MARGIN, RESOLUTION, Row, Verdict
from minintk.verify.experiment import ROUNDING, SCORED, Result
from minintk.verify.figures import figures
from minintk.verify.problem import N_TEST, N_TRAIN
from minintk.verify.scores import LARGEST

SUMMARY: dict[Verdict, str] = {
    "pass": "The networks obey the theory.",
    "fail": "The networks and the theory disagree.",
    "undecided": "Nothing contradicts the theory, but some of it could not be decided: use more seeds or more widths.",
}


def write(result: Result, out: str | Path, command: str = "minintk.verify.run(...)") -> Path:
    """Write report.html, results.json and the figures into the folder `out`; returns the path of report.html.

    Everything is written beside the folder first and then moved, so an interrupted run leaves no half of a report;
    other files in the folder stay.  command : what to say the result came from.
    """
    out = Path(out).expanduser()
    check_folder(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        drawn = list(figures(result))
        for name, _, png in drawn:
            (beside / name).write_bytes(png)
        (beside / "results.json").write_text(json.dumps(as_dict(result, command), indent=1, ensure_ascii=False), encoding="utf-8")
        (beside / "report.html").write_text(html(result, drawn, command), encoding="utf-8")
        out.mkdir(exist_ok=True)
        for path in sorted(beside.iterdir()):
            os.replace(path, out / path.name)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return out / "report.html"


def check_folder(out: str | Path) -> None:
    """Raise, before any work, where a report could not be written into the folder `out`."""
    path = Path(out).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"out expects a folder, but {out} is a file")
    while not path.exists():
        path = path.parent
    if not path.is_dir() or not os.access(path, os.W_OK):
        raise PermissionError(f"out: cannot write into {path}")


def versions() -> dict[str, str]:
    """What the numbers depend on."""
    found = {"Python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"}
    for package in ("minintk", "numpy", "scipy", "matplotlib"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed as a package"
    return found


def as_dict(result: Result, command: str) -> dict[str, Any]:
    """The result as what JSON can hold: every measurement of every network, fits, z-scores, settings, versions."""
    rows = [
        {
            "activation": row.activation, "claim": row.claim.key, "relation": row.relation, "theory": row.theory,
            "exponent": row.fit.exponent, "standard_error": row.fit.error, "interval_95": list(row.fit.interval),
            "fitted_widths": row.fit.widths.tolist(), "critical_z": row.critical, "verdict": row.verdict,
            "values": {str(n): v.tolist() for n, v in zip(row.widths, row.values, strict=True)},
        }
        for row in result.rows
    ]  # fmt: skip
    tests = [
        {"activation": t.activation, "test": t.title, "t": t.t, "z": t.z, "critical_z": t.critical, "control": t.control,
         "verdict": t.verdict}
        for t in result.tests
    ]  # fmt: skip
    return {
        "verdict": result.verdict, "command": command, "settings": result.settings, "data": result.problem.name,
        "labels": result.problem.labels, "learning_rate": result.lr, "rows": rows, "tests": tests,
        "linearised_training_error": result.linearised, "family_wise_error": FAMILY, "margin": MARGIN,
        "seconds": round(result.seconds, 2), "versions": versions(),
    }  # fmt: skip


# ----------------------------------------------------------------------------------------------- numbers


def power(value: float) -> str:
    """A power of n.

    >>> power(-0.5), power(-1.0)
    ('n^−1/2', 'n^−1')
    """
    return {-0.5: "n^−1/2", -1.0: "n^−1"}[value]


def theory_of(row: Row) -> str:
    """The theory's exponent, with ≤ for a bound: "−1/2", "≤ −1/2"."""
    return ("≤ " if row.relation == "at most" else "") + power(row.theory).removeprefix("n^")


def signed(value: float, digits: int = 2) -> str:
    """A number with a minus sign that is one.

    >>> signed(-0.504)
    '−0.50'
    """
    return f"{value:.{digits}f}".replace("-", "−")


def z_text(z: float) -> str:
    """A z-score, or its bound where it is beyond float64.

    >>> z_text(1.234), z_text(37.0)
    ('1.2', '> 37')
    """
    return f"> {LARGEST:.0f}" if z >= LARGEST else signed(z, 1)


# -------------------------------------------------------------------------------------------------- HTML


def html(result: Result, drawn: Sequence[tuple[str, str, bytes]], command: str) -> str:
    """report.html."""
    passed, total = sum(v == "pass" for v in result.verdicts), len(result.verdicts)
    s = result.settings
    sections = [_exponent_section(result, a, drawn) + _ensemble_section(result, a, drawn) for a in s["activations"]]
    seen: dict[str, str] = {}
    for row in result.rows:
        seen.setdefault(row.claim.title, f"<dt>{escape(row.claim.title)} &nbsp; <code>{escape(row.claim.formula)}</code></dt>"
                        f"<dd>{_powers(escape(row.claim.meaning))}</dd>")  # fmt: skip
    critical = result.rows[0].critical
    setup = {
        "data": f"{result.problem.name}, {result.problem.labels}; {N_TRAIN} training and {N_TEST} test images, standardised, on the sphere",
        "networks": f"{s['depth']} hidden layers, NTK parametrization, float32, backprop by hand; widths and networks at each: "
        + ", ".join(f"{n}: {count}" for n, count in s["networks"].items()),
        "training": f"full-batch gradient descent on 1/(2N) Σ (f − y)², {s['steps']} steps at lr = "
        + ", ".join(f"{lr:.3g} ({a})" for a, lr in result.lr.items()),
        "command": f"<code>{escape(command)}</code>",
        "time": f"{result.seconds:.0f} s on {s['device']}, finished {datetime.now().astimezone():%Y-%m-%d %H:%M %Z}",
        "versions": ", ".join(f"{name} {value}" for name, value in versions().items()),
    }
    attribution = f"<p class='small'>Data: {escape(result.problem.attribution)}</p>" if result.problem.attribution else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>minintk verify: {result.verdict}</title><style>{STYLE}</style></head><body>
<h1>Real networks against infinite-width theory</h1>
<p class="banner {result.verdict}"><b>{result.verdict.upper()}</b> &nbsp; {SUMMARY[result.verdict]} {passed} of {total} checks pass.</p>
<p>Networks of growing width n are trained on real images by hand-written backprop, and compared with what the theory of
infinitely wide networks predicts (Lee et al. 2019; equation numbers are theirs). Theory says how fast each difference
vanishes: as a power of n. The power is fitted, with an interval, and compared.</p>
{"".join(sections)}
<h2>What the rows mean</h2><dl>{"".join(seen.values())}</dl>
<h2>How verdicts are reached</h2>
<p>log(error) is fitted as a straight line in log n, on the wider half of the widths, every network counting once; the 95 %
interval is a bootstrap over networks. A row passes when the theory's exponent is within {critical:.2f} standard errors of the
fitted one, plus {MARGIN:g} for what corrections of relative order 1/n do to an exponent at these widths; a bound (≤) passes when
the exponent is not above it by more than that. A row is undecided when {critical:.2f} standard errors exceed {RESOLUTION:g}, so that
{_powers("n^−1/2")} could not be told from a constant. {critical:.2f} is Bonferroni's: were the theory exact, all rows and z-scores
together would fail with a probability of at most {FAMILY:.0%}.</p>
<p>A z-score turns a probability into standard deviations: of the mean, {SCORED} test images jointly, by E (m − μ)′ Σ⁻¹ (m − μ) ~ χ²; of
the covariance by the likelihood ratio. z below {critical:.2f} passes. The rows that are wrong on purpose show that the test can fail: the
same networks have to reject them.</p>
<p>The linearised network, trained step by step in float64, differs from its closed form by
{", ".join(f"{error:.0e} ({a})" for a, error in result.linearised.items())} of the largest output (at most {ROUNDING:.0e} passes): these are two
routes to one number.</p>
<h2>Set-up</h2><table class="setup">{"".join(f"<tr><th>{k}</th><td>{v}</td></tr>" for k, v in setup.items())}</table>{attribution}
</body></html>
"""


def _exponent_section(result: Result, activation: str, drawn: Sequence[tuple[str, str, bytes]]) -> str:
    body = "".join(
        f"<tr><td>{escape(row.claim.title)}</td><td><code>{escape(row.claim.formula)}</code></td><td class='n'>{theory_of(row)}</td>"
        f"<td class='n'>{signed(row.fit.exponent)}</td><td class='n'>{signed(row.fit.interval[0])} to {signed(row.fit.interval[1])}</td>"
        f"<td class='n'>{float(np.exp(np.mean(np.log(row.values[-1])))):.2g}</td>{_verdict(row.verdict)}</tr>"
        for row in result.rows if row.activation == activation
    )  # fmt: skip
    widest = result.settings["widths"][-1]
    return (
        f"<h2>{escape(activation)}: exponents in the width</h2><table><tr><th>what</th><th>size</th><th>theory</th><th>fitted</th>"
        f"<th>95 % interval</th><th>at n = {widest}</th><th>verdict</th></tr>{body}</table>"
        + _figure_html(drawn, f"exponents-{activation}.png")
    )


def _ensemble_section(result: Result, activation: str, drawn: Sequence[tuple[str, str, bytes]]) -> str:
    body = "".join(
        f"<tr{' class=control' if t.control else ''}><td>{escape(t.title)}</td><td class='n'>{t.t:g}</td><td class='n'>{z_text(t.z)}</td>"
        f"<td class='n'>{'>' if t.control else '≤'} {t.critical:.2f}</td>{_verdict(t.verdict)}</tr>"
        for t in result.tests if t.activation == activation
    )  # fmt: skip
    e = result.ensembles[activation]
    return (
        f"<h2>{escape(activation)}: the trained ensemble</h2><p>{e.f.shape[1]} networks of width {e.width} against the Gaussian process "
        "that trained wide networks are drawn from.</p><table><tr><th>what</th><th>t (steps)</th><th>z</th><th>wanted</th>"
        f"<th>verdict</th></tr>{body}</table>" + _figure_html(drawn, f"ensemble-{activation}.png")
    )


def _figure_html(drawn: Sequence[tuple[str, str, bytes]], name: str) -> str:
    caption, png = next((caption, png) for file, caption, png in drawn if file == name)
    data = base64.b64encode(png).decode("ascii")
    return f"<figure><img alt='{escape(caption, quote=True)}' src='data:image/png;base64,{data}'><figcaption>{escape(caption)}</figcaption></figure>"


def _verdict(verdict: Verdict) -> str:
    return f"<td class='{verdict}'>{verdict}</td>"


def _powers(text: str) -> str:
    """n^-1/2 with a raised exponent."""
    return text.replace("n^-1/2", "n^−1/2").replace("n^-1", "n^−1").replace("n^−1/2", "n<sup>−1/2</sup>").replace("n^−1", "n<sup>−1</sup>")


STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.7rem; margin-bottom: .5rem } h2 { font-size: 1.2rem; margin-top: 2.2rem }
table { border-collapse: collapse; margin: .6rem 0 } th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #ddd }
th { font-weight: 600 } td.n { font-variant-numeric: tabular-nums; white-space: nowrap } code { font-size: .9em }
.banner { padding: .6rem 1rem; border-radius: .3rem } p.pass { background: #e3f4ea } p.fail { background: #fbe3e0 } p.undecided { background: #fdf3d8 }
td.pass { color: #00703c } td.fail { color: #b3261e; font-weight: 700 } td.undecided { color: #8a6100; font-weight: 700 }
tr.control td { color: #666 } tr.control td.pass { color: #00703c }
figure { margin: 1rem 0 } img { max-width: 100%; height: auto } figcaption, .small { font-size: .87rem; color: #555 }
dt { font-weight: 600; margin-top: .5rem } dd { margin: 0 0 .3rem 0 } table.setup th { vertical-align: top; width: 6rem }
"""
