"""Write the report: results.json, the figures, and a self-contained report.html."""

from __future__ import annotations

import base64
import json
import os
import platform
from collections.abc import Sequence
from datetime import datetime
from importlib import import_module
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np

from analytic.verify.claims import FAMILY_WISE_ERROR, LINEARISED_TOLERANCE, MARGIN, RESOLUTION, SUMMARY
from analytic.verify.experiment import SCORED_IMAGES, Result, Study
from analytic.verify.problem import N_TEST, N_TRAIN
from minintk.files.pages import page
from minintk.files.writing import made_folder, write_atomically


def write(result: Result, out: str | Path, command: str = "analytic.verify.run(...)") -> Path:
    """Write report.html, results.json and the figures to the folder `out`; return the path of report.html.

    All figures are drawn before the first file is written, and each file is replaced as a whole.  Other files in the
    folder are kept.  command : the command line to show in the report.
    """
    from analytic.verify.figures import figures  # imports matplotlib only for the first figure

    drawn = list(figures(result))
    results = json.dumps(as_dict(result, command), indent=1, ensure_ascii=False)
    contents = {name: png for name, _, png in drawn}
    contents |= {"results.json": results.encode(), "report.html": html(result, drawn, command).encode()}
    folder = made_folder(Path(out).expanduser(), "out")
    for name, content in contents.items():
        write_atomically(folder / name, methodcaller("write", content))
    return folder / "report.html"


def versions() -> dict[str, str]:
    """Return the versions of Python and of the main packages, and the machine."""
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    packages = {name: import_module(name).__version__ for name in ("minintk", "numpy", "scipy", "matplotlib")}
    return {"Python": platform.python_version(), "machine": machine, **packages}


def as_dict(result: Result, command: str) -> dict[str, Any]:
    """Return the result as data for JSON: the errors of all networks, fits, z-scores, settings and versions."""
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
    """Return report.html, the template page.html with the results filled in."""
    known: dict[str, Any] = {
        "result": result, "settings": result.settings, "summary": SUMMARY[result.verdict], "command": command,
        "passed": result.verdicts.count("pass"), "versions": versions(), "margin": MARGIN, "resolution": RESOLUTION,
        "family": FAMILY_WISE_ERROR, "scored": SCORED_IMAGES, "rounding": LINEARISED_TOLERANCE, "n_train": N_TRAIN,
        "n_test": N_TEST, "finished": f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}",
        "claims": dict.fromkeys(row.claim for study in result.studies.values() for row in study.rows),
        "figures": {name: (caption, base64.b64encode(png).decode("ascii")) for name, caption, png in drawn},
        "typical": lambda values: f"{np.exp(np.log(values).mean()):.2g}",  # the geometric mean over networks
    }  # fmt: skip
    return page("analytic.verify", **known)
