"""Check that every claim in docstrings and pages (see `CLAIM`; numbers in README.md too) has evidence on record.

    python -m tests.project.claims             fails if a sentence is not in claims.toml, or an entry's sentence is gone
    python -m tests.project.claims --update    enters new sentences as open, and drops entries without a sentence

In an entry `sentence = evidence`, evidence is one or more of "tests/...py::name" and "python3 make.py ...", joined by
", ", or one of `KINDS` if the sentence claims nothing about this library.  Evidence that begins with "open" fails.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
from inspect import cleandoc
from pathlib import Path

from make import COMMANDS
from tests.project.words import sentences

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "tests" / "project" / "claims.toml"
FILES = ("minintk/**/*.py", "analytic/**/*.py", "*.md", "docs/*.md", "docs/guide/*.md", "docs/reference/*.md")
LEFT_OUT = ("CHANGELOG.md", "docs/planted-errors.md")  # the second is written by tests/planted
CLAIM = re.compile(r"\b(exact(ly)?|bound(s|ed)?|cannot|same (bits|bytes)|bitwise|agrees?)\b", re.IGNORECASE)
KINDS = {
    "asks": "the condition of an error, or what an argument expects",
    "defines": "a definition, formula, instruction, reason or pointer",
    "elsewhere": "a published theorem, or how another library or system behaves",
    "word": "the word in another sense, as in a bound layer",
}
REMEDY = f"""  Run python -m tests.project.claims --update; then write in claims.toml the tests or commands
that fail if the sentence is false, or why it claims nothing of this library: {json.dumps(KINDS, indent=4)}"""


def claims(name: str, text: str) -> Iterator[str]:
    """Yield the sentences and table rows that contain a claim (see `CLAIM`)."""
    parts = [text]
    if name.endswith(".py"):
        lone = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
        parts = [cleandoc(v.value) for v in lone if isinstance(v, ast.Constant) and isinstance(v.value, str)]
    for sentence in (s for part in parts for s in (*sentences(part), *re.findall(r"(?m)^\|.*\w.*\|$", part))):
        plain = re.sub(r"`[^`]*`|\]\([^)]*\)", "", sentence)
        if CLAIM.search(plain) or (name == "README.md" and re.search(r"\d", plain)):
            yield sentence


def fault(evidence: str) -> str:
    """Return the fault of an entry's evidence, or "" if it is a kind or names existing tests and commands."""
    for one in () if evidence in KINDS else re.split(r", (?=tests/|python3 )", evidence):
        (path, _, test), words = one.partition("::"), one.split()
        run, at = one.startswith("python3 make.py ") and words[2] in COMMANDS, ROOT / path
        there = run or (bool(test) and at.is_file() and f"def {test}(" in at.read_text("utf-8"))
        there &= not run or all((ROOT / word).exists() for word in words[3:] if word.endswith(".py"))
        if not there:
            return "is open" if one[:4] == "open" else f"names no test, command or kind that exists, {one!r}"
    return ""


def main(arguments: list[str]) -> int:
    """Compare the claims with the record, or enter new claims into the record. Return the exit status."""
    record: dict[str, dict[str, str]] = tomllib.loads(RECORD.read_text("utf-8"))
    names = sorted({path.relative_to(ROOT).as_posix() for pattern in FILES for path in ROOT.glob(pattern)})
    found = {name: [*claims(name, (ROOT / name).read_text("utf-8"))] for name in names if name not in LEFT_OUT}
    if "--update" in arguments:
        known = {sentence: how for entries in record.values() for sentence, how in entries.items()}
        lines = ["# {file: {sentence: evidence}}, see claims.py, whose --update enters new sentences"]
        for name in filter(found.get, names):
            near = {s: get_close_matches(s, record.get(name, ()), n=1) for s in found[name]}
            record[name] = {s: known.get(s, " ".join(["open", *(known[t] for t in near[s])])) for s in found[name]}
            entries = [f"{json.dumps(s, ensure_ascii=False)} = {json.dumps(how)}" for s, how in record[name].items()]
            lines += ["", f'["{name}"]', *entries]
        RECORD.write_text("\n".join(lines) + "\n", encoding="utf-8")
        record = {name: record[name] for name in filter(found.get, names)}
    held = [(name, sentence, how) for name, entries in record.items() for sentence, how in entries.items()]
    wrong = [f"{name} {why}: {sentence}" for name, sentence, how in held if (why := fault(how))]
    wrong += [f"{name} has a new one: {s}" for name in found for s in found[name] if s not in record.get(name, {})]
    wrong += [f"{name} has lost an entry's sentence: {s}" for name, s, _ in held if s not in found.get(name, ())]
    kinds = Counter("tests" if "::" in how else "none" if how in KINDS else "commands" for *_, how in held)
    print(*wrong, f"Claims: {kinds['tests']} with tests, {kinds['commands']} with commands", sep="\n", end=", ")
    print(f"{len(wrong)} with neither; {kinds['none']} sentences claim nothing.{REMEDY if wrong else ''}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
