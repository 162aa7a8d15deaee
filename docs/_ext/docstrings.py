"""Convert plain-text docstrings to reStructuredText, and keep the layout of formulas, tables and examples.

A block consists of the lines between two blank lines.  There are five kinds of blocks:

    an example        begins with >>>
    set out           indented or in columns, as a formula or a table; shown as written, in fixed width
    arguments         `name : what it is`, followed by text until the next name; shown as a list
    a heading         underlined with dashes
    prose             everything else

In prose and in arguments, * is a product and [0, 1] is an interval.  Only `code` in backticks and a single *stressed*
word are markup.  A name in backticks becomes a link if the reference contains the name.
"""

import re
from collections.abc import Iterator
from typing import Any

CODE = re.compile(r"(``[^`]+``|`[^`]+`)")
NAME = re.compile(r"[A-Za-z_][\w.]*")
SHORT = {"mn": "minintk", "an": "analytic"}
STRESSED = re.compile(r"(?<![\w(*])\*([A-Za-z][\w-]*)\*(?![\w*])")
COLUMNS = re.compile(r"\S.*[^.:;,?!\s] {2,}\S|^\|.*\|$")
NAMES = r"[A-Za-z_]\w*(?:(?:, | or | and )\*{0,2}[A-Za-z_]\w*)*"
ARGUMENT = re.compile(rf"^({NAMES}) : (?=\S)")
NEXT_ARGUMENT = re.compile(rf"(?<=[.,;]) {{1,2}}(?={NAMES} : \S)")
RAISED = re.compile(r"^\w+(?:Error|Layer)\b")


def escaped(text: str) -> str:
    """Escape plain text for reStructuredText. Three dots become …, because a summary would end there."""
    return (
        re.sub(r"([\\*_|`])", r"\\\1", STRESSED.sub("\0\\1\1", text.replace("...", "…")))
        .replace("\0", "*")
        .replace("\1", "*")
    )


def inline(text: str) -> str:
    """Convert a paragraph: escape the text, and turn code in backticks into links or literals."""
    out = []
    for i, piece in enumerate(CODE.split(re.sub(r"\s+", " ", text.strip()))):
        code = piece.strip("`")
        if i % 2 == 0:
            out.append(escaped(piece))
        elif NAME.fullmatch(code):
            first, dot, rest = code.partition(".")
            out.append(f":py:obj:`{code} <{SHORT.get(first, first) if dot else code}{dot}{rest}>`")
        else:
            out.append(f"``{code}``")
        if i % 2:  # markup must be followed by a space or punctuation, so `x`s needs a backslash
            out.append("\\ ")
    return "".join(out).removesuffix("\\ ")


def blocks(text: str) -> Iterator[list[str]]:
    """Yield the lines of each block. A line with >>> begins an example even if no blank line precedes it."""
    block: list[str] = []
    for line in [*text.splitlines(), ""]:
        starts = line.lstrip().startswith(">>>") and not (block and block[0].lstrip().startswith(">>>"))
        if block and (not line.strip() or starts):
            yield block
            block = []
        if line.strip():
            block.append(line.rstrip())


def set_out(block: list[str]) -> Iterator[tuple[bool, list[str]]]:
    """Yield (keep_layout, lines) for a block that is neither an example nor a heading."""
    forms = [bool(COLUMNS.search(line)) for line in block]
    if all(line.startswith("  ") for line in block) or sum(forms) >= max(2, len(block) / 2):
        yield True, block
    elif len(block) == 1 and forms[0] and not ARGUMENT.match(block[0]):
        yield not re.search(r"[.,;]$", block[0]), block
    else:
        yield False, block


def items(block: list[str]) -> list[tuple[str, str]]:
    """Return (names, text) for each argument in a block. For plain text, `names` is ""."""
    found: list[list[str]] = []
    for line in block:
        if not found or RAISED.match(line) or ARGUMENT.match(line):
            found.append([])
        found[-1].append(line.strip())
    out = []
    for lines in found:
        text = " ".join(lines)
        for part in NEXT_ARGUMENT.split(text) if ARGUMENT.match(text) else [text]:
            argument = ARGUMENT.match(part)
            out.append((argument[1], part[argument.end() :].rstrip(",;")) if argument else ("", part))
    return out


def restructured(text: str) -> list[str]:
    """Convert a docstring to lines of reStructuredText."""
    out: list[str] = []

    def literal(language: str, lines: list[str]) -> None:
        margin = min(len(line) - len(line.lstrip()) for line in lines)
        out.extend(["", f".. code-block:: {language}", "", *(f"   {line[margin:]}" for line in lines), ""])

    for block in blocks(text):
        if block[0].lstrip().startswith(">>>"):
            literal("pycon", block)
            continue
        if len(block) == 2 and set(block[1]) == {"-"}:
            out.extend([f".. rubric:: {inline(block[0])}", ""])
            continue
        for keeps, lines in set_out(block):
            if keeps:
                literal("text", lines)
                continue
            for names, what in items(lines):
                if names:
                    out.extend([", ".join(f"``{name}``" for name in re.split(", | or | and ", names))])
                    out.extend([f"   {inline(what)}", ""])
                else:
                    out.extend(["", inline(what), ""])
    return out


def on_docstring(app: Any, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Convert the lines of a docstring in place. Autodoc calls this for each docstring."""
    lines[:] = restructured("\n".join(lines))


def setup(app: Any) -> dict[str, bool]:
    """Register the extension. Sphinx calls this."""
    app.connect("autodoc-process-docstring", on_docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
