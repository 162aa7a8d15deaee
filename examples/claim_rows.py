"""Define rows of tables that compare a paper's claims with our results, and write a table and its figure to files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

from running import Found, Setting
from verdicts import Claim

from minintk.files.writing import write_atomically


@dataclass(frozen=True)
class Row:
    """A row of a table that compares a paper's claims with our results.

    of : the source of the variation that ± covers: "seeds", "images", "both", or "" if there is no interval.
    size : a description of the data and networks.
    agrees : the result of testing the paper's claim on our numbers, or None if the paper makes no claim ("-").
    why : the cause of a difference from the paper, with the number measured to test it, or "open" if it is unknown.
    """

    claim: str
    paper: str
    here: str
    of: str = ""
    size: str = ""
    seeds: int | None = None
    agrees: Claim | None = None
    why: str = ""

    def __post_init__(self) -> None:
        """Raise TypeError unless `agrees` is a Claim or None."""
        if not isinstance(self.agrees, Claim | None):
            raise TypeError(f"Row(agrees=...) expects a claim, such as near(...) or at_most(...), got {self.agrees!r}")

    def kept(self) -> dict[str, Any]:
        """Return the row as a dictionary, with the verdict, its rule and, if undecided, `Claim.more` as "more"."""
        tested = self.agrees or Claim("", ((1.0, 1.0),))
        more = None if tested.agrees is not None or isnan(tested.more) else float(f"{tested.more:.3g}")
        verdict = {True: "agrees", False: "differs", None: "undecided"}[tested.agrees] if tested.rule else ""
        return vars(self) | {"agrees": tested.agrees, "verdict": verdict, "rule": tested.rule, "more": more}


def finish(s: Setting, found: Found, rows: Sequence[Row], draw: Callable[[Any], None]) -> Found:
    """Return `found`, rows and settings. If `s.out` is a folder, also write KEY.json and KEY.png (KEY is `s.key`).

    draw : a function that takes Matplotlib's pyplot module and draws the figure.
    """
    found = found | {"data": s.data, "scale": s.scale, "table": [row.kept() for row in rows]}
    found |= {"sizes": dict(s.sizes), "papers": dict(s.papers), "factors": s.factors, "first seed": s.first_seed}
    if s.out:
        import matplotlib.pyplot as plt

        text = f"{json.dumps(found, indent=1, ensure_ascii=False)}\n".encode()
        write_atomically(s.out / f"{s.key}.json", lambda file: file.write(text))
        with plt.style.context("analytic.verify.look"):
            draw(plt)
            write_atomically(s.out / f"{s.key}.png", lambda file: plt.savefig(file, dpi=120, format="png"))
            plt.close()
    return found
