"""How the documentation shows docstrings, which are plain text: a [0, 1] is an interval there, not a link.

Examples (>>>) and lines set out in columns keep their form, as code; all else is escaped, but for `code` in backticks.
"""

import re
from typing import Any

import griffe

CODE = re.compile(r"(`+[^`]+`+)")
MARKUP = str.maketrans({**{c: "\\" + c for c in "\\*_[]#"}, "<": "&lt;", ">": "&gt;", "&": "&amp;"})
COLUMNS = re.compile(r"^ {2,}\S|[^.:;,?!\s] {2,}\S")


def kind(line: str, before: str) -> str:
    """The kind of a line of a docstring, "example", "columns", "prose" or "", after a line of the kind `before`."""
    if not line.strip():
        return ""
    if line.lstrip().startswith(">>>") or before == "example":
        return "example"
    return "columns" if COLUMNS.search(line) else "prose"


def markdown(text: str) -> str:
    """A docstring as Markdown."""
    out, before = [], ""
    for line in [*text.splitlines(), ""]:
        now = kind(line, before)
        if now != before:
            out += ["```", ""] if before in ("example", "columns") else []
            out += {"example": ["", "```pycon"], "columns": ["", "```text"]}.get(now, [])
        pieces = CODE.split(line)  # what stands in backticks at odd places
        plain = "".join(piece if i % 2 else piece.translate(MARKUP) for i, piece in enumerate(pieces))
        out.append(plain if now == "prose" else line)
        before = now
    return "\n".join(out).strip()


class Plain(griffe.Extension):
    """Every docstring through `markdown`."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe for each module, class, function and attribute, once it is made."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
