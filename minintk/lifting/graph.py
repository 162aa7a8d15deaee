"""Convert the `forward` method of a torch module to a tree of layers.

torch.fx runs `forward` once with symbols in place of arrays and records the operations as nodes of a graph.  A node
with several inputs (a sum, a product, a concatenation) becomes a layer with one branch per input.  The branches begin
at the last common dominator of the inputs, which is the last node on all paths from the module's input to these inputs:

    x -> relu(x + bn(conv(x)))      Residual(Sequential(Conv2d, BatchNorm)), ReLU

Apart from shared nodes without weights, the graph must be series-parallel.  A module with arrays can be called once.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from minintk import more_layers as more
from minintk import spec as s
from minintk.lifting.modules import AUTODIFF, Piece, as_layer, each, known, leaf, refusal
from minintk.spec.shapes import Shape, out_shape

SPEC = "give spec=..., its arrays in the order of the calls"
"""The remedy for a `forward` that is not a tree of layers."""


@dataclass(eq=False)
class Node:
    """A node of the graph of a `forward` method.

    kind : "input", "module", "operation", "array" or "output".  target : the path of a module or array, or the name of
    an operation without the trailing underscore of in-place operations.  args, kwargs : the arguments, some of which
    can be nodes.  shape : the shape of the output, examples first, or None if the output is not an array.
    """

    kind: str
    target: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    shape: Shape | None = None
    in_place: bool = False

    @property
    def inputs(self) -> list[Node]:
        """Return the nodes among the arguments whose outputs are arrays, in order."""
        return [a for a in nested((*self.args, *self.kwargs.values())) if isinstance(a, Node) and a.shape is not None]

    @property
    def example(self) -> Shape:
        """Return the shape of one example, channels last."""
        assert self.shape is not None
        return (*self.shape[2:], *self.shape[1:2])


def nested(values: Any) -> Iterator[Any]:
    """Yield the values inside nested tuples and lists."""
    for value in values:
        yield from nested(value) if isinstance(value, (tuple, list)) else (value,)


def read(module: Any, shape: Shape, path: str = "") -> Piece:
    """Convert a torch.nn module to layers.  shape : that of one example.  path : the module's path in the model."""
    kind = known(module)
    if kind is None and not type(module).__module__.startswith("torch.nn."):
        return Reader(trace(module, shape, path), module, path).piece()
    if kind != "Sequential":
        return leaf(module, shape, path)
    piece = Piece()
    for name, child in module._modules.items():
        at = f"{path}.{name}" if path else name
        part = read(child, shape, at).at(at)
        if part.owners and set(part.owners) & set(piece.owners):
            raise refusal(repr(at), "is called twice, and layers have weights of their own here", "untie it, by a copy")
        shape, piece = out_shape(part.layer, shape), piece.then(part)
    return piece


# ------------------------------------------------------------------------------------------- by torch.fx


def trace(module: Any, shape: Shape, path: str) -> list[Node]:
    """Trace `forward` and return its nodes in order, with the shapes found by running it on two examples."""
    where = f"{type(module).__name__} at {path or 'the top'!r}"
    bases = {f"{kind.__module__}.{kind.__name__}" for kind in type(module).__mro__}
    library = sys.modules.get("torch")
    if library is None or "torch.nn.modules.module.Module" not in bases:
        raise refusal(where, "has a forward of its own, and is no torch.nn.Module that torch.fx reads", SPEC)
    fx = import_module(f"{library.__name__}.fx")
    tracer = fx.Tracer()
    ours = tracer.is_leaf_module
    tracer.is_leaf_module = lambda m, name: known(m) not in (None, "Sequential") or ours(m, name)
    try:
        graph = fx.GraphModule(module, tracer.trace(module))
    except Exception as error:  # the caller's code can raise any exception
        why = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise refusal(where, f"has a forward that torch.fx cannot trace, {why}", SPEC) from error
    called = {getattr(one.target, "__name__", one.target) for one in graph.graph.nodes if one.op != "call_module"}
    if "scaled_dot_product_attention" in called or ("softmax" in called and called & {"matmul", "bmm", "einsum"}):
        raise refusal(where, "attends to other positions, and lift has no layer that does", AUTODIFF)
    like = next((p.detach() for p in module.parameters()), library.zeros(()))
    try:
        with library.no_grad():
            shapes = shapes_of(fx.Interpreter(graph), like.new_zeros((2, shape[-1], *shape[:-1])))
    except Exception as error:  # from the caller's code, as above
        why = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        what = f"{where} does not run on two examples, {(2, shape[-1], *shape[:-1])} in torch's axes, {why}"
        how = f"mend input_shape={shape}, channels last, that of np.moveaxis(x, 1, -1) for torch's x"
        raise ValueError(f"{how}: {what}") from error
    found = dict[Any, Node]()
    for one in graph.graph.nodes:
        found[one] = from_fx(one, found, shapes.get(one), library)
    return [*found.values()]


def shapes_of(interpreter: Any, x: Any) -> dict[Any, Shape]:
    """Run the graph on x and return {node: shape} for the nodes whose output is an array."""
    shapes, run_node = dict[Any, Shape](), interpreter.run_node

    def noted(one: Any) -> Any:
        y = run_node(one)
        if hasattr(y, "detach"):
            shapes[one] = tuple(map(int, y.shape))
        return y

    interpreter.run_node = noted
    interpreter.run(x)
    return shapes


def from_fx(one: Any, found: Mapping[Any, Node], shape: Shape | None, library: Any) -> Node:
    """Convert a node of torch.fx to a `Node`.  Only names of other libraries' functions include the module."""

    def with_ours(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return tuple(map(with_ours, value))
        return found.get(value, value) if value.__hash__ is not None else value

    name = str(one.target)
    if one.op == "call_function":
        name = getattr(one.target, "__name__", name)
        places = library, library.nn.functional, operator
        if not any(getattr(place, name, None) is one.target for place in places):
            name = f"{getattr(one.target, '__module__', '')}.{name}"
    kinds = {"placeholder": "input", "call_module": "module", "get_attr": "array", "output": "output"}
    kwargs = dict(one.kwargs)
    changes = one.op.startswith("call_") and one.op != "call_module" and name.endswith("_") and not name.endswith("__")
    augmented = one.op == "call_function" and name.startswith("i") and hasattr(operator, name) and name[1:] in JOINS
    return Node(
        kinds.get(one.op, "operation"), name.removesuffix("_") if changes else name[1:] if augmented else name,
        with_ours(one.args), {key: with_ours(value) for key, value in kwargs.items()},
        shape, changes or augmented or bool(kwargs.get("inplace")),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------ tables

JOINS = {"add": "sum", "sub": "sum", "mul": "product", **dict.fromkeys(("cat", "concat", "concatenate"), "concat")}
"""Operations that join several arrays."""

POINTWISE: dict[str, s.Layer] = {
    "abs": s.Abs(), "neg": s.Scale(-1.0), "square": s.Monomial(2), "exp": s.Exp(), "sin": s.Sin(), "cos": s.Cos(),
    "erf": s.Erf(),
}  # fmt: skip
"""Operations that are activations, but not modules of torch.nn."""

WINDOW = {"kernel_size": None, "stride": None, "padding": 0}
FUNCTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("ReLU", {"inplace": False}), "relu6": ("ReLU6", {"inplace": False}), "tanh": ("Tanh", {}),
    "sigmoid": ("Sigmoid", {}), "gelu": ("GELU", {"approximate": "none"}), "silu": ("SiLU", {"inplace": False}),
    "elu": ("ELU", {"alpha": 1.0, "inplace": False}), "softplus": ("Softplus", {"beta": 1.0, "threshold": 20.0}),
    "leaky_relu": ("LeakyReLU", {"negative_slope": 0.01, "inplace": False}),
    "hardtanh": ("Hardtanh", {"min_val": -1.0, "max_val": 1.0, "inplace": False}),
    "hardswish": ("Hardswish", {"inplace": False}), "hardsigmoid": ("Hardsigmoid", {"inplace": False}),
    **{
        f"avg_pool{d}d": (f"AvgPool{d}d", WINDOW | {"ceil_mode": False, "count_include_pad": True} | more_options)
        for d, more_options in ((1, {}), (2, {"divisor_override": None}))
    },
    **{
        f"max_pool{d}d": (f"MaxPool{d}d", WINDOW | {"dilation": 1, "ceil_mode": False, "return_indices": False})
        for d in (1, 2)
    },
    **{f"adaptive_avg_pool{d}d": (f"AdaptiveAvgPool{d}d", {"output_size": None}) for d in (1, 2)},
}  # fmt: skip
"""{function: (the corresponding module of torch.nn, {option: default} in order)}"""

MASKS: dict[str, dict[str, Any]] = {
    "dropout": {"p": 0.5, "training": True, "inplace": False},
    "torchvision.ops.stochastic_depth.stochastic_depth": {"p": 0.5, "mode": None, "training": True},
}
"""Functions that are the identity in evaluation mode, and their options."""

RESHAPES = ("flatten", "view", "reshape", "squeeze", "contiguous", "clone")
"""Operations that change at most the shape of an array, and keep its entries in order."""

MEMORY = ("Identity", "Dropout", "Dropout1d", "Dropout2d", "Flatten")
"""Modules whose output can share memory with their input."""


class Reader:
    """Converts the nodes of one `forward` to layers.  path : the path of the module that defines this `forward`."""

    def __init__(self, nodes: list[Node], module: Any, path: str) -> None:
        self.nodes, self.path = nodes, path
        self.where = f"{type(module).__name__} at {path or 'the top'!r}"
        self.modules = dict(module.named_modules(remove_duplicate=False)) if hasattr(module, "named_modules") else {}
        self.place = {node: i for i, node in enumerate(nodes)}
        self.read_nodes, self.called, self.steps = set[Node](), set[str](), 0
        self.dominators = dict[Node, frozenset[Node]]()
        for node in nodes:
            above = [self.dominators[a] for a in node.inputs]
            self.dominators[node] = frozenset({node}).union(frozenset.intersection(*above) if above else ())

    def piece(self) -> Piece:
        """Convert the whole `forward` to layers."""
        given = [node for node in self.nodes if node.kind == "input" and node.shape is not None]
        end = self.nodes[-1]
        if len(given) != 1 or len(end.args) != 1 or not isinstance(end.args[0], Node) or end.args[0].shape is None:
            raise refusal(self.where, "has a forward of several inputs or outputs; lift takes one array to one", SPEC)
        self.check_in_place()
        return self.chain(end.args[0], given[0])

    def check_in_place(self) -> None:
        """Raise an error if an array is assigned to by index, or is changed in place and read again later."""
        for node in self.nodes:
            if node.target.endswith("setitem"):
                raise refusal(self.where, "writes into an array", SPEC)
            module = self.modules.get(node.target) if node.kind == "module" else None
            if not (node.in_place or getattr(module, "inplace", False)) or not node.inputs:
                continue
            changed: Node | None = node.inputs[0]
            while changed is not None:
                if any(changed in other.inputs for other in self.nodes[self.place[node] + 1 :]):
                    what = f"changes an array in place, by {node.target!r}, and reads it again later"
                    raise refusal(self.where, what, "take inplace=False")
                changed = changed.inputs[0] if self.passes_on(changed) and changed.inputs else None

    def passes_on(self, node: Node) -> bool:
        """Return True if the node's output can share memory with its first input."""
        module = self.modules.get(node.target) if node.kind == "module" else None
        if module is not None:
            return bool(getattr(module, "inplace", False)) or known(module) in MEMORY
        return node.in_place or node.target in (*RESHAPES, *MASKS)

    def chain(self, node: Node, stop: Node) -> Piece:
        """Convert the operations after `stop`, up to and including `node`, to layers."""
        parts = list[Piece]()
        while node is not stop:
            self.steps += 1
            if node.kind == "array" or self.steps > 50 * len(self.nodes):
                what = f"reads the array {node.target!r} itself" if node.kind == "array" else "has too many paths"
                raise refusal(self.where, what, SPEC)
            part, node = self.module(node) if node.kind == "module" else self.operation(node)
            parts.append(part)
        return reduce(Piece.then, reversed(parts), Piece())

    def module(self, node: Node) -> tuple[Piece, Node]:
        """Return a called module as a layer, and the node that is its input."""
        path = f"{self.path}.{node.target}" if self.path else node.target
        if len(node.inputs) != 1 or len(node.args) != 1 or node.kwargs:
            raise refusal(repr(path), "is called with other arguments than one array", SPEC)
        found = leaf(self.modules[node.target], node.inputs[0].example, path)
        if found.owners:
            if node in self.read_nodes:
                why = f"uses the output of {path!r} in branches that are not nested"
                raise refusal(self.where, f"{why}; a network is a tree of layers here", "lift parts of it")
            if path in self.called:
                raise refusal(repr(path), "is called twice, and layers have weights of their own here", "untie it")
            self.read_nodes.add(node)
            self.called.add(path)
        return found, node.inputs[0]

    def operation(self, node: Node) -> tuple[Piece, Node]:
        """Return an operation as a layer, and the node that is its input."""
        inputs, name = node.inputs, node.target
        if arrays := [a.target for a in inputs if a.kind == "array"]:
            raise refusal(self.where, f"reads the array {arrays[0]!r} itself", SPEC)
        if name in JOINS and (len(inputs) > 1 or JOINS[name] == "concat"):
            return self.joined(node)
        layer = self.alone(node, inputs[0]) if len(inputs) == 1 else None
        if layer is None:
            raise refusal(self.where, f"has the operation {name!r}{arguments(node)}, which lift does not know", SPEC)
        return Piece([] if layer == s.Identity() else [layer], [] if layer == s.Identity() else [None]), inputs[0]

    def alone(self, node: Node, x: Node) -> s.Layer | None:
        """Return an operation on one array as a layer, or None if lift does not support it."""
        name, rest, shape = node.target, node.args[1:], x.example
        if not node.args or node.args[0] is not x:
            return scale(node, x)
        if name in POINTWISE and not rest and not node.kwargs:
            return POINTWISE[name]
        if name in RESHAPES and x.shape is not None and node.shape is not None:
            whole = (x.shape[0], int(reduce(operator.mul, x.shape[1:], 1)))
            return s.Identity() if node.shape == x.shape else s.Flatten() if node.shape == whole else None
        if name == "mean":
            return mean(node, x)
        if name in MASKS:
            options = bound(node, MASKS[name])
            return s.Identity() if options is not None and options.training is False else None
        if name in FUNCTIONS:
            kind, defaults = FUNCTIONS[name]
            options = bound(node, defaults)
            if options is None:
                return None
            if "stride" in defaults:
                options.stride = options.stride or options.kernel_size
            return as_layer(kind, options, shape, f"{kind} in {self.where}")
        return scale(node, x)

    def joined(self, node: Node) -> tuple[Piece, Node]:
        """Return a sum, product or concatenation as branches, and the node at which they begin."""
        kind, inputs = JOINS[node.target], node.inputs
        if kind == "concat":
            dims = [*node.args[1:], *node.kwargs.values()] or [0]
            rank = len(node.shape or ())
            if dims not in ([1], [1 - rank]) or len(inputs) != len([*nested(node.args[:1])]):
                raise refusal(self.where, f"joins arrays along {dims}; here it is along the channels, 1", SPEC)
        elif len(inputs) != 2 or len(node.args) != 2 or node.kwargs:
            raise refusal(self.where, f"has the operation {node.target!r}{arguments(node)}, not of two arrays", SPEC)
        shared = frozenset.intersection(*(self.dominators[a] for a in inputs))
        if not shared:
            raise refusal(self.where, "reads arrays that are not its input", SPEC)
        base = max(shared, key=lambda a: self.place[a])
        parts = [self.chain(a, base).then(self.spread(a, node)) for a in inputs]
        if node.target == "sub":
            parts[1] = parts[1].then(Piece([s.Scale(-1.0)], [None]))
        layers, owners = [part.layer for part in parts], [at for part in parts for at in part.owners]
        return Piece([branches(kind, layers)], [None], owners), base

    def spread(self, a: Node, node: Node) -> Piece:
        """Return layers that repeat an operand of shape (N, C, 1, 1) at all pixels of the result."""
        if JOINS[node.target] == "concat" or a.shape == node.shape:
            return Piece()
        assert a.shape is not None
        assert node.shape is not None
        if a.shape[:2] != node.shape[:2] or len(a.shape) != len(node.shape) or set(a.shape[2:]) != {1}:
            raise refusal(self.where, f"has the operation {node.target!r} of shapes {a.shape}, {node.shape}", SPEC)
        pixels: Any = node.shape[2:]
        return Piece([more.AdaptiveAvgPool(pixels if len(pixels) == 2 else pixels[0])], [None])


def branches(kind: str, layers: list[s.Layer]) -> s.Layer:
    """Return a Residual if one of the two terms of a sum is x itself, otherwise a Sum, Product or Concat."""
    if kind == "sum" and len(layers) == 2 and s.Identity() in layers:
        branch = layers[1] if layers[0] == s.Identity() else layers[0]
        return s.Residual(branch)
    return {"sum": s.Sum, "product": s.Product, "concat": s.Concat}[kind](*layers)


def bound(node: Node, defaults: dict[str, Any]) -> Any:
    """Return a call's options (the arguments after the first, or defaults), or None if one is unknown or an array."""
    rest = node.args[1:]
    if len(rest) > len(defaults) or not set(node.kwargs) <= set(defaults):
        return None
    options = defaults | dict(zip(defaults, rest)) | dict(node.kwargs)
    return None if any(isinstance(a, Node) for a in nested(options.values())) else SimpleNamespace(**options)


def arguments(node: Node) -> str:
    """Return the text of all non-array arguments, for error messages."""
    rest = [a for a in node.args if not isinstance(a, Node)]
    given = [*map(repr, rest), *(f"{key}={a!r}" for key, a in node.kwargs.items() if not isinstance(a, Node))]
    return f" with {', '.join(given)}" if given else ""


def scale(node: Node, x: Node) -> s.Layer | None:
    """Return a Scale layer if the node multiplies or divides x by a nonzero number, otherwise None."""
    if len(node.args) != 2 or node.kwargs:
        return None
    number = node.args[1] if node.args[0] is x else node.args[0]
    if isinstance(number, bool) or not isinstance(number, (int, float)) or number == 0:
        return None
    if node.target == "mul":
        return s.Scale(float(number))
    return s.Scale(1.0 / number) if node.target in ("truediv", "div") and node.args[0] is x else None


def mean(node: Node, x: Node) -> s.Layer | None:
    """Return the mean over all pixels as a layer, or None for other axes."""
    options, rank = bound(node, {"dim": None, "keepdim": False}), len(x.shape or ())
    if options is None or options.dim is None or rank < 3:
        return None
    if {a % rank for a in each(options.dim, 1)} != set(range(2, rank)):
        return None
    return more.AdaptiveAvgPool(1) if options.keepdim else s.GlobalAvgPool()
