"""Read the text of a submission (a script or a notebook), and find complex numbers in it."""

from __future__ import annotations

import ast
import json
import re
from contextlib import suppress
from pathlib import Path

from minintk.files.reading import reading, whole_file

MARK = "graded"
"""Tag of the cells in which a starter notebook defines its functions."""

COMPLEX = re.compile(r"imag|complex\d*|c(single|double|longdouble)")


def text_of(path: Path) -> str:
    """Return the file as one script.  If a notebook has marked cells, keep only the definitions in its other cells.

    Marked cells are kept.  Lines that begin with % or ! become `pass` in all cells.
    """
    with reading(path, "a script or a notebook, in UTF-8", "save it again") as file:
        text = whole_file(file).decode()
        if path.suffix != ".ipynb":
            return text
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        marked = [MARK in cell["metadata"].get("tags", ()) for cell in cells]
        code = [re.sub(r"^(\s*)[%!].*$", r"\1pass", "".join(cell["source"]), flags=re.MULTILINE) for cell in cells]
    return "\n\n".join(c if mark or not any(marked) else definitions(c) for c, mark in zip(code, marked, strict=True))


def definitions(code: str) -> str:
    """Return the imports, functions, classes and constants of the code, or "" if the code cannot be parsed."""
    try:
        body = ast.parse(code).body
    except SyntaxError:
        return ""
    kinds = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef
    free = [not any(isinstance(n, ast.Call) for n in ast.walk(one)) and isinstance(one, ast.Assign) for one in body]
    return "\n".join(ast.unparse(one) for one, cheap in zip(body, free, strict=True) if cheap or isinstance(one, kinds))


def imaginary(text: str) -> int:
    """Return the line number of the first complex number, complex type or imaginary part, or 0 if there is none."""
    found = []
    with suppress(SyntaxError):
        for n in ast.walk(ast.parse(text)):
            words = [str(getattr(n, key, "")) for key in ("attr", "id", "value")]
            if isinstance(getattr(n, "value", 0), complex) or any(map(COMPLEX.fullmatch, words)):
                found.append(getattr(n, "lineno", 0))
    return min(found, default=0)
