"""Make small wrong changes to a module, one at a time. The tests must detect these mutants.

A mutation replaces the text of one expression or statement. Tracebacks keep their line numbers unless that text spans
several lines. Annotations, docstrings, imports, decorators, f-strings and raised errors are not changed.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

SWAPPED = {"+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "//", "|": "&", "&": "|", "<<": ">>", ">>": "<<"}
SIGNS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.MatMult: "@", ast.BitOr: "|", ast.BitAnd: "&", ast.LShift: "<<", ast.RShift: ">>",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is",
    ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
COMPARED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not", "is not": "is",
    "in": "not in", "not in": "in",
}  # fmt: skip
RENAMED = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "argmin": "argmax", "argmax": "argmin",
    "floor": "ceil", "ceil": "floor", "cos": "sin", "sin": "cos", "any": "all", "all": "any", "float32": "float64",
    "float64": "float32", "zeros": "ones", "ones": "zeros", "tril": "triu", "triu": "tril", "sum": "mean",
}  # fmt: skip
TURNED = {"T", "mT", "swapaxes", "moveaxis", "transpose"}
DROPPED = {"sqrt", "exp", "log", "abs", "conj", "square"}


LEFT_ALONE = (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal)

TextOf = Callable[[ast.expr], str]
"""The source text of an expression."""

Changes = Iterator[tuple[str, str]]
"""Pairs of (kind, new text)."""


@dataclass(frozen=True)
class Mutation:
    """A change of a module: it replaces the bytes from `start` to `end` of the source with `after`."""

    path: str  # path of the module, relative to the root of the repository
    scope: str  # the qualified name of the function or class around the change, "" for the module itself
    kind: str
    line: int
    start: int
    end: int
    before: str
    after: str
    which: int  # number of this change among equal changes of equal text in one scope

    @property
    def key(self) -> str:
        """Return a name for the mutation that does not depend on line numbers."""
        after = " ".join(self.after.split())
        return f"{self.path}::{self.scope} [{self.kind}] {self.before} -> {after} #{self.which}"

    def applied(self, source: bytes) -> bytes:
        """Return the source of the mutant."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def mutations(path: str, source: bytes) -> list[Mutation]:
    """Return every mutation of a module, in the order of the syntax tree.

    Some mutations do not change the program or are not valid Python (see `valid`).
    """
    starts = [0]
    for row in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(row))

    def span(node: ast.expr | ast.stmt) -> slice:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return slice(starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset)

    seen: Counter[tuple[str, str, str, str]] = Counter()
    found = []
    tree = ast.parse(source)
    same = {id(constant) for call in ast.walk(tree) for constant in lengths_to_find(call)}
    for scope, node in places(tree, ""):
        at = span(node)
        for kind, after in changes(node, lambda part: source[span(part)].decode()):
            short = (scope, kind, " ".join(source[at].decode().split()), " ".join(after.split()))
            seen[short] += 1
            if id(node) in same:
                continue
            found.append(Mutation(path, scope, kind, node.lineno, at.start, at.stop, short[2], after, seen[short]))
    return found


def valid(mutation: Mutation, source: bytes) -> bool:
    """True if the mutant is valid Python and differs from the original program."""
    try:
        return ast.dump(ast.parse(mutation.applied(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def lengths_to_find(call: ast.AST) -> Iterator[ast.expr]:
    """Yield the 1 of each -1 in a.reshape((2, -1)). NumPy treats negative lengths alike, so mutants are equivalent."""
    if not isinstance(call, ast.Call) or getattr(call.func, "attr", "") != "reshape":
        return
    lengths = list(call.args)
    for one in lengths:
        match one:
            case ast.Tuple(parts):
                lengths += parts
            case ast.IfExp(_, body, orelse):
                lengths += [body, orelse]
            case ast.UnaryOp(ast.USub(), operand):
                yield operand


def places(node: ast.AST, scope: str) -> Iterator[tuple[str, ast.expr | ast.stmt]]:
    """Yield (scope, node) for each expression or statement that can be changed."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, LEFT_ALONE):
                continue
            inner = scope
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                local = f"{scope}.<locals>." if isinstance(node, ast.FunctionDef) else f"{scope}." if scope else ""
                inner = local + child.name
            if isinstance(child, (ast.expr, ast.stmt)):
                yield inner, child
            yield from places(child, inner)


def changes(node: ast.AST, text: TextOf) -> Changes:
    """Yield (kind, new text) for one expression or statement."""
    match node:
        case ast.BinOp(left, op, right):
            yield from of_two(SIGNS[type(op)], text(left), text(right), node)
        case ast.AugAssign(target, op, value) if SIGNS[type(op)] in SWAPPED:
            yield "operator", f"{text(target)} {SWAPPED[SIGNS[type(op)]]}= {text(value)}"
            yield "statement", "pass"
        case ast.UnaryOp(ast.USub(), operand):
            yield "sign", f"({text(operand)})"
        case ast.UnaryOp(ast.Not(), operand):
            yield "condition", f"bool({text(operand)})"
        case ast.Compare(left, ops, comparators):
            yield from of_comparison(left, ops, comparators, text)
        case ast.BoolOp(op, values):
            other = "or" if isinstance(op, ast.And) else "and"
            yield "condition", "(" + f" {other} ".join(f"({text(v)})" for v in values) + ")"
            yield "condition", f"({text(values[0])})"
        case ast.Constant(bool() as value):
            yield "constant", str(not value)
        case ast.Constant(int() as value):
            yield "constant", str(value + 1 if value < 2 or (node.lineno + node.col_offset) % 2 else value - 1)
        case ast.Constant(float() as value):
            yield "constant", repr(2 * value if value else 1.0)
        case ast.IfExp(test, body, orelse):
            yield "condition", f"(({text(orelse)}) if ({text(test)}) else ({text(body)}))"
        case ast.Attribute(value, name) if name in RENAMED:
            yield "dtype" if "float" in name else "name", f"{text(value)}.{RENAMED[name]}"
        case ast.Attribute(value, "T" | "mT"):
            yield "transpose", text(value)
        case ast.Call(func, args, keywords):
            yield from of_call(func, args, keywords, text)
        case ast.Slice(lower, upper, step):
            bounds = [text(part) if part else "" for part in (lower, upper)]
            tail = f":{text(step)}" if step else ""
            if upper is not None:
                yield "off by one", f"{bounds[0]}:({bounds[1]}) - 1{tail}"
            if lower is not None:
                yield "off by one", f"({bounds[0]}) + 1:{bounds[1]}{tail}"
        case ast.Expr(ast.Call()) | ast.Break() | ast.Continue():
            yield "statement", "pass"


def of_two(sign: str, left: str, right: str, node: ast.BinOp) -> Changes:
    """Yield changes of a binary operation: another operator, a dropped operand, another power, or swapped operands."""
    if isinstance(node.left, ast.Constant) and isinstance(node.left.value, str):
        return  # a concatenation of strings
    if sign in SWAPPED:
        yield "operator", f"(({left}) {SWAPPED[sign]} ({right}))"
        yield "dropped term" if sign in "+-" else "dropped factor", f"({left})"
    if sign in "+*":
        yield "dropped term" if sign == "+" else "dropped factor", f"({right})"
    if sign == "-":
        yield "sign", f"(({right}) - ({left}))"
    if sign == "**":
        yield "power", f"({left})"
        yield "power", f"(({left}) ** (({right}) + 1))"
    if sign == "@":
        yield "transpose", f"(({right}) @ ({left}))"


def of_comparison(left: ast.expr, ops: list[ast.cmpop], rest: list[ast.expr], text: TextOf) -> Changes:
    """Yield versions of a (chained) comparison in which one operator is weakened, strengthened or negated."""
    parts = [text(left), *(text(part) for part in rest)]
    for i, op in enumerate(ops):
        signs = [SIGNS[type(o)] for o in ops]
        signs[i] = COMPARED[SIGNS[type(op)]]
        pairs = [f" {sign} ({part})" for sign, part in zip(signs, parts[1:])]
        yield "condition", f"(({parts[0]}){''.join(pairs)})"


def of_call(func: ast.expr, args: list[ast.expr], keywords: list[ast.keyword], text: TextOf) -> Changes:
    """Yield changes of a call, such as a similar function, no function, other axes, or a range shortened by one."""
    name = func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
    named = [f"{k.arg}={text(k.value)}" if k.arg else f"**{text(k.value)}" for k in keywords]
    inner = ", ".join([*map(text, args), *named])
    if isinstance(func, ast.Name) and name in RENAMED and len(args) >= 1:
        yield "name", f"{RENAMED[name]}({inner})"
    if name in DROPPED and args:
        yield "dropped function", f"({text(args[0])})"
    if name in TURNED and isinstance(func, ast.Attribute):
        method = len(args) < 3 and name != "moveaxis" and text(func.value) not in ("xp", "np")
        yield "transpose", f"({text(func.value if method else args[0])})"
    if name == "range" and args:
        short = [text(a) for a in args]
        short[min(1, len(args) - 1)] += " - 1"
        yield "off by one", f"range({', '.join(short)})"
