"""Test the conversion of a `forward` to a tree of layers, for graphs written by hand and modules traced by torch."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk import more_layers as more
from minintk.lifting import graph
from minintk.lifting.graph import Node, Reader
from tests.kit import torch_standin
from tests.kit.lifted import sines
from tests.kit.tricky_modules import REFUSED, RIGHT

NN = torch_standin.nn
Host = np.ndarray[Any, Any]


class Written:
    """A graph built by hand: `x` is the input, and calls of modules and operations are added in order."""

    def __init__(self, module: Any, *shape: int) -> None:
        self.module, self.x = module, Node("input", "x", shape=(2, *shape))
        self.nodes = [self.x]

    def call(self, path: str, x: Node, *shape: int) -> Node:
        return self.add(Node("module", path, (x,), shape=(2, *shape) if shape else x.shape))

    def do(self, name: str, *args: Any, shape: tuple[int, ...] = (), in_place: bool = False, **kwargs: Any) -> Node:
        first = next(a for a in graph.nested(args) if isinstance(a, Node))
        return self.add(Node("operation", name, args, kwargs, (2, *shape) if shape else first.shape, in_place))

    def add(self, node: Node) -> Node:
        self.nodes.append(node)
        return node

    def end(self, y: Node) -> tuple[mn.spec.Layer, list[str]]:
        """Return the layers, and the paths of the modules that own arrays."""
        piece = Reader([*self.nodes, Node("output", "output", (y,))], self.module, "").piece()
        return mn.Sequential(*piece.layers), piece.owners


def three() -> Any:
    """Return a module with a ReLU and three Linear layers of width 4, which are defined in the order c, a, b."""
    model = NN.Module()
    for name in ("c", "a", "b"):
        setattr(model, name, NN.Linear(4, 4))
    vars(model).update(relu=NN.ReLU())
    return model


L, R = mn.Dense(4, b_std=1.0), mn.ReLU()


def written(case: Callable[[Written], Node]) -> tuple[mn.spec.Layer, list[str]]:
    """Build the graph `case` on the module `three`, and return the layers and owners."""
    g = Written(three(), 4)
    return g.end(case(g))


def nested(g: Written) -> Node:
    h = g.do("add", g.call("a", g.x), g.x)
    return g.do("relu", g.do("add", g.call("b", g.call("relu", h)), h))


def product_of_sums(g: Written) -> Node:
    total = g.do("add", g.call("a", g.x), g.call("b", g.x))
    return g.call("c", g.do("mul", total, g.do("sigmoid", total)))


TREES: dict[str, tuple[Callable[[Written], Node], list[mn.spec.Layer], list[str]]] = {
    "in the order of the calls": (lambda g: g.call("c", g.call("relu", g.call("a", g.x))), [L, R, L], ["a", "c"]),
    "residual": (lambda g: g.do("add", g.call("a", g.x), g.x), [mn.Residual(L)], ["a"]),
    "residual, x first": (lambda g: g.do("add", g.x, g.call("a", g.x)), [mn.Residual(L)], ["a"]),
    "a shortcut with weights": (lambda g: g.do("add", g.call("b", g.x), g.call("a", g.x)), [mn.Sum(L, L)], ["b", "a"]),
    "difference": (
        lambda g: g.do("sub", g.x, g.call("a", g.x)),
        [mn.Residual(mn.Sequential(L, mn.Scale(-1.0)))],
        ["a"],
    ),
    "nested": (nested, [mn.Residual(L), mn.Residual(mn.Sequential(R, L)), R], ["a", "b"]),
    "gate": (product_of_sums, [mn.Sum(L, L), mn.Product(mn.Identity(), mn.Sigmoid()), L], ["a", "b", "c"]),
    "concatenation": (
        lambda g: g.do("cat", [g.call("a", g.x), g.x, g.call("b", g.x)], 1, shape=(12,)),
        [mn.Concat(L, mn.Identity(), L)],
        ["a", "b"],
    ),
    "numbers": (
        lambda g: g.do("truediv", g.do("mul", 3, g.call("a", g.x)), 2),
        [L, mn.Scale(3.0), mn.Scale(0.5)],
        ["a"],
    ),
    "twice the same": (lambda g: g.do("add", *[g.call("a", g.x)] * 2), [L, mn.Residual(mn.Identity())], ["a"]),
    "nothing": (lambda g: g.do("dropout", g.do("view", g.call("a", g.x), 2, -1), training=False), [L], ["a"]),
    "without weights, in two places": (
        lambda g: g.do("mul", g.do("add", t := g.do("tanh", g.x), g.x), g.do("sigmoid", t)),
        [mn.Product(mn.Residual(mn.Tanh()), mn.Sequential(mn.Tanh(), mn.Sigmoid()))],
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TREES)
def test_a_graph_is_a_tree_of_layers(name: str) -> None:
    case, layers, owners = TREES[name]
    assert written(case) == (mn.Sequential(*layers), owners)


def dense_net(g: Written) -> Node:
    a = g.call("a", g.x)
    b = g.call("b", g.do("add", a, g.x))
    return g.call("c", g.do("add", g.do("add", b, a), g.do("tanh", g.x)))


def changed_in_place(g: Written) -> Node:
    a = g.call("a", g.x)
    return g.do("add", g.call("b", g.do("relu", a, in_place=True)), a)


def changed_by_a_view(g: Written) -> Node:
    a = g.call("a", g.x)
    g.do("relu", g.do("view", a, 2, -1), in_place=True)
    return g.call("b", a)


NO_TREES: dict[str, tuple[Callable[[Written], Node], str]] = {
    "branches that cross": (dense_net, "^lift parts of it: .* uses the output of 'a' in branches that are not nested"),
    "called twice": (lambda g: g.call("a", g.call("a", g.x)), "^untie it: 'a' is called twice"),
    "in place": (changed_in_place, "^take inplace=False: .* by 'relu', and reads it again"),
    "in place by a view": (changed_by_a_view, "^take inplace=False"),
    "masks": (lambda g: g.do("dropout", g.call("a", g.x), 0.5), "'dropout' with 0.5, which lift does not know"),
    "plus a number": (lambda g: g.do("add", g.call("a", g.x), 1), "^give spec=.*'add' with 1, which lift does not"),
    "one over": (lambda g: g.do("truediv", 1, g.call("a", g.x)), "'truediv' with 1"),
    "weighted": (lambda g: g.do("add", g.x, g.call("a", g.x), alpha=2), "'add' with alpha=2, not of two arrays"),
    "other": (lambda g: g.do("softmax", g.call("a", g.x), 1), "the operation 'softmax' with 1"),
    "another axis": (lambda g: g.do("cat", [g.call("a", g.x), g.x], 0), r"along \[0\]; here it is along the channels"),
    "an array": (
        lambda g: g.do("mul", g.call("a", g.x), g.add(Node("array", "gamma", shape=(2, 4)))),
        "reads the array 'gamma' itself",
    ),
    "merged": (lambda g: g.do("view", g.call("a", g.x), -1, shape=(2, 2)), "the operation 'view'"),
    "two arguments": (lambda g: g.add(Node("module", "a", (g.x, g.x), shape=(2, 4))), "other arguments than one array"),
    "written into": (lambda g: (g.do("setitem", g.x, 0, 0), g.call("a", g.x))[1], "writes into an array"),
    "no array": (lambda g: g.add(Node("operation", "size", (g.x, 0))), "several inputs or outputs"),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_TREES)
def test_what_is_no_tree_is_refused_with_the_remedy_first(name: str) -> None:
    case, message = NO_TREES[name]
    with pytest.raises(mn.UnsupportedLayer, match=message):
        written(case)


def images() -> Written:
    """Return a graph on images of shape (3, 8, 8), with convolutions a and b that have 6 output channels."""
    model = NN.Module()
    for name, channels in (("a", 3), ("b", 6)):
        setattr(model, name, NN.Conv2d(channels, 6, 1))
    return Written(model, 3, 8, 8)


def test_operations_on_images() -> None:
    """Factors with one pixel are broadcast, means are taken over pixels, and shapes become channels-last."""
    g, C = images(), mn.Conv2d(6, 1, padding=0, b_std=1.0)
    h = g.call("a", g.x, 6, 8, 8)
    pooled = g.do("max_pool2d", h, 2, shape=(6, 4, 4))
    factor = g.do("hardsigmoid", g.call("b", g.do("adaptive_avg_pool2d", pooled, (1, 1), shape=(6, 1, 1))))
    y = g.do("flatten", g.do("mul", factor, pooled, shape=(6, 4, 4)), 1, shape=(96,))
    gate = mn.Product(
        mn.Sequential(more.AdaptiveAvgPool(1), C, more.Hardsigmoid(), more.AdaptiveAvgPool((4, 4))), mn.Identity()
    )
    assert g.end(y) == (mn.Sequential(C, mn.MaxPool(2, stride=2, padding=0), gate, mn.Flatten()), ["a", "b"])
    for dims, keep in (((2, 3), False), ((-1, -2), False), ([2, 3], True)):
        g = images()
        mean = g.do("mean", g.call("a", g.x, 6, 8, 8), dims, keepdim=keep, shape=(6, 1, 1) if keep else (6,))
        spec, _ = g.end(g.do("flatten", mean, 1, shape=(6,)))
        assert spec.inside[1] == mn.GlobalAvgPool()
    g = images()
    with pytest.raises(mn.UnsupportedLayer, match="the operation 'mean' with 1"):
        g.end(g.do("mean", g.call("a", g.x, 6, 8, 8), 1, shape=(8, 8)))
    g = images()
    with pytest.raises(mn.UnsupportedLayer, match=r"'add' of shapes \(2, 6, 1, 8\)"):
        g.end(g.do("add", g.call("a", g.x, 6, 8, 8), g.do("relu", g.x, shape=(6, 1, 8))))


def test_a_forward_is_lifted_and_its_weights_go_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """f = c(relu(a x) + b(relu(a x))) is lifted from modules in another order, and `unlift` returns the weights."""

    def trace(module: Any, shape: Any, path: str) -> list[Node]:
        g = Written(module, 4)
        h = g.do("relu", g.call("a", g.x))
        y = g.call("c", g.do("add", h, g.call("b", h)))
        return [*g.nodes, Node("output", "output", (y,))]

    monkeypatch.setattr(graph, "trace", trace)
    model = type("Net", (NN.Module,), {"__module__": "theirs"})()
    vars(model).update({name: vars(three())[name] for name in ("c", "a", "b")})
    state = sines(model.state_dict())
    model.state_dict = lambda: state
    net, theta = mn.lift(model, (4,), check=False)
    x = np.random.default_rng(0).standard_normal((5, 4))

    def layer(at: str, z: Host) -> Host:
        return np.asarray(z @ state[f"{at}.weight"].T + state[f"{at}.bias"])

    h = np.maximum(layer("a", x), 0)
    np.testing.assert_allclose(net(theta, x), layer("c", h + layer("b", h)), rtol=1e-13)
    home = mn.unlift(net, 2 * theta, state)
    assert list(home) == list(state)
    assert all(np.array_equal(home[name], 2 * value) for name, value in state.items())


def test_a_forward_without_torch_is_refused_with_the_remedy_first() -> None:
    model = type("Net", (NN.Module,), {"__module__": "theirs"})()
    with pytest.raises(mn.UnsupportedLayer, match=r"^give spec=.*Net at 'the top' has a forward of its own"):
        mn.lift(model, (4,))


# ---------------------------------------------------------------------------------------- where torch is installed


def agrees(module: Any, shape: tuple[int, ...], check: bool) -> None:
    """Check that outputs and gradients of weights equal torch's up to 1e-11 times the largest entry."""
    import torch

    net, theta = mn.lift(module, shape, check=check)
    x = torch.randn(3, shape[-1], *shape[:-1], dtype=torch.float64)
    f = module(x)
    g, J = net.linearize(theta, np.ascontiguousarray(np.moveaxis(x.numpy(), 1, -1)))
    assert np.abs(g - f.detach().numpy()).max() < 1e-11 * float(f.detach().abs().max())
    u = torch.randn_like(f)
    (f * u).sum().backward()
    home = mn.unlift(net, J.vjp(u.numpy()), module.state_dict())
    owners = [name.rpartition(".")[0] for name in home]
    frozen = {name for name, m in module.named_modules() if hasattr(m, "eps")}
    grads = {name: p.grad.numpy() for name, p in module.named_parameters() if name.rpartition(".")[0] not in frozen}
    size = max(float(np.abs(grad).max()) for grad in grads.values())
    assert set(grads) <= set(home)
    assert owners
    assert max(float(np.abs(home[name] - grad).max()) for name, grad in grads.items()) < 1e-11 * size


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("name", RIGHT)
def test_modules_made_to_trick_are_right(name: str, check: bool) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    shape, make = RIGHT[name]
    agrees(make(torch).double().eval(), shape, check)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("name", REFUSED)
def test_modules_made_to_trick_are_refused(name: str, check: bool) -> None:
    torch = pytest.importorskip("torch")
    shape, make, message = REFUSED[name]
    with pytest.raises((mn.UnsupportedLayer, ValueError), match=message):
        mn.lift(make(torch).double().eval(), shape, check=check)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["resnet18", "squeezenet1_1", "mobilenet_v2", "mnasnet0_5", "efficientnet_b0", "regnet_y_400mf"]
)
def test_models_of_torchvision(name: str) -> None:
    pytest.importorskip("torch")
    try:
        models = import_module("torchvision").models
    except (ImportError, RuntimeError) as error:  # RuntimeError if torchvision does not match torch
        pytest.skip(str(error))
    module = getattr(models, name)(weights=None, num_classes=10)
    for m in module.modules():
        if hasattr(m, "running_var"):
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.5, 1.5)
    agrees(module.double().eval(), (32, 32, 3), True)


def test_shapes_are_those_of_the_nodes_that_run() -> None:
    class Tensor(np.ndarray[Any, Any]):
        def detach(self) -> Tensor:
            return self

    class Interpreter:
        def run_node(self, node: str) -> Any:
            return {"a": np.zeros((2, 3)).view(Tensor), "size": 3}[node]

        def run(self, x: Any) -> None:
            for node in ("a", "size"):
                self.run_node(node)

    assert graph.shapes_of(Interpreter(), None) == {"a": (2, 3)}
