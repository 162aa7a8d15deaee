"""Grade a submission on Gradescope. Find the student and the file, and write results.json even if grading fails.

    python3 kit.py SUBMISSION_FOLDER METADATA RESULTS

seed.txt, students.csv, assignment/ and packages/ (the library, on PYTHONPATH) lie next to this file; see build.py.
"""

from __future__ import annotations

import csv
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from minintk.grade import Assignment, Grade, grade, load
from minintk.grade.hand_in import text_of
from minintk.grade.run import gradescope

HERE = Path(__file__).resolve().parent


class Refused(Exception):
    """Raised if a submission cannot be graded. The message says what to do."""


def seed(metadata: Path, here: Path = HERE) -> tuple[str, str]:
    """Return (seed, student) for the listed submitter whose address sorts first, or (seed, "") if no student is listed.

    Raises Refused if students.csv lists students, but none of the submitters.
    """
    secret = (here / "seed.txt").read_text(encoding="utf-8").strip()
    with (here / "students.csv").open(encoding="utf-8") as file:
        names = {row["name"].strip().lower(): row["name"] for row in csv.DictReader(file)}
    if not names:
        return secret, ""
    users = json.loads(metadata.read_text(encoding="utf-8"))["users"]
    mails = sorted(user["email"].strip().lower() for user in users)
    known = [mail for mail in mails if mail in names]
    if not known:
        raise Refused(
            f"{', '.join(mails)}: no variant is known for this address. Nothing has been graded. Submit from the "
            "address that your handout was made for, or ask your instructor to put this one on the list."
        )
    return f"{secret}/{names[known[0]]}", names[known[0]]


# ------------------------------------------------------------------------------------------------- the file


def functions(assignment: Assignment) -> list[str]:
    """Return the names of the functions to which the cases refer. Functions that only laws call are not included."""
    variant = assignment.variant("")
    told = [vars(case) for e in assignment.exercises for case in assignment.cases(e, "", variant)]
    names = [case.get(key) for case in told for key in ("function", "forward", "backward")]
    return list(dict.fromkeys(name for name in names if name))


def written(text: str, names: Sequence[str]) -> int:
    """Count the functions in `names` that the script defines without mentioning NotImplementedError."""
    pattern = re.compile(r"^(?:def (\w+)|(\w+) *=)(?:(?!^\S).*\n?)*", re.MULTILINE)
    return sum((m[1] or m[2]) in names and "NotImplementedError" not in m[0] for m in pattern.finditer(f"{text}\n"))


def chosen(folder: Path, names: Sequence[str]) -> Path:
    """Return the file in the folder or its subfolders that implements the most functions in `names`.

    Raises FileNotFoundError if no file implements any of them.
    """
    files = sorted(p for end in ("py", "ipynb") for p in folder.rglob(f"*.{end}") if "/." not in p.as_posix())
    counts: dict[Path, int] = {}
    for path in files:
        try:
            counts[path] = written(text_of(path), names)
        except (ValueError, KeyError):  # a damaged notebook
            counts[path] = 0
    if not any(counts.values()):
        few = ", ".join(names[:4])
        raise FileNotFoundError(f"expected a script or notebook with {few}, ..., got {len(files)} files without")
    return max(counts, key=lambda path: counts[path])


# --------------------------------------------------------------------------------------------- the grade


def results(path: Path, output: str) -> None:
    """Write a results.json with 0 points and the reason, but without tests."""
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps({"score": 0, "output": output, "visibility": "visible"}), encoding="utf-8")
    os.replace(temporary, path)


def main(arguments: Sequence[str] | None = None, here: Path = HERE) -> int:
    """Grade a submission. Always return 0, as Gradescope requires; the results state the reason for a failure."""
    submission, metadata, out = map(Path, sys.argv[1:] if arguments is None else arguments)
    out.parent.mkdir(parents=True, exist_ok=True)
    results(out, "The grader was stopped before it came to the first exercise. Submit again, or tell your instructor.")
    try:
        assignment = load(here / "assignment")
        secret, owner = seed(metadata, here)
        file = chosen(submission, functions(assignment))

        def write(found: Grade) -> None:
            told = json.loads(gradescope(found))
            told["output"] = "\n".join([told["output"], f"graded: {file.name}", *[f"variant of {owner}"] * bool(owner)])
            temporary = out.with_suffix(".part")
            temporary.write_text(json.dumps(told, indent=2), encoding="utf-8")
            os.replace(temporary, out)

        write(grade(assignment, file, seed=secret, told=write))
    except (Refused, FileNotFoundError) as error:
        results(out, str(error))
    except Exception as error:  # a fault of the instructor's setup, which must not look like a grade
        results(out, f"The grader failed ({type(error).__name__}: {error}). Nothing is graded; tell your instructor.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
