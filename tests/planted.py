"""Planted errors: wrong formulas, each put in place of the right one, and the law that must refuse it.

    python tests/planted.py          prints the sheet, docs/planted-errors.md

A law is a function that raises AssertionError with numbers; tests/test_planted.py checks that each passes on the
library as it is, and fails with the error planted.  The laws over random specs are in tests/test_laws.py and
tests/test_cross.py; here they run on a few fixed networks, so that the sheet is the same every time.
"""

from __future__ import annotations

import planted_finite  # noqa: F401  (puts its errors on the list)
import planted_finite_images  # noqa: F401
import planted_finite_training  # noqa: F401
import planted_infinite  # noqa: F401
import pytest
from planting import PLANTED, Planted

# -------------------------------------------------------------------------------------------- the sheet

HEAD = """# Planted errors

A test that cannot fail shows nothing. Each line is a wrong formula, planted in place of the right one, the law that
refused it, and what the law said. Without the error, the same law passes.

`tests/planted_finite*.py` and `tests/planted_infinite.py` hold the errors, `tests/planted_laws.py` the laws, and
`tests/planted.py` prints this page. `tests/test_planted.py` plants them again on every run, and the laws run over
random networks in `tests/test_laws.py` and `tests/test_cross.py`.

| planted error | law that caught it | how it failed |
| --- | --- | --- |
"""


def caught(case: Planted) -> str | None:
    """What the law said with the error planted; None where it let it pass."""
    with pytest.MonkeyPatch.context() as patch:
        case.plant(patch)
        try:
            case.law()
        except AssertionError as error:
            return str(error).splitlines()[0]
    return None


def sheet() -> str:
    """The page as it is committed."""
    lines = []
    for case in PLANTED:
        said = (caught(case) or "NOT CAUGHT").replace("|", "\\|")
        lines.append(f"| {case.error.replace('|', chr(92) + '|')} | {case.law.__doc__} | {said} |\n")
    return HEAD + "".join(lines)


if __name__ == "__main__":
    print(sheet(), end="")
