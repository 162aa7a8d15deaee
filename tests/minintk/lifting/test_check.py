"""Test the comparison of modules with lifted networks, and errors for hooks, tied weights and training mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minintk as mn
from tests.kit import torch_standin
from tests.kit.lifted import check_refused, lift_two_layers

Host = np.ndarray[Any, Any]
NN = torch_standin.nn


def test_a_module_in_training_is_refused() -> None:
    model = NN.Sequential(NN.Linear(3, 3), NN.Dropout(0.1))
    vars(model)["1"].training = True
    with pytest.raises(ValueError, match="evaluation mode"):
        mn.lift(model, (3,))


def test_a_module_that_computes_something_else_is_refused() -> None:
    check_refused()


def test_what_differs_is_named() -> None:
    with pytest.raises(ValueError, match=r"other outputs.* by [\d.]+ of the largest; 'inp' is called where 'out' is"):
        lift_two_layers("out", "inp")
    with pytest.raises(ValueError, match=r"other outputs than the module, by 0\.\d+ of the largest: give spec="):
        lift_two_layers("inp", "out", f=1.0)
    with pytest.raises(ValueError, match=r"'out\.weight' has another gradient than in the module, by .*not detach"):
        lift_two_layers("inp", "out", **{"out.weight": 1.0})
    with pytest.raises(ValueError, match=r"could not run the module on \(2, 3\), AttributeError: .*check=False"):
        mn.lift(NN.Sequential(NN.Linear(3, 3)), (3,))


@pytest.mark.parametrize("owner", ["module", "weight"])
def test_hooks_are_refused(owner: str) -> None:
    model = NN.Sequential(NN.Linear(3, 3))
    one = vars(model)["0"] if owner == "module" else vars(vars(model)["0"])["marks"]["weight"]
    vars(one)["_backward_hooks"] = {0: print}
    with pytest.raises(mn.UnsupportedLayer, match=r"'0(\.weight)?' has backward_hooks, .* remove them"):
        mn.lift(model, (3,), check=False)


@pytest.mark.parametrize("by", ["layer", "weight"])
def test_tied_weights_are_refused_with_a_spec_too(by: str) -> None:
    """Tied weights give the correct outputs but a wrong tangent kernel: for f = x w w, half of the correct kernel."""
    model = NN.Sequential(NN.Linear(8, 8), NN.Linear(8, 8))
    first, second = vars(model)["0"], vars(model)["1"]
    if by == "layer":
        vars(model)["1"] = first
    else:
        vars(second)["marks"]["weight"] = vars(first)["marks"]["weight"]
    with pytest.raises(mn.UnsupportedLayer, match=r"'1\.weight' is '0\.weight' again, the same array.* with copies"):
        mn.lift(model, (8,), spec=mn.Sequential(*[mn.Dense(8, b_std=1.0)] * 2), check=False)


def test_frozen_weights_are_refused_and_frozen_scales_are_not() -> None:
    model = NN.Sequential(NN.Linear(3, 4), NN.BatchNorm1d(4), NN.Linear(4, 1))
    vars(vars(model)["1"])["running_var"][:] = 1.0
    vars(vars(model)["1"])["marks"]["weight"].requires_grad = False
    mn.lift(model, (3,), check=False)
    vars(vars(model)["0"])["marks"]["bias"].requires_grad = False
    with pytest.raises(ValueError, match=r"0\.bias has requires_grad=False.*params= in mn\.ntk"):
        mn.lift(model, (3,), check=False)


def test_a_forward_of_the_instance_and_computed_weights_are_refused() -> None:
    model = NN.Sequential(NN.Linear(3, 3))
    vars(vars(model)["0"])["forward"] = lambda x: 2 * x
    with pytest.raises(mn.UnsupportedLayer, match=r"^write forward into the class: '0' has one"):
        mn.lift(model, (3,), check=False)
    model = NN.Sequential(NN.Linear(3, 3))
    vars(vars(model)["0"])["parametrizations"] = {"weight": None}
    with pytest.raises(mn.UnsupportedLayer, match=r"remove_parametrizations\(module, 'weight'\): '0' computes"):
        mn.lift(model, (3,), check=False)


@pytest.mark.parametrize(
    ("base", "what"),
    [("RNNBase", "is recurrent"), ("MultiheadAttention", "attends to other"), ("Embedding", "reads integers")],
)
def test_what_no_layer_does_is_named_before_anything_runs(base: str, what: str) -> None:
    """The operation is named before the module runs, because neither a spec nor another shape would help."""
    kind = type("Own", (type(base, (NN.Module,), {}),), {})
    model = NN.Sequential(NN.Linear(3, 4), kind())
    for spec in (None, mn.Dense(4, b_std=1.0)):
        with pytest.raises(mn.UnsupportedLayer, match=rf"^take torch\.func for its tangent kernel.*Own at '1' {what}"):
            mn.lift(model, (3,), spec=spec)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_refused(dtype: str) -> None:
    model = NN.Linear(3, 4)
    vars(model)["marks"]["bias"].dtype = f"torch.{dtype}"
    with pytest.raises(TypeError, match=rf"'bias' expects float32 or float64, got torch\.{dtype}: module\.float"):
        mn.lift(model, (3,))


def test_what_torch_runs_decides() -> None:
    """Lifting follows the operations that torch runs.

    Each case must give correct results, or be refused with an error.
    """
    torch = pytest.importorskip("torch")
    nn = torch.nn

    def two(first: str, second: str, forward: Any) -> Any:
        model = type("Two", (nn.Module,), {"forward": forward})()
        model.add_module(first, nn.Linear(8, 8))
        model.add_module(second, nn.Linear(8, 8))
        return model

    spec = mn.Sequential(mn.Dense(8, b_std=1.0), mn.Tanh(), mn.Dense(8, b_std=1.0))
    x = torch.randn(4, 8, dtype=torch.float64)
    right = two("inp", "out", lambda m, x: m.out(torch.tanh(m.inp(x)))).eval()
    with torch.no_grad():  # as evaluation is often written
        net, theta = mn.lift(right, (8,), spec=spec)
    assert np.abs(net(theta, x.numpy().astype(np.float32)) - right(x.float()).detach().numpy()).max() < 1e-6
    assert all(p.grad is None and p.dtype == torch.float32 for p in right.parameters())  # a copy runs, not the module
    wrong = {
        "'inp' is called where 'out' is defined": two("out", "inp", lambda m, x: m.out(torch.tanh(m.inp(x)))),
        "'inp\\.weight' has another gradient": two("inp", "out", lambda m, x: m.out(torch.tanh(m.inp(x).detach()))),
        "by [\\d.e-]+ of the largest: give spec": two("inp", "out", lambda m, x: 2 * m.out(torch.tanh(m.inp(x)))),
        "from 'out' on: give spec": two("inp", "out", lambda m, x: m.out(torch.sigmoid(m.inp(x)))),
        "could not run the module on \\(2, 8\\), RuntimeError: mat1": two("inp", "out", lambda m, x: m.out(m.inp(x.T))),
    }
    for message, module in wrong.items():
        with pytest.raises(ValueError, match=message):
            mn.lift(module.eval(), (8,), spec=spec)
        mn.lift(module, (8,), spec=spec, check=False)

    class Wide(nn.ReLU):  # type: ignore[name-defined,misc]
        def __call__(self, x: Any) -> Any:
            return 2 * super().__call__(x)

    with pytest.raises(ValueError, match=r"by 0\.5 of the largest, from '2' on"):
        mn.lift(nn.Sequential(nn.Linear(8, 8), Wide(), nn.Linear(8, 1, bias=False)).eval(), (8,))
    hooked = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    hooked[0].register_forward_hook(lambda m, given, y: 2 * y)
    with pytest.raises(mn.UnsupportedLayer, match="'0' has forward_hooks"):
        mn.lift(hooked.eval(), (8,))
    tied = two("inp", "out", lambda m, x: m.out(m.inp(x)))
    tied.out.weight = tied.inp.weight
    with pytest.raises(mn.UnsupportedLayer, match=r"'out\.weight' is 'inp\.weight' again"):
        mn.lift(tied, (8,), spec=spec)
    frozen = nn.Sequential(nn.Linear(8, 8)).eval().requires_grad_(False)
    with pytest.raises(ValueError, match=r"0\.weight has requires_grad=False"):
        mn.lift(frozen, (8,))
    with pytest.raises(TypeError, match=r"'0\.weight' expects float32 or float64, got torch\.bfloat16"):
        mn.lift(nn.Sequential(nn.Linear(8, 8)).bfloat16(), (8,))


def test_a_bound_that_small_inputs_do_not_reach_is_seen() -> None:
    """relu6 lifted as ReLU and hardtanh lifted as Identity are detected, although they differ only at large inputs."""
    torch = pytest.importorskip("torch")
    for function, phi in ((torch.nn.functional.relu6, mn.ReLU()), (torch.nn.functional.hardtanh, mn.Identity())):

        class Net(torch.nn.Module):  # type: ignore[name-defined, misc]
            def __init__(self) -> None:
                super().__init__()
                self.a, self.b = torch.nn.Linear(4, 8).double(), torch.nn.Linear(8, 2).double()

            def forward(self, x: Any, function: Any = function) -> Any:
                return self.b(function(self.a(x)))

        spec = mn.Sequential(mn.Dense(8, b_std=1.0), phi, mn.Dense(2, b_std=1.0))
        with pytest.raises(ValueError, match="lift computes other outputs than the module"):
            mn.lift(Net().eval(), (4,), spec=spec)
