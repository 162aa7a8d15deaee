"""Test grading reports: scores, reasons, hints, partial points, and systems where no process can start."""

import json
import os
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from minintk.grade import (
    Assignment,
    Exercise,
    Values,
    grade,
    load,
    record,
    submission,
    worker,
)
from minintk.grade.submission import GraderError
from minintk.lab import cli
from tests.minintk.grade.conftest import HERE, graded
from tests.minintk.grade.tiny import SOLUTION, STARTER


def test_reports_hold_scores_reasons_and_hints(
    tiny: Assignment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sub.py").write_text(SOLUTION.replace("u @ W.T", "u @ W.T / 5") + "# <b>\n")
    (tmp_path / "secret").write_text("a\n")
    files = {name: str(tmp_path / name) for name in ("junit", "gradescope", "html")}
    options = [word for name, path in files.items() for word in (f"--{name}", path)]
    status = cli.main(["grade", tiny.folder, str(tmp_path / "sub.py"), "--seed", f"@{tmp_path / 'secret'}", *options])
    out = capsys.readouterr().out
    assert status == cli.FAILED
    assert "4 of 10 points" in out
    assert "a mean where a sum belongs" in " ".join(out.split())
    cases = ElementTree.parse(files["junit"]).findall("./testsuite/testcase")
    assert [(case.get("name"), case.find("failure") is None) for case in cases] == [
        ("dense", True),
        ("dense backward", False),
    ]
    results = json.loads(Path(files["gradescope"]).read_text())
    assert [(t["score"], t["max_score"], t["visibility"], t["status"]) for t in results["tests"]] == [
        (4, 4, "visible", "passed"),
        (0.0, 6, "after_due_date", "failed"),
    ]
    assert "hint: write down" in results["tests"][1]["output"]
    page = Path(files["html"]).read_text()
    assert "tiny: 4 of 10 points" in page
    assert "1/N" in page
    (tmp_path / "sub.py").write_text(SOLUTION)
    assert cli.main(["grade", tiny.folder, str(tmp_path / "sub.py"), "--public", "--in-process"]) == cli.OK


@pytest.mark.parametrize(
    "words", [["nothing", "sub.py"], ["{folder}", "nothing.py"], ["{folder}", "{sub}", "--only", "x"]]
)
def test_what_is_not_there_is_said(
    words: list[str], tiny: Assignment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sub.py").write_text(SOLUTION)
    status = cli.main(["grade", *(w.format(folder=tiny.folder, sub=tmp_path / "sub.py") for w in words)])
    assert status == cli.USAGE
    assert "expects" in capsys.readouterr().err


def test_students_get_public_exercises_as_data(
    tiny: Assignment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = record(tiny, "a", tmp_path / "public.json")
    assert [exercise.name for exercise in given.exercises] == ["dense"]  # the other exercise is hidden
    assert given.variant("whatever") == tiny.variant("a")
    assert "x @ W" not in (tmp_path / "public.json").read_text()
    assert graded(given, tmp_path, SOLUTION).score == 4
    (shown, *_), (asked, *_) = (a.cases(a.exercises[0], "a", a.variant("a")) for a in (given, tiny))
    assert isinstance(shown, Values)
    assert isinstance(asked, Values)
    assert not np.array_equal(shown.args[0], asked.args[0])  # so a table of the shown values earns nothing
    assert [a.withheld for a in (given, tiny)] == [6, 0]
    wrong = graded(given, tmp_path, SOLUTION.replace("@ W +", "@ W -").replace("@ W - b\n\n", "@ W + b\n\n"))
    assert "it looks like this: the bias has the other sign" in wrong.exercises[0].text
    capsys.readouterr()
    status = cli.main(["grade", str(tmp_path), str(tmp_path / "sub.py")])  # the folder that holds public.json
    assert status == cli.FAILED
    out = capsys.readouterr().out
    assert "0 of 4 points; 6 of the 10 are kept for the grade" in out
    assert "the public variant" not in out  # the file holds only one
    assert cli.main(["grade", tiny.folder, str(tmp_path / "sub.py"), "--public"]) == cli.FAILED
    assert re.search(r"bias:\s+\w+\s+\(the\s+public\s+variant,\s+for\s+want\s+of\s+--seed\)", capsys.readouterr().out)
    (tmp_path / "public.json").write_bytes(b"PK" + bytes(99))
    with pytest.raises(ValueError, match="not a message"):
        load(tmp_path / "public.json")


def test_a_function_names_the_exercises_that_ask_for_it(tiny: Assignment, tmp_path: Path) -> None:
    (tmp_path / "sub.py").write_text(SOLUTION)
    for only, found in (("dense", ["dense"]), ("dense_backward", ["dense backward"]), ("dense backward",) * 2):
        names = [g.exercise.name for g in grade(tiny, tmp_path / "sub.py", only=[only]).exercises]
        assert names == ([found] if isinstance(found, str) else found)
    with pytest.raises(
        ValueError, match=re.escape("--only) expects functions or exercises ['dense', 'dense backward']")
    ):
        grade(tiny, tmp_path / "sub.py", only=["dense_backwards"])


def test_shapes_that_do_not_fit_are_said_once(tiny: Assignment, tmp_path: Path) -> None:
    found = graded(tiny, tmp_path, SOLUTION.replace("return x @ W + b if", "return x @ W.T + b if"), seed="a")
    text = found.exercises[0].text.partition("\n")[0]
    assert "five examples: ValueError: matmul: size 4 is different from 3; x (5, 3); W (3, 4); b (4,) (line 5," in text
    assert text.endswith("(and in one example)")
    assert text.count("matmul") == 1


def test_it_runs_where_nothing_can_start(tiny: Assignment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without isolation, grading needs no processes, threads or mapped files, so grading also runs in a browser."""

    def refused(*args: object, **options: object) -> None:
        raise OSError("not here")

    for where in ("minintk.grade.submission.Popen", "threading.Thread.start", "mmap.mmap", "os.fork"):
        monkeypatch.setattr(where, refused)
    assert graded(tiny, tmp_path, SOLUTION, isolated=False).score == 10
    assert graded(tiny, tmp_path, STARTER, isolated=False).score == 0
    with pytest.raises(GraderError, match="no process can start here"):
        graded(tiny, tmp_path, SOLUTION)


def test_the_assignment_in_the_documentation_works(tmp_path: Path) -> None:
    page = HERE.parents[2] / "docs" / "course" / "writing-an-exercise.md"
    if not page.exists():
        pytest.skip("there are no docs in this tree (an installed package, say)")
    (block,) = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "dense.py").write_text(block)
    assert graded(load(tmp_path / "dense.py"), tmp_path, SOLUTION.replace('== "plus"', "!= 0")).score == 10
    forgotten = SOLUTION.replace('return x @ W + b if bias == "plus" else x @ W - b', "return x @ W")
    assert "the bias is forgotten" in graded(load(tmp_path / "dense.py"), tmp_path, forgotten).exercises[0].text


@pytest.mark.parametrize(
    ("used", "answers", "waits", "killed"),
    [
        (0.6, None, [1], True), (0.4, None, [1, 3], True),
        (9.0, 1, [1], False), (0.4, 2, [1, 3], False),
    ],
)  # fmt: skip
def test_a_busy_machine_has_a_grace_and_a_busy_loop_has_none(
    used: float, answers: int | None, waits: list[float], killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submission whose CPU time is below half of its limit gets more time, because the machine was busy."""
    clock, waited, ends = iter([7.0, 7.0 + used]), list[float](), list[str]()

    def answered(seconds: float) -> bool:
        waited.append(seconds)
        return len(waited) == answers

    process: Any = SimpleNamespace(pid=1, kill=lambda: ends.append("kill"), wait=lambda: ends.append("wait"))
    done: Any = SimpleNamespace(wait=answered)
    monkeypatch.setattr(submission, "_used", lambda pid: next(clock))
    submission._watch(process, 1, 3, done)
    assert waited == waits
    assert ends == ["kill", "wait"] * killed


@pytest.mark.skipif(sys.platform != "linux", reason="the clock of another process is Linux's")
def test_the_clock_of_a_process_is_its_own() -> None:
    """The clock counts CPU time, not waiting time."""
    before, used, after = time.process_time(), submission._used(os.getpid()), time.process_time()
    assert before <= used <= after


def test_partial_points_are_for_those_who_ask(tmp_path: Path) -> None:
    def cases(rng: np.random.Generator, variant: object) -> list[Values]:
        return [Values("f", (k,), k) for k in (1, 2, 3, 4)]

    text = "def f(k): return min(k, 3)"
    for partial, score in ((True, 6.0), (False, 0.0)):
        assert graded(Assignment("p", [Exercise("f", 8, cases, partial=partial)]), tmp_path, text).score == score


def test_a_message_of_a_submission_is_cut(tiny: Assignment, tmp_path: Path) -> None:
    """Messages are cut. Each case stores a message, so five megabytes per case would fill the grader's memory."""
    text = SOLUTION.replace("return x @ W", "raise ValueError(10**6 * 'long ')\n    return x @ W", 1)
    found = graded(tiny, tmp_path, text).exercises[0]
    assert "ValueError: long long" in found.text
    assert all(len(str(said)) < 3000 for _, said in found.failures)


def test_a_file_that_does_not_load_says_so_on_a_busy_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first reply is read only after the process has ended; the second reply is then still in the pipe."""

    def late(stream: Any) -> Any:
        time.sleep(1.5)
        return receive(stream)

    receive = worker.receive
    monkeypatch.setattr(worker, "receive", late)
    (path := tmp_path / "eve.py").write_text("1 +")
    with (
        submission.Submission(path, isolated=True) as eve,
        pytest.raises(submission.SubmissionError, match="does not load: SyntaxError"),
    ):
        eve.call("f")
