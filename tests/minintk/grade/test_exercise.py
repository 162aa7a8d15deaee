"""Test a submission to an assignment: scores, variants, messages, and cheats, which must earn nothing."""

import re
import sys
from collections import Counter
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from minintk.grade import (
    Assignment,
    Exercise,
    Law,
    SubmissionError,
    Values,
    submission,
    worker,
)
from minintk.grade.submission import GraderError, Submission
from tests.minintk.grade.conftest import graded
from tests.minintk.grade.tiny import SOLUTION, STARTER


@pytest.mark.parametrize("isolated", [True, False])
def test_the_solution_has_all_points_and_the_starter_none(tiny: Assignment, tmp_path: Path, isolated: bool) -> None:
    assert {tiny.variant(seed)["bias"] for seed in "abcd"} == {"plus", "minus"}
    for seed in {tiny.variant(seed)["bias"]: seed for seed in "abcd"}.values():
        found = graded(tiny, tmp_path, SOLUTION, seed=seed, isolated=isolated)
        assert (found.score, found.refused) == (10, ()), found
    assert graded(tiny, tmp_path, STARTER, isolated=isolated).score == 0


def test_a_forward_function_may_keep_a_cache_of_anything(tiny: Assignment, tmp_path: Path) -> None:
    cached = """
from variant import bias

class Kept:
    pass

def dense(x, W, b):
    kept = Kept()
    kept.x, kept.W, kept.sign = x, W, x.dtype.type(1 if bias == "plus" else -1)
    return x @ W + kept.sign * b, kept

def dense_backward(u, kept):
    return {"dx": u @ kept.W.T, "dW": kept.x.T @ u, "db": kept.sign * u.sum(axis=0)}
"""
    found = graded(tiny, tmp_path, cached)
    assert found.score == 10, [g.text for g in found.exercises]


def test_a_submission_may_define_a_dataclass(tiny: Assignment, tmp_path: Path) -> None:
    """A submission may define a dataclass with string annotations, for which `dataclass` needs the class's module."""
    kept = "from dataclasses import dataclass\n@dataclass\nclass Kept:\n    x: 'np.ndarray'\n"
    assert graded(tiny, tmp_path, f"from __future__ import annotations\n{kept}{SOLUTION}", isolated=False).score == 10


def test_the_other_variant_is_named(tiny: Assignment, tmp_path: Path) -> None:
    other = SOLUTION.replace(
        "from variant import bias", f"bias = {'minus' if tiny.variant('a')['bias'] == 'plus' else 'plus'!r}"
    )
    found = graded(tiny, tmp_path, other)
    assert found.refused == ("dense",)  # `dense` is wrong, but the gradients are right for it
    assert "it looks like this: the bias has the other sign" in found.exercises[0].text


def test_what_all_cases_show_is_said_once(tiny: Assignment, tmp_path: Path) -> None:
    """The report on starter code has one line per exercise and no hints. A message common to all cases appears once."""
    assert [g.text for g in graded(tiny, tmp_path, STARTER).exercises] == ["dense is not written yet"] * 2
    half = f"{STARTER}def dense(x, W, b):\n    return x @ W @ W.T\n"
    first, second = (g.text for g in graded(tiny, tmp_path, half).exercises)
    assert first.startswith("five examples: expected shape (5, 4), got (5, 3)\none example: expected"), first
    assert second == "dense_backward is not written yet"
    said = "all 2 cases: AttributeError: there is no function dense\nhint: the variant says which sign the bias has"
    assert graded(tiny, tmp_path, "").exercises[0].text == said
    lost = graded(tiny, tmp_path, f"{SOLUTION}def dense(x, W, b):\n    return x[:, :1] @ W[:1] + x.mean() * b + 7\n")
    assert re.fullmatch(r"five examples: .* the worst of 20 \(and in one example\)\nhint: .*", lost.exercises[0].text)


def test_the_same_seed_gives_the_same_grade(tiny: Assignment, tmp_path: Path) -> None:
    wrong = SOLUTION.replace("x.T @ u", "x.T @ u * 1.3")
    first, second = (graded(tiny, tmp_path, wrong) for _ in range(2))
    assert [g.text for g in first.exercises] == [g.text for g in second.exercises]
    assert "dW: right but for a factor 1.3" in first.exercises[1].text


# ------------------------------------------------------------------------------------------------- the cheats

CHEATS = {
    "modules": """
        import sys
        answers = sys.modules["analytic"]
        """,
    "patch": """
        import numpy as np
        np.allclose = np.array_equal = np.isclose = lambda *a, **k: True
        np.abs = lambda a, *r: a * 0
        def dense(x, W, b): return x
        def dense_backward(u, x, W, b): return x, W, b
        """,
    "replies": """
        import os
        for fd in range(64):
            try: os.write(fd, b"x" * 64)
            except OSError: pass
        """,
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_earns_nothing(tiny: Assignment, tmp_path: Path, name: str) -> None:
    found = graded(tiny, tmp_path, SOLUTION + dedent(CHEATS[name]))
    assert found.score == 0, [g.text for g in found.exercises]


TRICKS = {
    "import minintk": "minintk may not be imported in this assignment: the standard library and numpy may",
    "import importlib; importlib.import_module('analytic')": "analytic may not be imported",
    "import sys; del sys.meta_path[0]; import analytic": "Error: ",
    "open({answers!r}).read()": "exercises.py may not be read",
    "import os; os.chdir('/'); open({answers!r}[1:]).read()": "PermissionError",
    "import os; os.listdir({folder!r})": "PermissionError",
    "import os; open(f'/proc/{{os.getppid()}}/environ').read()": "environ may not be read",
    "import subprocess; subprocess.run(['ls'])": "PermissionError",
    "import os; os.system('true')": "PermissionError: os.system is not allowed",
    "import os; os.fork()": "PermissionError: os.fork is not allowed",
    "import ctypes; ctypes.CDLL(None)": "PermissionError: ctypes.dlopen is not allowed",
    "import gc; gc.get_objects()": "PermissionError: gc.get_objects is not allowed",
    "open('/tmp/new', 'w')": "new may not be written by a submission",
}
"""Tricks that a submission may try, and the message for each. The attacks in course/attacks are stronger."""

if sys.platform == "win32":  # some tricks do not exist there
    TRICKS = {trick: says for trick, says in TRICKS.items() if not re.search(r"/|fork|CDLL\(None", trick)}


def test_tricks_are_stopped(tiny: Assignment, tmp_path: Path) -> None:
    places = {"answers": str(Path(tiny.folder) / "exercises.py"), "folder": tiny.folder}
    lines = [f"def f{i}():\n    {trick.format(**places)}\n" for i, trick in enumerate(TRICKS)]
    (tmp_path / "sub.py").write_text("\n".join(lines))
    with Submission(tmp_path / "sub.py") as student:
        for i, (trick, says) in enumerate(TRICKS.items()):
            with pytest.raises(SubmissionError) as error:
                student.call(f"f{i}")
            assert says in str(error.value), trick


def test_the_process_holds_neither_answers_nor_the_seed(tmp_path: Path) -> None:
    (tmp_path / "sub.py").write_text(
        "import os, sys\ndef held(): return sorted(sys.modules), dict(os.environ), sys.argv, os.listdir('.')"
    )
    with Submission(tmp_path / "sub.py") as student:
        modules, environment, words, files = student.call("held")
    assert not [name for name in modules if name.partition(".")[0] in ("minintk", "analytic", "pytest", "scipy")]
    threads = {f"{name}_NUM_THREADS" for name in ("OPENBLAS", "OMP", "MKL")}
    own = {"PATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "PYTHONHASHSEED", "PYTHONPATH", "HOME", "TMPDIR", "LC_CTYPE"}
    assert set(environment) - threads <= own
    assert environment["PYTHONPATH"] == str(Path(np.__file__).parents[1])  # not the library's path
    assert not [word for word in words if str(Path(worker.__file__).parent) in word]
    assert files == ["submission.py"]


def test_without_isolation_such_a_cheat_would_pay(tiny: Assignment, tmp_path: Path) -> None:
    """Negative control: without isolation, a cheat that reads the modules of the grader's process succeeds."""
    text = "import sys\nassert 'minintk' in sys.modules\n" + SOLUTION
    assert graded(tiny, tmp_path, text, isolated=False).score == 10
    assert graded(tiny, tmp_path, text).score == 0


def law(check: str) -> Assignment:
    return Assignment(
        "law", [Exercise("only", 1, lambda rng, variant: [Law("it", lambda s: s.call(check))])], seconds=1
    )


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("while True: pass", "no answer within 1 s"),
        ("import os; os._exit(3)", "ended with status 3"),
        ("import numpy as np; return np.ones(2**31)", "Unable to allocate"),
        ("return lambda: 1", "function cannot be passed on"),
        ("return np.array([object()])", "NameError: name 'np'"),
        ("return 1 / 0", "ZeroDivisionError: division by zero (line 2, in f: return 1 / 0)"),
    ],
)
def test_what_goes_wrong_inside_is_said(body: str, says: str, tmp_path: Path) -> None:
    found = graded(law("f"), tmp_path, f"def f():\n    {body}\n")
    assert says in found.exercises[0].text, found.exercises[0].text
    assert found.score == 0


@pytest.mark.parametrize("isolated", [True, False])
def test_a_file_that_does_not_load_is_said(tmp_path: Path, isolated: bool) -> None:
    for text, says in (
        ("import sys\nsys.exit(3)", "SystemExit: 3 (line 2"),
        ("1 +", "SyntaxError"),
        ("x", "NameError"),
    ):
        (tmp_path / "sub.py").write_text(text)
        with Submission(tmp_path / "sub.py", isolated=isolated) as student:
            with pytest.raises(SubmissionError, match="the file does not load") as error:
                student.call("f")
            assert says in str(error.value)


def test_in_one_process_the_user_can_still_interrupt(tmp_path: Path) -> None:
    (tmp_path / "sub.py").write_text("def f(): raise KeyboardInterrupt")
    with Submission(tmp_path / "sub.py", isolated=False) as student, pytest.raises(KeyboardInterrupt):
        student.call("f")


def test_a_submission_goes_on_after_a_call_that_was_stopped(tmp_path: Path) -> None:
    (tmp_path / "sub.py").write_text("def slow():\n    while True: pass\ndef fine(): return 1\nprint('to nobody')")
    with Submission(tmp_path / "sub.py", seconds=1) as student:
        with pytest.raises(SubmissionError, match="no answer within"):
            student.call("slow")
        assert student.call("fine") == 1
        with pytest.raises(SubmissionError, match="there is no function other"):
            student.call("other")
        with pytest.raises(GraderError, match="can be passed to another process"):
            student.call("fine", object())


@pytest.mark.parametrize("body", ["a = a + 1", "a += 1", "a[0] += 1"])
def test_arrays_in_a_list_that_are_changed_in_place_are_seen(body: str, tmp_path: Path) -> None:
    (tmp_path / "sub.py").write_text(f"def f(x, params):\n    for a in params['all']:\n        {body}\n    return x")
    case = Values("f", (np.ones(2), {"all": [np.ones(2), np.ones(3)]}), np.ones(2))
    with Submission(tmp_path / "sub.py", isolated=False) as student:
        found = [finding.text for finding in case.run(student).findings]
    assert found == ([] if body == "a = a + 1" else ["params is changed in place: work on a copy"])


def test_a_file_that_does_not_load_is_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[Submission] = []
    start = Submission._start

    def counted(student: Submission) -> None:
        starts.append(student)
        start(student)

    (tmp_path / "sub.py").write_text("1 / 0")
    monkeypatch.setattr(Submission, "_start", counted)
    with Submission(tmp_path / "sub.py") as student:
        for _ in range(3):
            with pytest.raises(SubmissionError, match="the file does not load: ZeroDivisionError"):
                student.call("f")
    assert len(starts) == 1


def test_only_what_is_allowed_is_imported(tmp_path: Path) -> None:
    (tmp_path / "sub.py").write_text("def f():\n    import scipy.special\n    return scipy.special.erf(0.0)")
    with Submission(tmp_path / "sub.py", allowed=("scipy",)) as student:
        assert student.call("f") == 0
    with Submission(tmp_path / "sub.py") as student, pytest.raises(SubmissionError, match="scipy may not be imported"):
        student.call("f")


def test_a_file_that_hangs_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The grader waits only once for a file that hangs, and only twice for a function that hangs."""
    exchange, waited = Submission._exchange, Counter[str]()

    def counted(student: Submission, asked: Any, seconds: float, name: str = "the file") -> Any:
        waited[name] += asked is None or "do" in asked
        return exchange(student, asked, seconds, name)

    monkeypatch.setattr(Submission, "_exchange", counted)
    (tmp_path / "sub.py").write_text("import time\nwhile True: time.sleep(1)")
    with monkeypatch.context() as patch, Submission(tmp_path / "sub.py", seconds=1) as student:
        patch.setattr(submission, "LOADING", 1.0)
        for _ in range(20):
            with pytest.raises(SubmissionError, match="the file does not load: no answer within 1 s"):
                student.call("f")
    assert waited == {"the file": 1}
    waited.clear()
    (tmp_path / "sub.py").write_text("import time\ndef f():\n    while True: time.sleep(1)\ndef g(): return 1")
    with Submission(tmp_path / "sub.py", seconds=0.5) as student:
        for says in (["no answer within 0.5 s"] * 2) + ["twice: not tried again"] * 20:
            with pytest.raises(SubmissionError, match=says):
                student.call("f")
        student.seconds = 60.0
        assert student.call("g") == 1
    assert waited == {"the file": 3, "f": 2, "g": 1}  # the process restarts after each call that hangs


# ----------------------------------------------------------------------------------------------- the messages


def test_messages_come_back_as_they_went() -> None:
    x = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    value = {"x": x, "s": (1, 2.5, None, True, "µ"), "z": np.complex128(1j), "e": [np.zeros((0, 3))], 3: np.float32(2)}
    back = worker.unpack(worker.pack(value))
    assert back.keys() == value.keys()
    assert back["s"] == value["s"]
    np.testing.assert_array_equal(back["x"], x)
    assert back["x"].dtype == np.float32
    assert type(back[3]) is np.float32
    assert back["e"][0].shape == (0, 3)


def test_no_bytes_are_trusted() -> None:
    good = worker.pack({"x": np.ones(100)})
    rng = np.random.default_rng(0)
    for _ in range(300):
        bad = bytearray(good)
        bad[int(rng.integers(len(bad)))] ^= int(rng.integers(1, 256))
        try:
            worker.unpack(bytes(bad))
        except ValueError:
            continue
    objects, long = b'["array", "|O", [1], "AAAAAAAAAAA="]', b'["array", "<f8", [1099511627776], "AAAAAAAAAAA="]'
    for data in (good[:-30], objects, long, b"[" * 10**5, b'["function", 3]', b"\xff"):
        with pytest.raises(ValueError, match="not a message"):
            worker.unpack(data)
    with pytest.raises(TypeError, match="array of object"):
        worker.pack(np.array([object()]))
