"""A grade for readers: JUnit's XML for a CI, Gradescope's results.json, a page, rows of a table for the terminal.

The formats: https://gradescope-autograders.readthedocs.io/en/latest/specs/, and JUnit's as Jenkins and GitLab read it.
"""

from __future__ import annotations

import json
from html import escape
from typing import Any
from xml.etree import ElementTree

from minintk.grade.run import Grade

COLUMNS = ("exercise", "points", "cases", "what is wrong")
"""Of `rows`."""


def rows(grade: Grade) -> list[tuple[str, str, str, str]]:
    """A row for each exercise: name, points, cases that pass, and why not all."""
    return [
        (
            graded.exercise.name + (" (hidden)" if graded.exercise.hidden else ""),
            f"{graded.score:g} / {graded.exercise.points:g}",
            f"{graded.passed} / {graded.cases}",
            graded.text,
        )
        for graded in grade.exercises
    ]


def junit(grade: Grade) -> str:
    """JUnit's XML: a test case for each exercise, a failure with its reasons where it is not right.

    >>> from minintk.grade.run import Grade
    >>> print(junit(Grade("demo", "s.py", {}, (), True)).splitlines()[1])
    <testsuites name="demo" tests="0" failures="0" errors="0" time="0.000">
    """
    failed = sum(bool(graded.failures) for graded in grade.exercises)
    numbers = {
        "name": grade.assignment, "tests": str(len(grade.exercises)), "failures": str(failed), "errors": "0",
        "time": f"{sum(graded.seconds for graded in grade.exercises):.3f}",
    }  # fmt: skip
    top = ElementTree.Element("testsuites", numbers)
    suite = ElementTree.SubElement(top, "testsuite", numbers | {"skipped": "0"})
    for graded in grade.exercises:
        case = ElementTree.SubElement(
            suite, "testcase", name=graded.exercise.name, classname=grade.assignment, time=f"{graded.seconds:.3f}"
        )
        if graded.failures:
            first, *_ = graded.text.splitlines()
            ElementTree.SubElement(case, "failure", message=_plain(first), type="wrong").text = _plain(graded.text)
    ElementTree.indent(top)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ElementTree.tostring(top, encoding='unicode')}\n"


def _plain(text: str) -> str:
    """The text without the control characters that XML forbids: a submission's error message may hold any."""
    return "".join(c for c in text if c in "\n\t" or 0x20 <= ord(c) < 0xD800 or 0xE000 <= ord(c) < 0xFFFE)


def gradescope(grade: Grade) -> str:
    """Gradescope's results.json: scores, reasons and hints; hidden exercises become visible after the due date.

    >>> from minintk.grade.run import Grade
    >>> sorted(json.loads(gradescope(Grade("demo", "s.py", {}, (), True))))
    ['execution_time', 'extra_data', 'output', 'output_format', 'stdout_visibility', 'tests', 'visibility']
    """
    tests = [
        {
            "name": graded.exercise.name,
            "number": str(number),
            "score": graded.score,
            "max_score": graded.exercise.points,
            "status": "failed" if graded.failures else "passed",
            "output": graded.text or "all right",
            "output_format": "text",
            "visibility": "after_due_date" if graded.exercise.hidden else "visible",
        }
        for number, graded in enumerate(grade.exercises, 1)
    ]
    found: dict[str, Any] = {
        "execution_time": round(sum(graded.seconds for graded in grade.exercises), 3),
        "output": f"{grade.assignment}{_variant(grade)}",
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "extra_data": {"variant": grade.variant, "isolated": grade.isolated},
        "tests": tests,
    }
    return json.dumps(found, indent=2, default=str)


def _variant(grade: Grade) -> str:
    return "".join(f", {name}: {choice}" for name, choice in grade.variant.items())


STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
section{border-left:.4rem solid #009e73;padding:.1rem 1rem;margin:1rem 0;background:#f7f7f7}
section.wrong{border-color:#d55e00}h2{font-size:1.1rem;margin:.5rem 0}
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.5rem 0}"""


def html(grade: Grade) -> str:
    """One page without anything from outside: the score, then each exercise with its reasons."""
    parts = [
        f'<section class="{"wrong" if graded.failures else "right"}"><h2>{escape(name)}: {points} points, '
        f"{cases} cases</h2><pre>{escape(text) or 'all right'}</pre></section>"
        for graded, (name, points, cases, text) in zip(grade.exercises, rows(grade), strict=True)
    ]
    title = f"{grade.assignment}: {grade.score:g} of {grade.points:g} points"
    how = "in a process of its own" if grade.isolated else "without isolation: not for marks"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style><h1>{escape(title)}</h1>"
        f"<p>{escape(grade.submission)}{escape(_variant(grade))}; run {how}.</p>{''.join(parts)}</html>\n"
    )
