"""Hand-ins: the text of a script or a notebook, and the imaginary parts that it takes."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

from minintk.files.reading import reading, whole_file

MARK = "graded"
"""The tag of the cells that a starter has for its functions."""


def text_of(path: Path) -> str:
    """The file as one script; of a notebook the marked cells, and of the others what defines a name at no cost.

    Lines that begin with % or ! are left out, and so is what prints, plots or trains in a cell of the student's own.
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
    """Return imports, functions, classes and constants of the code; nothing if it cannot be parsed."""
    try:
        body = ast.parse(code).body
    except SyntaxError:
        return ""
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)

    def kept(one: ast.stmt) -> bool:
        constant = isinstance(one, ast.Assign) and not any(isinstance(n, ast.Call) for n in ast.walk(one))
        return constant or isinstance(one, kinds)

    return "\n".join(ast.unparse(one) for one in body if kept(one))


def imaginary(text: str) -> int:
    """Return the first line that takes an imaginary part, 0 where none does.

    >>> imaginary("slope = np.tanh(z + 1e-30j).imag / 1e-30"), imaginary("np.fft.ifft(a).real")
    (1, 0)
    """
    try:
        nodes = ast.walk(ast.parse(text))
    except SyntaxError:
        return 0
    found = [
        getattr(n, "lineno", 0) for n in nodes if "imag" in [getattr(n, key, "") for key in ("attr", "id", "value")]
    ]
    return min(found, default=0)
