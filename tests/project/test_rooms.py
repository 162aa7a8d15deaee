"""The folders show the order: who imports whom, how long a layer is, how many files a reader opens for one answer."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


# ------------------------------------------------------------------------------------------- who imports whom


def files() -> list[Path]:
    """Every module of both packages but pytest's, and their faces, the `__init__.py` that only hand names on."""
    found = [path for package in ("minintk", "analytic") for path in sorted((ROOT / package).rglob("*.py"))]
    found = [path for path in found if path.name != "conftest.py"]
    return [path for path in found if path.name != "__init__.py" or path.parent == ROOT / "minintk"]


@cache
def graph() -> dict[str, set[str]]:
    """{file: files it imports}, by names from the root; imports inside functions count."""
    known = {path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."): path for path in files()}
    arrows: dict[str, set[str]] = {}
    for name, path in known.items():
        arrows[name] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            arrows[name] |= {other for other in names if other in known and other != name}
    return arrows


def room(module: str) -> str:
    """The folder or the file that stands at the top: minintk.layers, minintk.arrays, analytic."""
    parts = module.split(".")
    return parts[0] if parts[0] == "analytic" else ".".join(parts[:2])


def floors(arrows: dict[str, set[str]]) -> dict[str, int]:
    """How many rooms stand on top of each other below each one; ValueError where they form a circle."""
    height: dict[str, int] = {}

    def of(name: str, above: tuple[str, ...]) -> int:
        if name in above:
            raise ValueError(f"a circle: {' -> '.join((*above[above.index(name) :], name))}")
        if name not in height:
            height[name] = 1 + max((of(other, (*above, name)) for other in arrows[name]), default=0)
        return height[name]

    for name in arrows:
        of(name, ())
    return height


def rooms() -> dict[str, set[str]]:
    """{room: rooms it imports}."""
    found: dict[str, set[str]] = {}
    for name, others in graph().items():
        found.setdefault(room(name), set()).update({room(other) for other in others} - {room(name)})
    return found


ABOUT_BOTH = set[str]()
