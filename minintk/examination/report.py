"""Show the results of `examine` as text, as figures, and as a page with both."""

from __future__ import annotations

import base64
import io
import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from math import isnan
from operator import methodcaller
from pathlib import Path
from typing import Any

from minintk.examination.judge import LAZY, PARTS, RICH, Finding, Regime, Statement
from minintk.examination.runs import Run
from minintk.examination.signals import Signal
from minintk.examination.widths import WidthLaw

MEANS = {
    "lazy": "Predict with its linearisation or tangent kernel (with NTK(), an.kernel(spec)): they describe it.",
    "between": "Treat predictions of its tangent kernel as a first approximation.",
    "rich": "Do not replace the network by its tangent kernel: it learns features.",
    "undecided": "Ask again with more replicates, examples or steps.",
}
"""Advice for each regime."""
MEASURED = "measured", "yours", "mean (95 % interval)", "how"
LAYERS = "layer", "size", "gain", "dead", "share of kernel", "weights moved", "inputs moved"
WORDS = (
    "size: root mean square of a layer's output at your start; gain: that over its input's; dead: the share of "
    "features that no example changes; the rest by layer are means. All words: docs/reference/examine.md"
)


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """The results of `mn.examine`.  `print(report)` shows them as text; `report.write(folder)` adds figures and a page.

    regime : "lazy", "between", "rich" or "undecided".  reason : why.  findings : detected problems.  statements : {key:
    number with its interval}.  signals : {layer: signal in the examined network at the start}.  run : its run.  laws :
    the gap against width.  scaling : {layer: exponents of the coordinate check}.  rate : the learning rate of `run`.
    """

    regime: Regime
    reason: str
    findings: tuple[Finding, ...] = ()
    statements: dict[str, Statement] = field(default_factory=dict)
    about: str = ""
    notes: tuple[str, ...] = ()
    signals: dict[str, Signal] = field(default_factory=dict)
    run: Run | None = None
    laws: tuple[WidthLaw, ...] = ()
    scaling: dict[str, str] = field(default_factory=dict)
    rate: float = float("nan")
    seconds: float = 0.0

    @property
    def advice(self) -> tuple[str, ...]:
        """Return sentences of advice, one for each finding, and others about the rate, the widths and the regime."""
        found = [finding.advice for finding in self.findings]
        if (safe := self.statements.get("safe")) is not None and self.run is not None and self.run.rates.size:
            bound, start = min(safe.interval[0], float(self.run.rates.min())), self.statements["rate"].value
            fell = f", though it starts at {start:.2g}" if bound < start / 2 else ""
            least = "least bound of your run" if bound < safe.interval[0] else "low end of the interval over replicates"
            found.append(f"Keep the rate of SGD below {bound:.2g}, the {least}{fell}.")
        wide = [law for law in self.laws if law.needed and self.regime != "lazy"]
        how = "In {0.parametrization}, started alike, the gap is 5 % at width {0.answer}; here {0.width}."
        found += [how.format(law) for law in wide]
        return (*dict.fromkeys(found), MEANS[self.regime])

    def layers(self) -> list[Sequence[str]]:
        """Return one row for each layer, with the columns `LAYERS`."""
        rows = list[Sequence[str]]()
        for name, one in self.signals.items():
            keys = f"share {name}", f"weights {name}.W", f"features {name}"
            own = f"{one.size:.3g}", f"{one.gain:.3g}", "" if one.dead is None else f"{100 * one.dead:.3g} %"
            rows.append((name, *own, *(str(self.statements.get(key, "")) for key in keys)))
        return rows

    def rows(self) -> list[Sequence[str]]:
        """Return one row, with the columns `MEASURED`, for each statement that is not about a single layer."""
        found = (s for key, s in self.statements.items() if not key.startswith(PARTS))
        return [(s.name, "diverged" if isnan(s.own) else s.text(s.own), str(s), s.how) for s in found]

    def __repr__(self) -> str:
        kinds = ", ".join(dict.fromkeys(finding.kind for finding in self.findings)) or "no findings"
        return f"Report({self.regime}; {kinds})"

    def __str__(self) -> str:
        found = [f"finding, {finding.kind}: {finding.text}" for finding in self.findings]
        end = *(f"note: {note}" for note in self.notes), f"took {self.seconds:.0f} s"
        parts = [
            textwrap.wrap(self.about, 118), [f"regime: {self.regime.upper()}. {self.reason}", *found],
            table(MEASURED, self.rows()), table(LAYERS, self.layers()),
            [f"width for 5 %, {law.parametrization}, a quarter of its stable rate: {law}" for law in self.laws],
            table(("layer", "with the width n (coordinate check)"), list(self.scaling.items())),
            textwrap.wrap(WORDS, 118) if self.signals else (),
            ["what to do", *(f"- {sentence}" for sentence in self.advice), *end],
        ]  # fmt: skip
        return "\n\n".join(filter(None, map("\n".join, parts)))

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON data, without signals and run, and with each of `laws` as text."""
        plain = ("regime", "reason", "rate", "advice", "notes", "scaling", "about", "seconds")
        widths = {law.parametrization: str(law) for law in self.laws}
        statements = {key: asdict(s) for key, s in self.statements.items()}
        found = {"findings": [asdict(f) for f in self.findings], "statements": statements, "widths": widths}
        return {name: getattr(self, name) for name in plain} | found

    def write(self, out: str | Path) -> Path:
        """Write examine.html, examine.txt, examine.json and the figures to the folder `out`; return the page's path.

        All figures are drawn before the first file is written.
        """
        from minintk.examination.figures import figures
        from minintk.files.pages import page
        from minintk.files.writing import made_folder, write_atomically

        contents, drawn = dict[str, bytes](), []
        for name, caption, figure in figures(self):
            figure.savefig(buffer := io.BytesIO(), dpi=110, format="png")
            contents[name] = buffer.getvalue()
            drawn.append((caption, base64.b64encode(buffer.getvalue()).decode("ascii")))
        known = {"columns": (MEASURED, LAYERS), "words": WORDS, "lazy": LAZY, "rich": RICH}
        html = page("minintk.examination", report=self, figures=drawn, **known)
        texts = {"txt": f"{self}\n", "json": json.dumps(self.as_dict(), indent=1), "html": html}
        contents |= {f"examine.{end}": text.encode() for end, text in texts.items()}
        folder = made_folder(Path(out).expanduser(), "out")
        for name, content in contents.items():
            write_atomically(folder / name, methodcaller("write", content))
        return folder / "examine.html"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a plain-text table, each column as wide as its widest cell; nothing if there are no rows."""
    wide = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows) if rows else ():
        yield "  ".join(f"{cell:<{n}}" for cell, n in zip(row, wide, strict=True)).rstrip()
