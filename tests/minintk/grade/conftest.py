"""Provide a small assignment, and a function that grades the text of a submission."""

import shutil
from pathlib import Path

import pytest

from minintk.grade import Assignment, Grade, grade, load

HERE = Path(__file__).parent


@pytest.fixture
def tiny(tmp_path: Path) -> Assignment:
    (tmp_path / "course").mkdir()
    shutil.copy(HERE / "tiny.py", tmp_path / "course" / "exercises.py")
    return load(tmp_path / "course")


def graded(assignment: Assignment, tmp_path: Path, text: str, *, seed: str = "a", isolated: bool = True) -> Grade:
    path = tmp_path / "sub.py"
    path.write_text(text)
    return grade(assignment, path, seed=seed, isolated=isolated)
