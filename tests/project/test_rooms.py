"""Test the structure of the packages: imports between folders, lines per layer, and the code that a call runs."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from minintk.fast.accelerate import shut
from tests.project import lines

ROOT = Path(__file__).resolve().parents[2]


# ------------------------------------------------------------------------------------------- who imports whom


def files() -> list[Path]:
    """Return every module of both packages except conftest.py and __init__.py, but including minintk/__init__.py."""
    found = [path for package in ("minintk", "analytic") for path in sorted((ROOT / package).rglob("*.py"))]
    found = [path for path in found if path.name != "conftest.py"]
    return [path for path in found if path.name != "__init__.py" or path.parent == ROOT / "minintk"]


@cache
def graph() -> dict[str, set[str]]:
    """Return {module: imported modules}, including imports inside functions."""
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
    """Return the room of a module: its top-level folder or file, such as minintk.layers, minintk.arrays or analytic."""
    parts = module.split(".")
    return parts[0] if parts[0] == "analytic" else ".".join(parts[:2])


def floors(arrows: dict[str, set[str]]) -> dict[str, int]:
    """Return {name: floor}, where a floor is 1 above the highest floor of its imports. Raise ValueError for cycles."""
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
    """Return {room: rooms that it imports}."""
    found: dict[str, set[str]] = {}
    for name, others in graph().items():
        found.setdefault(room(name), set()).update({room(other) for other in others} - {room(name)})
    return found


ABOUT_BOTH = set[str]()
"""Files of lower floors that import `analytic` inside a function, for a command that concerns both packages."""


def test_no_file_imports_itself_through_others() -> None:
    assert max(floors(graph()).values()) < 30


def test_the_rooms_stand_on_few_floors_without_a_circle() -> None:
    """Rooms do not import each other in cycles, and their number and the number of floors are limited."""
    found = rooms()
    height = floors(found)
    assert len(found) <= 28, sorted(found)  # ten are single files, eight are satellites
    assert max(height.values()) <= 12, height


def test_a_circle_is_found() -> None:
    with pytest.raises(ValueError, match="a circle: a -> b -> c -> a"):
        floors({"a": {"b"}, "b": {"c"}, "c": {"a"}})


ORDER = [
    ["minintk.arrays", "minintk.progress", "minintk.doors", "minintk.thresholds"],
    ["minintk.validate", "minintk.files", "minintk.cores"],
    ["minintk.threads"],
    ["minintk.spec"],
    ["minintk.layers"],
    ["minintk.models"],
    ["minintk.fast", "minintk.diagnostics"],
    ["minintk.grade"],
    ["minintk.testing"],
    ["minintk.training"],
    ["minintk.lab"],
    ["analytic"],
]
"""The floors from the lowest to the highest, nearly as in CONTRIBUTING.md. Other rooms are not checked."""


def test_the_rooms_stand_in_the_order_of_the_guide() -> None:
    floor = {name: i for i, names in enumerate(ORDER) for name in names}
    for name, others in rooms().items():
        for other in others & floor.keys():
            if name in floor:
                assert floor[other] < floor[name], (name, other)


# ------------------------------------------------------------------------------------------- one screen a layer

SCREEN = 60
"""The number of lines that a reader sees without scrolling."""

LAYERS = ("dense", "activation", "combine", "branches", "conv", "pool", "norm", "attention", "dropout")


def code_lines(node: ast.AST, text: list[str]) -> int:
    """Return the number of non-blank lines in a class."""
    assert isinstance(node, ast.ClassDef)
    return sum(bool(line.strip()) for line in text[node.lineno - 1 : node.end_lineno])


def test_each_layer_is_one_screen() -> None:
    """Each layer, and each Jacobian (jvp, vjp, gram), fits on one screen. Module docstrings have at most 15 lines."""
    longest = {}
    for name in LAYERS:
        text = (ROOT / "minintk" / "layers" / f"{name}.py").read_text(encoding="utf-8")
        tree = ast.parse(text)
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                longest[f"{name}.{node.name}"] = code_lines(node, text.splitlines())
        assert len((ast.get_docstring(tree) or "").splitlines()) <= 15, name
    assert {name: lines for name, lines in longest.items() if lines > SCREEN} == {}
    assert longest["dense.DenseJacobian"] < 40


# --------------------------------------------------------------------------- how much a reader opens for one answer


def entered(call: Callable[[], Any]) -> tuple[set[str], set[tuple[str, int]], set[tuple[str, int]]]:
    """Return the (files, functions, lines) of minintk and analytic that run in one call."""
    homes = tuple(str(ROOT / package) for package in ("minintk", "analytic"))
    opened: set[str] = set()
    functions: set[tuple[str, int]] = set()
    lines: set[tuple[str, int]] = set()

    def follow(frame: FrameType, event: str, arg: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(homes):
            return None
        opened.add(name)
        functions.add((name, frame.f_code.co_firstlineno))

        def line(inner: FrameType, what: str, _: Any) -> Any:
            if what == "line":
                lines.add((name, inner.f_lineno))
            return line

        return line

    before = sys.gettrace()
    sys.settrace(follow)
    try:
        call()
    finally:
        sys.settrace(before)
    return opened, functions, lines


def plain(layer: mn.spec.Layer, shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Return (plain Jacobian of the second of two layers, cotangent, arrays for the gradients)."""
    with shut():
        net = mn.Network(mn.Sequential(layer, layer, mn.Flatten()), shape)
    rng = np.random.default_rng(0)
    w = net.layout.unpack(net.init(rng))
    first, second, _ = net.layers.layers
    y, J = second(w, first(w, rng.standard_normal((3, *shape)))[0])
    return J, y, {name: np.zeros_like(a) for name, a in w.items()}


def test_dense_backwards_is_one_file_and_twenty_lines() -> None:
    J, u, dw = plain(mn.Dense(4, b_std=0.1), (4,))
    opened, _, lines = entered(lambda: J.vjp(u, dw))
    assert len(opened) == 1, opened
    assert len(lines) <= 20


def test_a_convolution_backwards_is_four_files_and_a_hundred_lines() -> None:
    J, u, dw = plain(mn.Conv2d(4, 3, b_std=0.1), (6, 6, 4))
    opened, _, lines = entered(lambda: J.vjp(u, dw))
    assert len(opened) <= 4, opened
    assert len(lines) <= 110


def test_the_tangent_kernel_of_a_fully_connected_network_is_ten_files() -> None:
    with shut():
        net = mn.Network(mn.Sequential(mn.Dense(8, b_std=0.1), mn.ReLU(), mn.Dense(2)), (5,))
    theta, x = net.init(np.random.default_rng(0)), np.ones((3, 5))
    mn.ntk(net, theta, x)  # a first call imports modules
    opened, functions, _ = entered(lambda: mn.ntk(net, theta, x))
    assert len(opened) <= 10, sorted(opened)  # one file is the table of the rates S in J S J'
    assert len(functions) <= 65  # six functions find the free memory, eight get rates, and one looks for a special gram


def test_small_work_runs_in_the_formulas_own_files() -> None:
    """Below the thresholds, no file of the satellite "speed" runs. Above the thresholds, some of its files run."""
    layers = mn.Conv2d(8, 3), mn.ReLU(), mn.Conv2d(8, 3), mn.ReLU(), mn.GlobalAvgPool(), mn.Dense(1)
    net, k = mn.Network(mn.Sequential(*layers), (8, 8, 3)), an.kernel(mn.zoo.mlp(2, 8, 1))
    rng, theta = np.random.default_rng(0), net.init(np.random.default_rng(0))
    for N, rows, fast in ((4, 20, False), (64, 70, True)):
        x, points = rng.standard_normal((N, 8, 8, 3)), rng.standard_normal((rows, 10))
        J, u = net.linearize(theta, x)[1], np.ones((N, 1))
        for work in (partial(J.vjp, u), partial(k.ntk, points)):
            work()  # a first call imports modules
            opened, *_ = entered(work)
            entered_fast = any(re.search("(minintk|analytic)/fast/", name) for name in opened)
            assert entered_fast is fast, sorted(opened)


def test_the_kernel_of_vectors_is_read_in_an_evening() -> None:
    """Computing a kernel of vectors from a spec runs at most 450 lines in at most 20 files."""
    x, spec = np.random.default_rng(0).standard_normal((20, 10)), mn.zoo.mlp(2, 8, 1)
    an.kernel(spec).ntk(x)  # a first call imports modules
    opened, _, lines = entered(lambda: an.kernel(spec).ntk(x))
    assert len(opened) <= 20, sorted(opened)
    assert len(lines) <= 450


def test_what_runs_is_counted() -> None:
    opened, functions, lines = entered(lambda: mn.validate.whole("steps", 3))
    assert ([Path(name).name for name in opened], len(functions), len(lines)) == (["validate.py"], 1, 3)


def test_the_tour_is_a_reading_list() -> None:
    """The tour's first twelve files have at most 2,400 lines in total. The tour's line counts are off by at most 15."""
    page = ROOT / "docs" / "tour.md"
    if not page.exists():
        pytest.skip("there are no docs in this tree (an installed package, say)")
    rows = re.findall(r"^\| \d+ \| `([\w/]+\.py)` \|.*\| (\d+) \|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    lines = {name: len((ROOT / name).read_text(encoding="utf-8").splitlines()) for name, _ in rows}
    assert len(rows) == 20
    assert sum(lines[name] for name, _ in rows[:12]) <= 2400  # of the first evening
    for name, stated in rows:
        assert abs(lines[name] - int(stated)) <= 15, (name, lines[name])


# ------------------------------------------------------------------------------------------- how long all of it is


def test_no_circle_is_longer_than_it_may_be() -> None:
    found: dict[str, int] = {}
    for (circle, _), kinds in lines.counted().items():
        found[circle] = found.get(circle, 0) + kinds.total()
    over = {name: count - lines.LIMITS[name] for name, count in found.items() if count > lines.LIMITS[name]}
    assert all(count <= lines.DEBT.get(name, 0) for name, count in over.items()), (
        f"lines over the limit: {over}: shorten, or raise LIMITS in tests/project/lines.py and say why in its docstring"
    )


def test_the_tour_says_how_long_its_files_are() -> None:
    assert lines.tour() == lines.TOUR.read_text(encoding="utf-8"), (
        "python3 make.py python tests/project/lines.py --tour"
    )


def test_lines_are_told_apart() -> None:
    text = '"""A file."""\n\n# a comment\nx = 1  # code\n\n\n'
    text += 'def f() -> str:\n    """Two\n    lines."""\n    return "no docstring"\n'
    assert lines.kinds(text) == {"docstring": 3, "blank": 3, "comment": 1, "code": 3}


# ------------------------------------------------------------------------------------------- no satellite in the core


def test_the_core_names_no_satellite_but_in_its_doors() -> None:
    core = [name for name in graph() if lines.circle(f"{name.replace('.', '/')}.py") == "core"]
    faces = {"minintk", "analytic", "minintk.__main__"}
    for name in core:
        others = {other for other in graph()[name] if lines.circle(f"{other.replace('.', '/')}.py") != "core"}
        assert name in faces or not others, (name, others)


# ------------------------------------------------------------------------------------------- tests that are found

UNTESTED = Path(__file__).with_name("without_tests.txt")


def test_a_module_has_tests_under_its_own_path() -> None:
    """minintk/a/b.py has tests/minintk/a/test_b.py, unless `without_tests.txt` lists it. The list may only shrink."""
    paths = [path.relative_to(ROOT) for path in files() if not path.name.startswith("__")]
    without = {path.as_posix() for path in paths if not (ROOT / "tests" / path.parent / f"test_{path.name}").exists()}
    listed = set(UNTESTED.read_text(encoding="utf-8").split())
    assert not without - listed, f"write tests/.../test_NAME.py for {sorted(without - listed)}"
    assert not listed - without, f"take {sorted(listed - without)} out of {UNTESTED.name}"
