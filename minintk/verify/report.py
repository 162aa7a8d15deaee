"""The report: results.json, the figures, and report.html, which is self-contained."""

from __future__ import annotations

import base64
import json
import os
import platform
from collections.abc import Sequence
from datetime import datetime
from html import escape
from importlib import import_module
from importlib.resources import files
from operator import methodcaller
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from minintk.files.writing import made_folder, write_atomically
from minintk.verify.claims import FAMILY_WISE_ERROR, MARGIN, RESOLUTION, SUMMARY, Claim, Verdict
from minintk.verify.experiment import LINEARISED_TOLERANCE, SCORED_IMAGES, Result, Study
from minintk.verify.problem import N_TEST, N_TRAIN


def write(result: Result, out: str | Path, command: str = "minintk.verify.run(...)") -> Path:
    """Write report.html, results.json and the figures into the folder `out`; returns the path of report.html.

    Everything is drawn before anything is written, and each file is replaced as a whole; other files in the folder
    stay.  command : the command line shown in the report.
    """
    from minintk.verify.figures import figures  # matplotlib is imported with the first figure

    drawn = list(figures(result))
    results = json.dumps(as_dict(result, command), indent=1, ensure_ascii=False)
    contents = {name: png for name, _, png in drawn}
    contents |= {"results.json": results.encode(), "report.html": html(result, drawn, command).encode()}
    folder = made_folder(Path(out).expanduser(), "out")
    for name, content in contents.items():
        write_atomically(folder / name, methodcaller("write", content))
    return folder / "report.html"


def check_folder(out: str | Path) -> None:
    """Raise, before any work, if a report could not be written into the folder `out`."""
    path = Path(out).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"out expects a folder, but {out} is a file")
    while not path.exists():
        path = path.parent
    if not path.is_dir() or not os.access(path, os.W_OK):
        raise PermissionError(f"out: cannot write into {path}")


def versions() -> dict[str, str]:
    """Versions of the software that the numbers depend on."""
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    packages = {name: import_module(name).__version__ for name in ("minintk", "numpy", "scipy", "matplotlib")}
    return {"Python": platform.python_version(), "machine": machine, **packages}


def as_dict(result: Result, command: str) -> dict[str, Any]:
    """The result as JSON data: every measurement of every network, fits, z-scores, settings, versions."""
    return {
        "verdict": result.verdict, "command": command, "settings": result.settings, "data": result.problem.name,
        "labels": result.problem.labels, "critical_z": result.critical, "family_wise_error": FAMILY_WISE_ERROR,
        "margin": MARGIN, "seconds": round(result.seconds, 2), "versions": versions(),
        "activations": {activation: _study_dict(study) for activation, study in result.studies.items()},
    }  # fmt: skip


def _study_dict(study: Study) -> dict[str, Any]:
    rows = [
        {
            "claim": row.claim.key, "relation": row.relation, "theory": row.theory, "exponent": row.fit.exponent,
            "standard_error": row.fit.error, "interval_95": row.fit.interval, "fitted_widths": row.fit.widths.tolist(),
            "verdict": row.verdict, "values": {str(n): v.tolist() for n, v in zip(row.widths, row.values, strict=True)},
        }
        for row in study.rows
    ]  # fmt: skip
    tests = [{"test": s.title, "t": s.t, "z": s.z, "control": s.control, "verdict": s.verdict} for s in study.tests]
    return {"learning_rate": study.lr, "linearised_training_error": study.linearised, "rows": rows, "tests": tests}


def html(result: Result, drawn: Sequence[tuple[str, str, bytes]], command: str) -> str:
    """report.html: page.html, filled in."""
    page = (files("minintk.verify") / "page.html").read_text(encoding="utf-8")
    claims = dict.fromkeys(row.claim for study in result.studies.values() for row in study.rows)
    return Template(page).substitute(
        verdict=result.verdict,
        shout=result.verdict.upper(),
        summary=SUMMARY[result.verdict],
        passed=sum(verdict == "pass" for verdict in result.verdicts),
        total=len(result.verdicts),
        sections="\n".join(_section(a, study, drawn) for a, study in result.studies.items()),
        meanings="\n".join(map(_meaning, claims)),
        critical=f"{result.critical:.2f}",
        margin=f"{MARGIN:g}",
        resolution=f"{RESOLUTION:g}",
        family=f"{100 * FAMILY_WISE_ERROR:g} %",
        scored=SCORED_IMAGES,
        linearised=", ".join(f"{study.linearised:.0e} ({a})" for a, study in result.studies.items()),
        rounding=f"{LINEARISED_TOLERANCE:.0e}",
        setup="\n".join(f"<tr><th>{name}</th><td>{text}</td></tr>" for name, text in _setup(result, command).items()),
        attribution=escape(f"Data: {result.problem.attribution}." if result.problem.attribution else ""),
    )


def _section(activation: str, study: Study, drawn: Sequence[tuple[str, str, bytes]]) -> str:
    """The two tables and two figures of an activation."""
    widest, who = study.rows[0].widths[-1], f"{study.ensemble.f.shape[1]} networks of width {study.ensemble.width}"
    columns = ["what", "size", "theory", "fitted", "95 % interval", f"at n = {widest}", "verdict"]
    rows: list[Cells] = []
    for row in study.rows:
        typical = np.exp(np.mean(np.log(row.values[-1])))  # the geometric mean over the networks of the largest width
        words = [row.claim.title, row.claim.formula]
        rows.append((words, [*row.cells, f"{typical:.2g}"], row.verdict, False))
    exponents = _table(columns, rows)
    scores: list[Cells] = [([test.title], [*test.cells], test.verdict, test.control) for test in study.tests]
    tests = _table(["what", "t (steps)", "z", "wanted", "verdict"], scores)
    return f"""<h2>{activation}: exponents in the width</h2>
{exponents}{_figure(drawn, f"exponents-{activation}.png")}
<h2>{activation}: the trained ensemble</h2>
<p>{who} against the Gaussian process that trained wide networks are drawn from.</p>
{tests}{_figure(drawn, f"ensemble-{activation}.png")}"""


def _setup(result: Result, command: str) -> dict[str, str]:
    """Data, networks, training, command, time and versions."""
    s = result.settings
    at = ", ".join(f"{count} of {n}" for n, count in s["networks"].items())
    rates = ", ".join(f"{study.lr:.3g} ({a})" for a, study in result.studies.items())
    now = datetime.now().astimezone()
    return {
        "data": f"{escape(result.problem.name)} ({result.problem.labels}): {N_TRAIN} training and {N_TEST} test images "
        "standardised and put on a sphere",
        "networks": f"hidden layers: {s['depth']}, NTK parametrization, float32; networks of width: {at}",
        "training": f"full-batch gradient descent on 1/(2N) Σ (f − y)², {s['steps']} steps; lr = {rates}",
        "command": f"<code>{escape(command)}</code>",
        "time": f"{result.seconds:.0f} s on the {s['device']}; finished {now:%Y-%m-%d %H:%M %Z}",
        "versions": escape(", ".join(f"{name} {value}" for name, value in versions().items())),
    }


def _meaning(claim: Claim) -> str:
    """An entry in the list that explains the rows."""
    meaning = escape(claim.meaning).replace("n^-1/2", "n<sup>−1/2</sup>").replace("n^-1", "n<sup>−1</sup>")
    return f"<dt>{claim.title} &nbsp; {claim.formula}</dt><dd>{meaning}</dd>"


Cells = tuple[list[str], list[str], Verdict, bool]
"""Words, numbers, the verdict, and whether the row is a control."""


def _table(head: Sequence[str], rows: Sequence[Cells]) -> str:
    """A table whose cells carry their column's name, which stands before them where the screen is narrow."""
    lines = [f"<tr>{''.join(f'<th>{name}</th>' for name in head)}</tr>"]
    for words, numbers, verdict, control in rows:
        kinds = ["w"] * len(words) + ["n"] * len(numbers) + [verdict]
        texts = [*words, *map(escape, numbers), verdict]
        cells = [f'<td class="{k}" data-column="{name}">{text}</td>' for k, name, text in zip(kinds, head, texts)]
        lines.append(f"<tr{' class=control' if control else ''}>{''.join(cells)}</tr>")
    return f"<table>{''.join(lines)}</table>"


def _figure(drawn: Sequence[tuple[str, str, bytes]], name: str) -> str:
    caption, png = next((escape(caption), png) for file, caption, png in drawn if file == name)
    source = f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
    image = f'<div class="wide"><img alt="{caption}" src="{source}"></div>'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"
