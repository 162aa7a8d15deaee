"""Find bad habits of prose in docstrings, comments and pages (see `HABITS`, `NOUN_CLAUSE` and `LONGEST`).

    python tests/project/words.py                     fails if a file has more offences than words.toml says
    python tests/project/words.py --update            lowers the record to what is there
    python tests/project/words.py --update --moved    records all offences, after a merge or a move of files

The record may only shrink. Files that are not in the record must have no offences.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "tests" / "project" / "words.toml"
FOLDERS = ("minintk", "analytic", "tests", "examples", "benchmarks", "course", "docs")
GENERATED = (
    "docs/reference/internals", "docs/reference/public", "docs/gallery/", "docs/course/kit-",
    "docs/project/benchmarks-", "docs/project/contributing.md", "docs/project/changelog.md", "docs/project/readme.md",
    "benchmarks/results.md",
)  # fmt: skip
"""Pages that programs write. Such pages are not checked."""
LONGEST = 35
"""The maximum number of words per sentence."""
HABITS = re.compile(r"\b(anew|afresh|whoever|(?<!there )is no(?! longer))\b", re.IGNORECASE)
COLUMNS = re.compile(r"(?m)^ *\S([^.:;]*? {3,}|.*? {4,})\S.*$")
"""Matches rows of tables that docstrings set out in columns."""
NOUN_CLAUSE = re.compile(r"(What|Whether|How|Of|Where|Who|Which)\b")
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

Offence = tuple[int, str]


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, except fenced code, formulas (indented paragraphs) and tables."""
    text = re.sub(r"(?ms)^ *(```|~~~).*?^ *\1\s*$|^ *\$\$.*?\$\$\s*$|\A---\n.*?^---$|<!--.*?-->", "\n", text)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*] |\d+\. |\w+(?:, \w+)* :|#|\||>>>))", text):
        if not paragraph.startswith(("    ", "|", ">>>")):
            yield from re.split(r"(?<=[.!?])\s+", " ".join(paragraph.split()))


def words(sentence: str) -> int:
    """Count the words in a sentence. A piece of code or a formula counts as one word."""
    return len(re.findall(r"`+[^`]*`+|\$[^$]+\$|[^\W\d_][\w'’-]*", re.sub(r"\]\([^)\s]*\)", "", sentence)))


def prose(text: str, line: int) -> Iterator[Offence]:
    """Yield the offences in a docstring or page that begins at line `line`."""
    for found in HABITS.finditer(text):
        yield line + text.count("\n", 0, found.start()), f"says {found[0]!r}"
    for sentence in sentences(COLUMNS.sub("", text)):
        if (count := words(sentence)) > LONGEST:
            start = re.search(r"\s+".join(map(re.escape, sentence.split()[:5])), text)
            below = text.count("\n", 0, start.start() if start else 0)
            yield line + below, f"a sentence of {count} words, more than {LONGEST}: {sentence[:60]} ..."


def offences(text: str, python: bool) -> list[Offence]:
    """Return (line, description) for each offence in a file."""
    if not python:
        return sorted(prose(text, 1))
    found: list[Offence] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and (doc := ast.get_docstring(node, clean=False)):
            line = node.body[0].lineno
            if start := NOUN_CLAUSE.match(doc.strip()):
                found.append((line, f"a docstring that begins with {start[0]!r}: begin with a verb"))
            found += prose(cleandoc(doc), line)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            found += [(token.start[0], f"says {habit!r}") for habit in HABITS.findall(token.string)]
    return sorted(found)


def everywhere() -> dict[str, list[Offence]]:
    """Return {file: offences} for all files with offences."""
    paths = [path for folder in FOLDERS for kind in ("*.py", "*.md") for path in (ROOT / folder).rglob(kind)]
    paths = [path for path in paths if not path.relative_to(ROOT).as_posix().startswith(GENERATED)]
    paths += [*ROOT.glob("*.py"), *ROOT.glob("*.md")]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(paths)}
    found = {name: offences(text, name.endswith(".py")) for name, text in texts.items()}
    return {name: some for name, some in found.items() if some}


def main(arguments: list[str]) -> int:
    """Compare the files with the record, or rewrite the record. Return the exit status."""
    record: dict[str, int] = tomllib.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    now = everywhere()
    more = {name: some for name, some in now.items() if len(some) > record.get(name, 0)}
    fewer = [name for name in record if len(now.get(name, ())) < record[name]]
    if more and "--moved" not in arguments:
        for name, some in more.items():
            print(f"{name}: {len(some)} offences, {record.get(name, 0)} in words.toml; rewrite the new ones")
            print("".join(f"    {name}:{line}: {what}\n" for line, what in some), end="")
        return 1
    if "--update" in arguments:
        text = "".join(f'"{name}" = {len(some)}\n' for name, some in sorted(now.items()))
        RECORD.write_text("# Offences by file, written by words.py --update\n" + text, encoding="utf-8")
    elif fewer:
        print(f"fewer offences than words.toml says in {', '.join(fewer)}: python tests/project/words.py --update")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
