"""Test that verdicts of `verify --mup` can fail, that controls are rejected, and that the report is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from analytic.verify import laws, mup
from analytic.verify.claims import Finding, bounded, exponent, overall, refused, score
from minintk.arrays import Host
from minintk.lab.cli import main
from minintk.models.network import Network
from minintk.spec.parametrization import SpectralMuP

WIDTHS = (64, 128, 256, 512)


def values(power: float, noise: float) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [n**power * np.exp(noise * rng.standard_normal(8)) for n in WIDTHS]


@pytest.mark.parametrize(
    ("power", "noise", "verdict"), [(-1.0, 0.01, "pass"), (-0.5, 0.01, "fail"), (-1.0, 2.0, "undecided")]
)
def test_an_exponent_passes_fails_or_is_undecided(power: float, noise: float, verdict: str) -> None:
    assert exponent("law", -1.0, 0.1, WIDTHS, values(power, noise)).verdict == verdict


def test_a_control_that_is_not_refused_proves_nothing() -> None:
    wrong, right = bounded("law", 1e-3, 2.0), bounded("law", 1e-3, 1e-4)
    assert [refused(wrong).verdict, refused(right).verdict] == ["pass", "undecided"]
    assert laws.cells(refused(wrong))[0::3] == ("control: law", "refused")
    assert overall(found.verdict for found in [right, refused(right)]) == "undecided"
    assert overall(found.verdict for found in [right, wrong, refused(right)]) == "fail"
    assert [score("law", 1.0, 1.0 + 0.1 * z, 0.1).verdict for z in (2.9, -2.9, 3.1)] == ["pass", "pass", "fail"]


def test_the_command_writes_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--mup", "rates", "muon", "--out", str(tmp_path)]) == 0
    assert "6 of 6 rows hold, controls included" in capsys.readouterr().out
    record = json.loads((tmp_path / "mup.json").read_text(encoding="utf-8"))
    assert record["verdict"] == "pass"
    assert sum(found["control"] for found in record["findings"]) == 3
    table = (tmp_path / "mup.md").read_text(encoding="utf-8").splitlines()
    assert len(table) == 2 + 6
    assert all(line.replace("\\|", "").count("|") == 6 for line in table)


def test_a_law_that_is_not_one_is_refused_before_any_work() -> None:
    with pytest.raises(ValueError, match=r"laws expects some of rates, .* got light"):
        next(laws.run(["rates", "light"]))


def test_the_share_that_decays_is_that_of_five_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weight decay multiplies theta by 1 - lr weight_decay per step. In so few steps, the gradient has little effect.

    In the control, the decay is multiplied by the learning-rate scales, which differ between tensors.
    """
    found: list[Callable[[Network, int], Host]] = []

    def keep(law: str, widths: Sequence[int], shares: Callable[[Network, int], Host]) -> Finding:
        found.append(shares)
        return bounded(law, 1.0, 0.0)

    monkeypatch.setattr(mup, "slowest", keep)
    assert len(list(mup.decay(0))) == 3
    net = mup.network(16, 10, SpectralMuP(), b_std=0.0)
    sgd, adam, wrong = (shares(net, 0) for shares in found)
    np.testing.assert_allclose(sgd, 1 - (1 - 0.01 * 0.1) ** 5, rtol=0.05)
    np.testing.assert_allclose(adam, 1 - (1 - 0.001 * 0.1) ** 5, rtol=0.05)
    assert np.abs(wrong / sgd - 1).max() > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("law", laws.LAWS)
def test_every_law_holds_and_every_control_is_refused(law: str) -> None:
    found = list(laws.run([law]))
    assert overall(row.verdict for row in found) == "pass", found
    assert any(finding.control for finding in found)
