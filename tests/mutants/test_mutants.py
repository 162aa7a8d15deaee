"""Test the mutation tool: the changes, the selection of tests, and the verdicts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.mutants import mutants
from tests.mutants.mutants import Copy, Verdict, mirrored, table
from tests.mutants.mutations import Mutation, mutations, valid

TOY = '''"""A toy."""


def largest(a: list[float], start: float = 0.0) -> float:
    """The largest entry, start at least."""
    best = start
    for x in a[0:]:
        if x > best:
            best = x
    return best


def count(n: int) -> int:
    """n, by steps of one."""
    done = 0
    while done < n:
        done += 1
    return done
'''
TESTS = """
from minintk.fast.toy import count, largest

def test_largest():
    assert largest([1.0, 3.0, 2.0]) == 3.0
    assert largest([]) == 0.0

def test_count():
    assert count(3) == 3
"""


def found(source: str) -> list[Mutation]:
    every = mutations("toy.py", source.encode())
    return [m for m in every if valid(m, source.encode())]


@pytest.mark.parametrize(
    ("source", "kind", "after"),
    [
        ("y = a + b", "operator", "((a) - (b))"),
        ("y = a + b", "dropped term", "(b)"),
        ("y = a * b", "dropped factor", "(a)"),
        ("y = a ** 2", "power", "(a)"),
        ("y = a - b", "sign", "((b) - (a))"),
        ("y = -a", "sign", "(a)"),
        ("y = a @ b.T", "transpose", "((b.T) @ (a))"),
        ("y = a @ b.T", "transpose", "b"),
        ("y = a.swapaxes(-1, -2)", "transpose", "(a)"),
        ("y = xp.moveaxis(a, 0, 1)", "transpose", "(a)"),
        ("y = min(a, b)", "name", "max(a, b)"),
        ("y = xp.maximum(a, b, out=c)", "name", "xp.minimum"),
        ("y = xp.float64", "dtype", "xp.float32"),
        ("y = xp.sqrt(a)", "dropped function", "(a)"),
        ("y = 0.5", "constant", "1.0"),
        ("y = 1", "constant", "2"),
        ("if a < b: y = 1", "condition", "((a) <= (b))"),
        ("if a and b: y = 1", "condition", "((a) or (b))"),
        ("y = a if t else b", "condition", "((b) if (t) else (a))"),
        ("y += a", "operator", "y -= a"),
        ("y += a", "statement", "pass"),
        ("f(a)", "statement", "pass"),
        ("y = a.reshape((2, -1))", "sign", "(1)"),
        ("y = a[1:n]", "off by one", "1:(n) - 1"),
        ("for i in range(n): f(i)", "off by one", "range(n - 1)"),
    ],
)
def test_what_is_changed(source: str, kind: str, after: str) -> None:
    assert (kind, after) in {(m.kind, m.after) for m in found(source)}


@pytest.mark.parametrize(
    "source",
    [
        '"""1 + 1"""',
        "def f(a: int | None) -> c | d: ...",
        "raise ValueError(f'{a + b}')",
        "from a import b",
        "y = f'{a + b}'",
        "@cache(1)\ndef f(): ...",
    ],
)
def test_what_is_left_alone(source: str) -> None:
    assert found(source) == []


def test_a_length_that_reshape_finds_is_any_negative_number() -> None:
    assert [m.kind for m in found("y = a.reshape(-1)")] == ["sign"]
    assert [m.kind for m in found("y = a.reshape((n[-1], -1) if t else (-1,))")].count("constant") == 1
    assert [m.kind for m in found("y = a.repeat(-1)")] == ["sign", "constant"]


def test_a_key_stays_where_lines_are_added_above_and_tells_mutants_apart() -> None:
    one, two = found(TOY), found("# a line\n\n" + TOY)
    assert [m.key for m in one] == [m.key for m in two]
    assert len({m.key for m in one}) == len(one) == 9
    assert {m.scope for m in one} == {"largest", "count"}
    for m in one:
        assert m.applied(TOY.encode()).decode() != TOY


def test_compiled_code_meets_the_tests_of_its_file(copy: Copy) -> None:
    """For mutants of compiled code, which cannot be traced, the tests in the module's test file run."""
    names = [f"tests/{name}::test" for name in ("minintk/fast/test_toy.py", "test_other.py")]
    copy.reached = {name: {"seconds": 0.1, "passed": True, "reached": []} for name in names}
    assert copy.tests(one("operator", "done += 1"))["own"] == names[:1]


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    """Return a `Copy` of a package with one module, its test file and another test."""
    made = Copy(tmp_path)
    for name, text in {
        "minintk/__init__.py": "",
        "minintk/fast/__init__.py": "",
        "minintk/fast/toy.py": TOY,
        "tests/minintk/fast/test_toy.py": TESTS,
        "tests/test_other.py": "def test_other(): ...",
    }.items():
        (made.tree / name).parent.mkdir(parents=True, exist_ok=True)
        (made.tree / name).write_text(text)
    return made


def one(kind: str, before: str) -> Mutation:
    every = mutations("minintk/fast/toy.py", TOY.encode())
    return next(m for m in every if (m.kind, m.before) == (kind, before))


def test_killed_and_living_are_told_apart(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check a mutant that is killed, a mutant that survives, and a mutant that exceeds its time limit."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest -p no:xdist")
    copy.note(anew=False, globs=[])
    assert copy.reached.keys() == {f"tests/minintk/fast/test_toy.py::test_{n}" for n in ("largest", "count")} | {
        "tests/test_other.py::test_other"
    }
    stages = copy.tests(one("operator", "done += 1"))
    assert stages == {"own": ["tests/minintk/fast/test_toy.py::test_count"], "near": [], "reaching": []}
    verdicts = [copy.judge(one("condition", text), whole=False) for text in ("done < n", "x > best")]
    monkeypatch.setattr(mutants, "PATIENCE", 2.0)
    verdicts.append(copy.judge(one("operator", "done += 1"), whole=False))
    assert [v.status for v in verdicts] == ["killed", "survived", "timeout"]
    assert verdicts[0].by == "own: tests/minintk/fast/test_toy.py::test_count"
    assert (copy.tree / "minintk/fast/toy.py").read_text() == TOY


def test_tests_that_the_map_does_not_know_are_run(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest -p no:xdist")
    copy.map.write_text(
        json.dumps({"tests/test_other.py::test_other": {"seconds": 0.1, "passed": True, "reached": []}})
    )
    copy.note(anew=False, globs=[])
    assert copy.judge(one("constant", "1"), whole=False).status == "killed"


def test_a_test_that_fails_without_a_mutant_proves_nothing(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest -p no:xdist")
    (copy.tree / "tests/test_other.py").write_text("def test_other(): assert False")
    names = ("tests/test_other.py::test_other", "tests/minintk/fast/test_toy.py::test_count")
    verdicts = [Verdict(f"minintk/fast/toy.py::f {i}", "killed", f"own: {name}") for i, name in enumerate(names)]
    assert copy.innocent(verdicts) == {names[0]}


def test_the_sample_is_spread_over_the_modules_and_drawn_again() -> None:
    names = mutants.modules(mutants.ROOT, ["minintk/layers/*"])
    assert "minintk/layers/conv.py" in names
    assert not any(name.endswith("__init__.py") for name in names)
    drawn = mutants.sample(mutants.ROOT, names, 2 * len(names), 5)
    assert {m.path for m in drawn} == set(names)
    assert drawn == mutants.sample(mutants.ROOT, names, 2 * len(names), 5)
    assert drawn != mutants.sample(mutants.ROOT, names, 2 * len(names), 6)
    assert mirrored("analytic/recursion/duals.py") == "tests/analytic/recursion/test_duals.py"


def test_the_table_counts_what_makes_a_difference() -> None:
    statuses = ["killed"] * 7 + ["timeout", "survived", "equivalent"]
    rows: list[Any] = [Verdict(f"minintk/fast/a.py::f [sign] {i}", s) for i, s in enumerate(statuses)]
    text = table(rows)
    assert "| minintk/fast | 10 | 7 | 1 | 1 | 1 |" in text
    assert text.endswith("8 of 9 that make a difference: 88.9 %")


def test_reasons_are_given_for_what_is_called_equivalent() -> None:
    for key, reason in mutants.equivalent().items():
        assert os.fspath(key.split("::")[0]).endswith(".py")
        assert len(reason.split()) >= 4, key
