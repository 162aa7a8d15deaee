"""Hand-ins: the text of a script or a notebook, the right one of several files, and how alike two of them are."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from minintk.files.reading import reading, whole_file

MARK = "graded"
"""The tag of the cells that a starter has for its functions."""

GRAM = 14
"""Nodes of a syntax tree that make one fingerprint: about two lines."""


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
    """Imports, functions, classes and constants of the code, nothing where it cannot be parsed."""
    try:
        body = ast.parse(code).body
    except SyntaxError:
        return ""
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)

    def kept(one: ast.stmt) -> bool:
        constant = isinstance(one, ast.Assign) and not any(isinstance(n, ast.Call) for n in ast.walk(one))
        return constant or isinstance(one, kinds)

    return "\n".join(ast.unparse(one) for one in body if kept(one))


def written(text: str, names: Sequence[str]) -> int:
    """Count those of these functions that the script defines with more than `raise NotImplementedError` in them."""
    pattern = re.compile(r"^(?:def (\w+)|(\w+) *=)(?:(?!^\S).*\n?)*", re.MULTILINE)
    return sum((m[1] or m[2]) in names and "NotImplementedError" not in m[0] for m in pattern.finditer(f"{text}\n"))


def chosen(folder: Path, names: Sequence[str]) -> Path:
    """The file below the folder that has most of the functions; FileNotFoundError where none has any."""
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


def fingerprint(text: str) -> frozenset[int]:
    """Hashes of the pieces of the syntax tree, without names, comments, docstrings and the values of constants."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return frozenset()
    nodes = list(_kinds(tree))
    return frozenset(hash(tuple(nodes[i : i + GRAM])) for i in range(len(nodes) - GRAM + 1))


def _kinds(node: ast.AST) -> Iterator[str]:
    if not isinstance(node, ast.Load | ast.Store) and not (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ):
        yield f"{type(node).__name__} {getattr(node, 'attr', '')}"
        for child in ast.iter_child_nodes(node):
            yield from _kinds(child)


def alike(text: str, other: str, given: str = "") -> float:
    """The part, 0 to 1, of the shorter script's fingerprints that the other has too; `given` to both does not count.

    >>> a = "def f(x, y): return (x + y) * x - y / (x * 2 + 1)"
    >>> alike(a, "def g(a, b): return (a + b) * a - b / (a * 3 + 1)")
    1.0
    """
    a, b = (fingerprint(one) - fingerprint(given) for one in (text, other))
    return len(a & b) / max(1, min(len(a), len(b)))
