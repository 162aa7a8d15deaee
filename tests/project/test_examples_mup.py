"""Test the script that reruns the experiments of the lecture on muP, with the packaged digits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.project.reruns import Found, check_script, importable, scripts


def check_lecture(found: Found) -> None:
    """Check that norms grow as the lecture states, and that features move more in muP than in NTK parametrization.

    The best rate of the narrow network must suit the wide network in muP, but not in the standard parametrization.
    """
    powers = {name: value[0] for name, value in found["exponents"].items()}
    assert abs(powers["|W1|"] - 0.5) < 0.2
    assert abs(powers["|dh1|"] - 0.5) < 0.25
    assert found["moved, muP"][0][0] > found["moved, NTK"][0][0] + 0.1
    assert found["cost, muP"][0] < 0.3 < found["cost, standard"][0]


PAPERS: dict[str, tuple[dict[str, Any], Callable[[Found], None], Found]] = {
    "mup_lecture": (
        {"widths": (32, 96), "seeds": 2, "n_train": 32},
        check_lecture,
        {
            "exponents": {"|W1|": (0.0, 0.1), "|dh1|": (0.5, 0.1)},
            "moved, muP": [(0.0, 0.1)],
            "moved, NTK": [(-0.5, 0.1)],
            "cost, muP": (0.0, 0.1),
            "cost, standard": (1.0, 0.1),
        },
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _scripts_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    importable(monkeypatch, "common", "spectral_norms")


@pytest.mark.parametrize("name", scripts(PAPERS, set()))
def test_script(name: str, tmp_path: Path) -> None:
    check_script(name, PAPERS[name], tmp_path)
