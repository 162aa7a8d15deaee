"""Grade for Gradescope: whose submission it is, which file, and a results.json in every case.

    python3 kit.py SUBMISSION_FOLDER METADATA RESULTS

seed.txt, students.csv, assignment/ and packages/ (the library, on PYTHONPATH) lie beside this file; see build.py.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Refused(Exception):
    """A submission that is not graded, and what to do about it."""


def seed(metadata: Path, here: Path = HERE) -> tuple[str, str]:
    """Return (the seed, whose variant it is) for those who submit; Refused where the list does not have them."""
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


def results(path: Path, output: str) -> None:
    """Write a results.json without tests: 0 points and why."""
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps({"score": 0, "output": output, "visibility": "visible"}), encoding="utf-8")
    os.replace(temporary, path)


def main(arguments: Sequence[str] | None = None, here: Path = HERE) -> int:
    """Grade; 0 in every case, as Gradescope wants it, with the reason in the results."""
    submission, metadata, out = map(Path, sys.argv[1:] if arguments is None else arguments)
    out.parent.mkdir(parents=True, exist_ok=True)
    results(out, "The grader was stopped before it came to the first exercise. Submit again, or tell your instructor.")
    try:
        from minintk.grade import grade, load
        from minintk.grade.hand_in import chosen
        from minintk.grade.run import gradescope

        assignment = load(here / "assignment")
        secret, owner = seed(metadata, here)
        file = chosen(submission, assignment.functions())

        def write(found: object) -> None:
            told = json.loads(gradescope(found))  # type: ignore[arg-type]
            told["output"] = "\n".join([told["output"], f"graded: {file.name}", *[f"variant of {owner}"] * bool(owner)])
            temporary = out.with_suffix(".part")
            temporary.write_text(json.dumps(told, indent=2), encoding="utf-8")
            os.replace(temporary, out)

        write(grade(assignment, file, seed=secret, told=write))
    except (Refused, FileNotFoundError) as error:
        results(out, str(error))
    except Exception as error:  # the instructor's to mend: nothing of it may look like a grade
        results(out, f"The grader failed ({type(error).__name__}: {error}). Nothing is graded; tell your instructor.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
