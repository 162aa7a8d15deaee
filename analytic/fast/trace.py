"""Steps written down as operations on one pair: their text runs once, with a `Trace` in place of NumPy.

The formulas stand where they stood, in `Step.pairs`; nothing is said twice.  What concerns one row alone, at left or at
right, stays NumPy's, on all rows at once; what concerns pairs is compiled (`analytic.fast.passes`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, NoReturn

from analytic.vectors.state import LONG, Distances, Pairs, Program, Shape, run_pairs

Node = tuple[str, tuple[Any, ...]]
"""An operation and the places of its arguments; for a source, one of `SOURCES`, what says which one."""

SOURCES = "number", "rows", "matrix", "p", "tau"


class Untraceable(TypeError):
    """A step does what a trace does not know: NumPy runs it."""


class Trace:
    """Stands for the array library, and keeps what is asked of it.

    nodes : one after another, each once.   kinds : what a node is a number of: "one" for all pairs, the row at "left",
    the row at "right", or a "pair".   most : Untraceable, if there are more.
    """

    def __init__(self, dtype: Any, most: int) -> None:
        self.dtype, self.most = dtype, most
        self.nodes: list[Node] = []
        self.kinds: list[str] = []
        self.places: dict[Node, int] = {}

    def enter(self, operation: str, arguments: tuple[Any, ...], kind: str) -> int:
        """The place of that node."""
        node = (operation, arguments)
        if node not in self.places:
            if len(self.nodes) == self.most:
                raise Untraceable(f"a text of more than {self.most} operations")
            self.places[node] = len(self.nodes)
            self.nodes.append(node)
            self.kinds.append(kind)
        return self.places[node]

    def place(self, value: Any) -> int:
        """The node of a Traced, or of a number."""
        if isinstance(value, Traced):
            return value.node
        if not isinstance(value, int | float):
            raise Untraceable(f"{type(value).__name__} among numbers of pairs")
        return self.enter("number", (float(value),), "one")

    def call(self, operation: str, *values: Any) -> Traced:
        """One operation on numbers."""
        places = tuple(map(self.place, values))
        kinds = {self.kinds[place] for place in places} - {"one"}
        kind = kinds.pop() if len(kinds) == 1 else "pair" if kinds else "one"
        return Traced(self, self.enter(operation, places, kind))

    def __getattr__(self, name: str) -> Any:
        """NumPy's function of that name, element by element."""

        def function(*values: Any, out: Traced | None = None) -> Traced:
            found = self.call(name, *values)
            if out is None:
                return found
            out.node = found.node
            return out

        return function

    def clip(self, value: Traced, low: float, high: float, out: Traced) -> None:
        """Between two numbers; what is none stays none."""
        out.node = self.call("minimum", self.call("maximum", low, value), high).node

    def asarray(self, value: Traced, copy: bool) -> Traced:
        """Another name of the number, as later steps write on the array."""
        return Traced(self, value.node)

    def empty_like(self, value: Traced) -> Traced:
        """An array to write on."""
        return Traced(self, -1)

    def ones_like(self, value: Traced) -> Traced:
        """1."""
        return Traced(self, self.place(1.0))

    def zeros_like(self, value: Traced) -> Traced:
        """0."""
        return Traced(self, self.place(0.0))


def forwards(name: str) -> Any:
    """self + x"""
    return lambda self, other: self.trace.call(name, self, other)


def backwards(name: str) -> Any:
    """x + self"""
    return lambda self, other: self.trace.call(name, other, self)


def in_place(name: str) -> Any:
    """self += x"""

    def operator(self: Traced, other: Any) -> Traced:
        self.node = self.trace.call(name, self, other).node
        return self

    return operator


class Traced:
    """Stands for an array: the node that it holds for now."""

    ndim = 1
    __array_ufunc__ = None  # NumPy's functions refuse it

    def __init__(self, trace: Trace, node: int) -> None:
        self.trace, self.node = trace, node

    __add__, __radd__, __iadd__ = forwards("add"), backwards("add"), in_place("add")
    __sub__, __rsub__, __isub__ = forwards("subtract"), backwards("subtract"), in_place("subtract")
    __mul__, __rmul__, __imul__ = forwards("multiply"), backwards("multiply"), in_place("multiply")
    __truediv__, __rtruediv__, __itruediv__ = forwards("divide"), backwards("divide"), in_place("divide")
    __gt__, __lt__, __eq__ = forwards("greater"), forwards("less"), forwards("equal")
    __hash__ = None  # type: ignore[assignment]

    def __neg__(self) -> Traced:
        return self.trace.call("negative", self)

    def __pow__(self, n: float) -> Traced:
        return self * self if n == 2 else self.trace.call("power", self, n)

    def __bool__(self) -> NoReturn:
        raise Untraceable("a decision by a number")

    def __setitem__(self, key: Any, value: Any) -> None:
        if key is not Ellipsis:
            raise Untraceable("a part of the pairs")
        self.node = self.trace.place(value)

    @property
    def dtype(self) -> Any:
        """The precision of the trace."""
        return self.trace.dtype


class Leaf(Traced):
    """Stands for an array among the steps' coefficients, the number `index` of them.   row : of its rows, or all."""

    def __init__(self, trace: Trace, index: int, shape: tuple[int, ...], row: int | None = None) -> None:
        self.trace, self.index, self.shape, self.row = trace, index, shape, row

    def __getitem__(self, row: Any) -> Leaf:
        if not isinstance(row, int) or self.row is not None:
            raise Untraceable("a part of the coefficients")
        return Leaf(self.trace, self.index, self.shape[1:], row)

    def number(self, side: str, column: int | None = None) -> Traced:
        """A number of each row at that side."""
        return Traced(self.trace, self.trace.enter("rows", (self.index, self.row, column, side), side))

    @property
    def node(self) -> int:  # type: ignore[override]
        """That of a number which is the same for all rows."""
        return self.number("left").node


class TracedPairs(Pairs):
    """One pair that stands for all of a block; no r."""

    def __init__(self, trace: Trace, tangent: bool) -> None:
        self.xp, self.r = trace, None
        self.p: Any = Traced(trace, trace.enter("p", (), "pair"))
        self.tau: Any = Traced(trace, trace.enter("tau", (), "pair")) if tangent else None

    def borrow(self, count: int) -> Any:
        return nullcontext([Traced(self.xp, -1) for _ in range(count)])

    def dot(self, left: Any, right: Any, out: Any) -> Any:
        width = left.shape[-1]
        if width > LONG:
            out.node = self.xp.enter("matrix", (left.index, right.index), "pair")
        else:
            first, *others = (left.number("left", k) * right.number("right", k) for k in range(width))
            out.node = sum(others, first).node
        return out

    def sides(self, v: Any) -> tuple[Any, Any]:
        return v.number("left"), v.number("right")

    def quarter_squared_distance(self, distances: Distances, out: Any) -> Any:
        return self.dot(distances.left, distances.right, out)


# --------------------------------------------------------------------------------------------- coefficients


def stand_ins(known: Any, trace: Trace, indices: Iterator[int]) -> Any:
    """Coefficients of that structure with a Leaf for each array."""
    if isinstance(known, Shape):
        return Leaf(trace, next(indices), (0,) * (known.axes - 1) + (known.width,))
    if isinstance(known, tuple):
        kind, *items = known
        inner = [stand_ins(item, trace, indices) for item in items]
        return kind(*inner) if hasattr(kind, "_fields") else tuple(inner)
    return known


FORMULAS = "analytic.vectors.closed_forms"


def with_inner(program: Program) -> Iterator[Any]:
    """All steps, and those inside them."""
    for step in program:
        yield step
        yield from with_inner((*getattr(step, "branch", ()), *getattr(step, "shortcut", ())))


def ours(step: Any) -> bool:
    """Whether a step's class, text and formula are this package's: these depend on nothing but what they are told."""
    kind, formula = type(step), getattr(step, "step", None)
    texts = kind.__module__, kind.pairs.__module__
    return all(m.startswith("analytic.") for m in texts) and (formula is None or formula.__module__ == FORMULAS)


def traced(program: Program, coefficients: Any, trace: Trace, tangent: bool) -> list[int]:
    """Steps with their `stand_ins`, for a trace to write down; where p, and tau, end.   Untraceable"""
    if not all(map(ours, with_inner(program))):
        raise Untraceable("a step from elsewhere")
    pairs = TracedPairs(trace, tangent)
    run_pairs(program, pairs, coefficients)
    return [pairs.p.node, *([pairs.tau.node] if tangent else [])]
