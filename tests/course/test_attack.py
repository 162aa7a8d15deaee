"""Test that the grader's isolation stops the attacks in course/attacks. By default, only a few attacks are run."""

import os
import sys
from pathlib import Path

import pytest

from build import COURSE
from minintk.grade import Grade, grade, load

if sys.platform != "linux":
    pytest.skip("there is no Landlock here", allow_module_level=True)

import attack as attacks

ALL = attacks.attempts()
SAMPLE = ("with_realpath_patched", "from_the_root", "by_fork_exec_itself", "memory_of_the_parent", "by_readline",
          "names_in_the_frames", "renames_onto_the_victim", "kills_the_parent_by_a_descriptor",
          "watching_the_folder", "more_than_its_limits_by_the_c_library", "signals_the_parent_by_a_pipe")  # fmt: skip
LIMITED = {"names_in_the_frames", "files_left_open"}
"""Attacks that only read frames and open files of the worker's process. The system's part of the wall allows this."""


OF_ROOT = {"by_a_device_of_its_own", "by_a_cloned_mount", "by_a_file_that_stays"}
"""Attacks that need root privileges even without a wall."""


def test_there_are_enough_of_them() -> None:
    assert len(ALL) == 93  # as course/instructors.md says
    assert set(SAMPLE) <= set(ALL)


@pytest.mark.parametrize(
    "name", [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.slow) for name in ALL]
)
def test_an_attempt_gets_nothing(name: str) -> None:
    assert attacks.attempt(name, ALL[name]) == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ALL if name not in LIMITED])
def test_the_kernels_part_alone_stops_it_and_nothing_does_without(name: str) -> None:
    """With only the operating system's isolation, attacks fail. Without it, they succeed, some of them only as root."""
    assert attacks.attempt(name, ALL[name], "kernel") == ""
    if name not in OF_ROOT or os.geteuid() == 0:
        assert attacks.attempt(name, ALL[name], "none") != ""


def test_without_a_wall_an_attempt_wins() -> None:
    assert attacks.attempt("from_the_root", ALL["from_the_root"], "none") == "the secret"
    assert attacks.attempt("renames_onto_the_victim", ALL["renames_onto_the_victim"], "none") == "the victim is changed"
    gap = "the secret" if sys.version_info < (3, 14) else ""  # documented; later, readline announces each file
    assert attacks.attempt("by_readline", ALL["by_readline"], "hook") == gap


@pytest.mark.parametrize("name", ["with_realpath_patched", "by_the_c_library"])
def test_the_solution_cannot_be_run_from_its_folder(name: str, tmp_path: Path) -> None:
    """A submission cannot run the solution's file. When only Python guarded the file, such a submission scored 100."""
    folder = next(COURSE.glob("hw3*"))
    place = {"secret": str(folder / "solution.py")}
    path = tmp_path / "sub.py"
    path.write_text(f"{attacks.FILES[0].read_text()}\nexec({name}({place!r}))\n")
    found = grade(load(folder).own(), path, seed="a")
    assert found.score == 0
    assert "Landlock" in str(found.wall)
    assert not found.warning


def test_a_report_says_where_there_is_no_wall() -> None:
    for wall, isolated, says in (("", True, "NO WALL: this system has no Landlock and no seccomp; a submission can"),
                                 ("Landlock 7", True, "NO WALL: this system has no seccomp"),
                                 ("Landlock 7, seccomp", True, ""), (None, False, "Run without")):  # fmt: skip
        warning = Grade("a", "b", {}, (), isolated, wall).warning
        assert warning.startswith(says)
        assert bool(warning) == bool(says)
