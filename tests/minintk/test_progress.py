"""Test progress without a terminal: the time left is printed every ten seconds, and a final line at the end."""

from __future__ import annotations

import pytest

from minintk import progress
from minintk.progress import progress_of


def test_nothing_is_said_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_of("counting", 2, shown=False) as advance:
        advance(2)
    assert capsys.readouterr() == ("", "")


def test_a_line_every_ten_seconds_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, lines = iter([0.0, 4.0, 10.0, 12.0, 20.0]), list[str]()
    monkeypatch.setattr(progress, "perf_counter", lambda: next(clock))
    advance = progress._lines("counting", 4, lines.append)
    for _ in range(4):
        advance(1)
    assert lines == ["counting: 50%, 10 s, 10 s left", "counting: 100%, 20 s, 0 s left"]


def test_work_of_unequal_parts_counts_by_its_amount(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, lines = iter([0.0, 10.0, 20.0]), list[str]()
    monkeypatch.setattr(progress, "perf_counter", lambda: next(clock))
    advance = progress._lines("counting", 16, lines.append)
    advance(0.25)  # too early for an estimate
    advance(0.75)
    assert lines == ["counting: 2%, 10 s", "counting: 6%, 20 s, 300 s left"]


def test_it_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_of("counting", 1, shown=True) as advance:
        advance(1)
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.splitlines() == ["counting: 100%, 0 s, 0 s left"]


@pytest.mark.parametrize(
    ("first", "total", "expected"),
    [(0, 1000, ["2.8 hours"]), (0, 100_000, ["12 days"]), (0, 300, []), (1, 1000, ["5.5 hours"])],
)
def test_hours_of_work_are_named_once(
    first: int, total: int, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The time left is printed once, after ten seconds, if an hour or more is left.

    The estimate is based only on work done since this process started.
    """
    clock = iter([0.0, 5.0, 20.0, 30.0])
    monkeypatch.setattr(progress, "perf_counter", lambda: next(clock))
    advance = progress.forewarned("the kernel", first)
    for done in (1, 2, 3):
        advance(done, total)
    said = capsys.readouterr().err.splitlines()
    assert [line.partition("will take about ")[2].partition(" on this machine: store=")[0] for line in said] == expected


def test_work_without_a_bar_names_its_hours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hours left are also printed for work that shows no bar and reports progress as fractions of 1."""
    clock = iter([0.0, 20.0, 40.0])
    monkeypatch.setattr(progress, "perf_counter", lambda: next(clock))
    with progress_of("Cholesky", 1.0, shown=False) as advance:
        advance(0.001)
        advance(0.001)
    assert capsys.readouterr().err.startswith("minintk: Cholesky will take about 5.5 hours on this machine: ")
