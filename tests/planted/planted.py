"""Print the sheet of planted errors. Each error replaces a formula with a wrong formula, so a law must fail.

    python -m tests.planted.planted           prints the sheet, docs/planted-errors.md

A law is a function that raises AssertionError with measured values if it does not hold. `test_planted.py` checks that
each law passes on the unchanged library and fails with the error planted. `tests/laws/` runs laws on random specs.
Here laws run on a few fixed networks, so that the sheet does not change between runs.
"""

from __future__ import annotations

import pytest

from tests.planted import (
    planted_features,  # noqa: F401  (puts its errors on the list)
    planted_finite,  # noqa: F401
    planted_finite_images,  # noqa: F401
    planted_finite_speed,  # noqa: F401
    planted_finite_training,  # noqa: F401
    planted_gate,  # noqa: F401
    planted_infinite,  # noqa: F401
    planted_more_layers,  # noqa: F401
    planted_mup,  # noqa: F401
    planted_rates,  # noqa: F401
    planted_sequences,  # noqa: F401
    planted_structure,  # noqa: F401
    planted_together,  # noqa: F401
)
from tests.planted.planting import PLANTED, Planted

# -------------------------------------------------------------------------------------------- the sheet

HEAD = """# Planted errors

A test that cannot fail shows nothing. Each row shows a wrong formula that replaces the correct one, the law that
rejects it, and the law's error message. Without the error, the same law passes.

The errors are defined in `tests/planted/planted_*.py`, and the laws are defined there and in `tests/kit/`.
`planted.py` prints this page. Every run of the tests plants the errors again (`test_planted.py`), and `tests/laws/`
checks laws on random networks.

| planted error | law that caught it | how it failed |
| --- | --- | --- |
"""


def caught(case: Planted) -> str | None:
    """Plant the error, and return the first line of the law's error message, or None if the law passed."""
    with pytest.MonkeyPatch.context() as patch:
        case.plant(patch)
        try:
            case.law()
        except AssertionError as error:
            return str(error).splitlines()[0]
    return None


def sheet() -> str:
    """Return the text of docs/planted-errors.md."""
    lines = []
    for case in PLANTED:
        said = (caught(case) or "NOT CAUGHT").replace("|", "\\|")
        lines.append(f"| {case.error.replace('|', chr(92) + '|')} | {case.law.__doc__} | {said} |\n")
    return HEAD + "".join(lines)


if __name__ == "__main__":
    print(sheet(), end="")
