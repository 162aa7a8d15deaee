"""Test the conversion of torch.nn and Flax networks in both directions: outputs, gradients, and clear errors."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.thresholds import THRESHOLDS
from tests.kit import torch_standin
from tests.kit.lifted import MODELS, check_recorded, inputs, loaded, sines, summary

Host = np.ndarray[Any, Any]
NN = torch_standin.nn


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("dtype", "digits"), [("float64", 1e-12), ("float32", 2e-6)])
def test_outputs_and_gradients_are_torchs(dtype: str, digits: float, name: str) -> None:
    check_recorded(dtype, digits, name)


def block(channels: int, stride: int) -> mn.Sequential:
    conv = mn.Conv2d(channels, stride=stride, padding=1), mn.BatchNorm(), mn.ReLU(), mn.Conv2d(channels, padding=1)
    short = mn.Sequential(mn.Conv2d(channels, 1, stride=stride, padding=0), mn.BatchNorm())
    return mn.Sequential(mn.Residual(mn.Sequential(*conv, mn.BatchNorm()), short), mn.ReLU())


LENET = mn.Sequential(
    *(mn.Conv2d(6, 5, padding=2, b_std=1.0), mn.Tanh(), mn.AvgPool(2), mn.Conv2d(16, 5, padding=0, b_std=1.0)),
    *(mn.Tanh(), mn.AvgPool(2), mn.Flatten(), mn.Dense(120, b_std=1.0), mn.Tanh(), mn.Dense(84, b_std=1.0), mn.Tanh()),
    mn.Dense(10, b_std=1.0),
)  # fmt: skip
RESNET = mn.Sequential(
    mn.Conv2d(16, padding=1), mn.BatchNorm(), mn.ReLU(), block(16, 1), block(32, 2), block(64, 2), mn.GlobalAvgPool(),
    mn.Dense(10, b_std=1.0),
)  # fmt: skip


def distance(spec: mn.Sequential, x: Host, theta: Host, other: Host) -> float:
    """Return the relative difference between gradients of sum(f u) at theta in float32 and at `other` in float64."""
    u, found = np.random.default_rng(1).standard_normal((len(x), 10)).astype(np.float32), list[Any]()
    net = mn.Network(spec, x.shape[1:], mn.PyTorch())
    fixed = net.calibrate(theta.astype(float), x.astype(float)).statistics if spec is RESNET else {}
    for a in (theta, other.astype(np.float64)):
        frozen = net._with({name: b.astype(np.float32).astype(a.dtype) for name, b in fixed.items()}) if fixed else net
        found.append(frozen.linearize(a, x.astype(a.dtype))[1].vjp(u.astype(a.dtype)))
    return float(np.abs(found[0] - found[1]).max() / np.abs(found[1]).max())


@pytest.mark.parametrize("written", [True, False], ids=["as written", "fast"])
@pytest.mark.parametrize(("spec", "shape"), [(LENET, (28, 28, 1)), (RESNET, (16, 16, 3))], ids=["LeNet", "ResNet"])
def test_float32_gradients_are_right_to_a_millionth(
    spec: Any, shape: Any, written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """minintk's gradients in float32 agree with those in float64 to within 1e-6 of the largest entry.

    Float64 gradients equal torch's to 1e-12 (`test_torch_itself`). Weights with a relative error of 1e-5 fail the test.
    """
    rng = np.random.default_rng(0)
    x = rng.standard_normal((32, *shape)).astype(np.float32)
    theta = mn.Network(spec, shape, mn.PyTorch()).init(rng, dtype=np.float32)
    monkeypatch.setattr(THRESHOLDS, "plain", inf if written else 0)
    assert distance(spec, x, theta, theta) < 1e-6 < distance(spec, x, theta, theta * (1 + 1e-5))


def test_branches_are_lifted_in_the_order_of_the_spec() -> None:
    """Branches are lifted in the spec's order, for x + tanh(x A') and a projected shortcut."""
    rng = np.random.default_rng(0)
    A, B, C = (rng.standard_normal(shape) for shape in ((4, 4), (2, 4), (2, 4)))
    spec = mn.Sequential(
        mn.Residual(mn.Sequential(mn.Dense(4), mn.Tanh())), mn.Residual(mn.Dense(2), shortcut=mn.Dense(2))
    )
    net, theta = mn.lift({"a": {"w": A.T}, "b": {"w": B.T}, "c": {"w": C.T}}, (4,), spec=spec, layout="flax")
    x = rng.standard_normal((5, 4))
    h = x + np.tanh(x @ A.T)
    np.testing.assert_allclose(net(theta, x), h @ B.T + h @ C.T, rtol=1e-13)


STATE = {"0": {"w": np.ones((4, 3)), "b": np.ones(4)}, "3": {"w": np.ones((2, 4))}}
SPEC = mn.Sequential(mn.Dense(4, b_std=1.0), mn.ReLU(), mn.Dense(2))


def test_other_misuse_is_refused() -> None:
    with pytest.raises(TypeError, match="dictionary of arrays and spec"):
        mn.lift(STATE, (3,))
    with pytest.raises(ValueError, match="layout expects 'torch' or 'flax'"):
        mn.lift(STATE, (3,), spec=SPEC, layout="jax")  # type: ignore[arg-type]
    net, theta = mn.lift(STATE, (3,), spec=SPEC)
    with pytest.raises(ValueError, match=r"theta\[i\] of several"):
        mn.unlift(net, np.stack([theta, theta]), STATE)
    with pytest.raises(ValueError, match="order"):
        mn.lift({}, (2, 2, 3), spec=mn.Flatten())
    with pytest.raises(ValueError, match=r"a model with weights, Sequential\(ReLU\(\)\) has none"):
        mn.lift(NN.ReLU(), (3,))
    split = mn.Sequential(mn.Flatten(), mn.Residual(mn.Dense(12)), mn.Dense(1))
    with pytest.raises(ValueError, match="adds features in two orders"):
        mn.lift({"a.w": np.ones((12, 12)), "b.w": np.ones((1, 12))}, (2, 2, 3), spec=split)


# ---------------------------------------------------------------------------------------- where torch is installed


@pytest.mark.parametrize("name", MODELS)
def test_torch_itself(name: str) -> None:
    """Modules run by torch give the recorded outputs and gradients."""
    torch, (make, recorded) = pytest.importorskip("torch"), MODELS[name]
    model = make(torch.nn).double().eval()
    state = sines({at: a.numpy() for at, a in model.state_dict().items()})
    model.load_state_dict({at: torch.as_tensor(a) for at, a in state.items()})
    f = model(torch.as_tensor(inputs((3, 15, 16))))
    u = np.sin(np.arange(12.0)).reshape(4, 3)
    (f * torch.as_tensor(u)).sum().backward()
    numbers, sizes = summary({at: p.grad.numpy() for at, p in model.named_parameters()}, recorded)
    assert np.abs(f.detach().numpy().ravel() - recorded["f"]).max() < 1e-12
    assert np.all(np.abs(numbers - recorded["gradients"]) < 1e-12 * sizes)
    for dtype in ("float32", "float64"):  # minintk's errors are below 4 times torch's
        single = make(torch.nn).to(getattr(torch, dtype)).eval()
        single.load_state_dict({at: torch.as_tensor(a.astype(dtype)) for at, a in state.items()})
        (single(torch.as_tensor(inputs((3, 15, 16), dtype=dtype))) * torch.as_tensor(u.astype(dtype))).sum().backward()
        theirs, _ = summary({at: p.grad.numpy() for at, p in single.named_parameters()}, recorded)
        net, theta = mn.lift(single, (15, 16, 3))
        x = np.ascontiguousarray(np.moveaxis(inputs((3, 15, 16), dtype=dtype), 1, -1))
        ours, _ = summary(
            mn.unlift(net, net.linearize(theta, x)[1].vjp(u.astype(dtype)), single.state_dict()), recorded
        )
        apart = [float(np.linalg.norm((one - recorded["gradients"]) / sizes)) for one in (ours, theirs)]
        assert apart[0] < max(4 * apart[1], 1e-12)
    net, theta = mn.lift(model, (15, 16, 3))
    standin, same = mn.lift(loaded(make(NN))[0], (15, 16, 3), check=False)
    assert standin.spec == net.spec
    assert np.array_equal(theta, same)
    assert all(np.array_equal(a, state[at]) for at, a in mn.unlift(net, theta, model.state_dict()).items())


@pytest.mark.parametrize("n", [64, 60])
def test_the_bias_behind_flatten_keeps_its_order(n: int) -> None:
    """If a Dense has as many outputs as inputs from Flatten, its bias is not permuted as the features are."""
    layers = mn.Flatten(), mn.Dense(n, b_std=1.0), mn.ReLU(), mn.Dense(10, b_std=1.0)
    rng = np.random.default_rng(0)
    state = {
        "1.weight": rng.standard_normal((n, 64)), "1.bias": rng.standard_normal(n),
        "3.weight": rng.standard_normal((10, n)), "3.bias": rng.standard_normal(10),
    }  # fmt: skip
    net, theta = mn.lift(state, (2, 2, 16), spec=mn.Sequential(*layers))
    x = rng.standard_normal((3, 2, 2, 16))
    h = np.moveaxis(x, -1, 1).reshape(3, 64)  # as torch flattens (C, H, W)
    f = np.maximum(h @ state["1.weight"].T + state["1.bias"], 0) @ state["3.weight"].T + state["3.bias"]
    np.testing.assert_allclose(net(theta, x), f, rtol=0, atol=1e-12 * np.abs(f).max())
    back = mn.unlift(net, theta, state)
    assert all(np.allclose(back[name], a, rtol=1e-14, atol=0) for name, a in state.items())
