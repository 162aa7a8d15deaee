"""A grade for readers: JUnit's XML for a CI, Gradescope's results.json, a page, rows of a table for the terminal.

The formats: https://gradescope-autograders.readthedocs.io/en/latest/specs/, and JUnit's as Jenkins and GitLab read it.
"""

from __future__ import annotations

import json
import re
from html import escape
from xml.etree import ElementTree

from minintk.grade.run import Grade

COLUMNS = ("exercise", "points", "cases", "what is wrong")
"""Of `rows`."""


def rows(grade: Grade) -> list[tuple[str, str, str, str]]:
    """A row for each exercise: name, points, cases that pass, and why not all."""
    return [
        (
            g.exercise.name + (" (hidden)" if g.exercise.hidden else ""), f"{g.score:g} / {g.exercise.points:g}",
            f"{g.passed} / {g.cases}", g.text,
        )
        for g in grade.exercises
    ]  # fmt: skip


def junit(grade: Grade) -> str:
    """JUnit's XML: a test case for each exercise, a failure with its reasons where it is not right."""
    failed, seconds = sum(bool(g.failures) for g in grade.exercises), sum(g.seconds for g in grade.exercises)
    numbers = {"name": grade.assignment, "tests": f"{len(grade.exercises)}", "failures": f"{failed}", "errors": "0"}
    numbers["time"] = f"{seconds:.3f}"
    top = ElementTree.Element("testsuites", numbers)
    suite = ElementTree.SubElement(top, "testsuite", numbers | {"skipped": "0"})
    for g in grade.exercises:
        said = {"name": g.exercise.name, "classname": grade.assignment, "time": f"{g.seconds:.3f}"}
        case = ElementTree.SubElement(suite, "testcase", said)
        if g.failures:  # XML forbids control characters, which an error message of a submission may hold
            text = re.sub(r"[^\n\t\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]", "", g.text)
            ElementTree.SubElement(case, "failure", message=text.partition("\n")[0], type="wrong").text = text
    ElementTree.indent(top)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ElementTree.tostring(top, encoding='unicode')}\n"


def gradescope(grade: Grade) -> str:
    """Gradescope's results.json: scores, reasons and hints; hidden exercises become visible after the due date."""
    tests = [
        {
            "name": g.exercise.name, "number": str(number), "score": g.score, "max_score": g.exercise.points,
            "status": "failed" if g.failures else "passed", "output": g.text or "all right", "output_format": "text",
            "visibility": "after_due_date" if g.exercise.hidden else "visible",
        }
        for number, g in enumerate(grade.exercises, 1)
    ]  # fmt: skip
    found = {
        "execution_time": round(sum(g.seconds for g in grade.exercises), 3), "output": _asked(grade),
        "output_format": "text", "visibility": "visible", "stdout_visibility": "hidden",
        "extra_data": {"variant": grade.variant, "isolated": grade.isolated}, "tests": tests,
    }  # fmt: skip
    return json.dumps(found, indent=2, default=str)


def _asked(grade: Grade) -> str:
    return ", ".join([grade.assignment, *(f"{name}: {choice}" for name, choice in grade.variant.items())])


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title><style>
body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}}
section{{border-left:.4rem solid #009e73;padding:.1rem 1rem;margin:1rem 0;background:#f7f7f7}}
section.wrong{{border-color:#d55e00}}h2{{font-size:1.1rem;margin:.5rem 0}}
pre{{white-space:pre-wrap;overflow-wrap:anywhere;margin:.5rem 0}}
</style><h1>{title}</h1><p>{submission}, {asked}; run {how}.</p>{sections}</html>
"""
SECTION = '<section class="{kind}"><h2>{name}: {points} points, {cases} cases</h2><pre>{text}</pre></section>'


def html(grade: Grade) -> str:
    """One page without anything from outside: the score, then each exercise with its reasons."""
    sections = [
        SECTION.format(
            kind="wrong" if text else "right", name=escape(name), points=points, cases=cases,
            text=escape(text) or "all right",
        )
        for name, points, cases, text in rows(grade)
    ]  # fmt: skip
    return PAGE.format(
        title=escape(f"{grade.assignment}: {grade.score:g} of {grade.points:g} points"),
        submission=escape(grade.submission), asked=escape(_asked(grade)), sections="".join(sections),
        how="in a process of its own" if grade.isolated else "without isolation: not for marks",
    )  # fmt: skip
