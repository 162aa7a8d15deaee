"""Test the command `grade`: exit status, files, and a seed that is read from a file."""

import json
import shutil
from pathlib import Path

import pytest

from minintk.lab import cli
from tests.minintk.grade import tiny


def test_one_submission_is_graded_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(tiny.__file__, tmp_path / "exercises.py")
    (tmp_path / "secret.txt").write_text("spring\n")
    for text, status, points in ((tiny.SOLUTION, cli.OK, "10 of 10 points"), (tiny.STARTER, cli.FAILED, "0 of 10")):
        (tmp_path / "sub.py").write_text(text)
        words = ["grade", str(tmp_path), str(tmp_path / "sub.py"), "--seed", f"@{tmp_path / 'secret.txt'}"]
        assert cli.main([*words, "--in-process", "--gradescope", str(tmp_path / "results.json")]) == status
        assert points in capsys.readouterr().out
        told = json.loads((tmp_path / "results.json").read_text())
        assert sum(test["score"] for test in told["tests"]) == int(points.partition(" ")[0])
        assert "Run without a process of its own" in told["output"]
