"""Define torch networks that contain most kinds of modules that can be lifted. A formula defines their tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.lifting import check as checking
from minintk.testing import assert_close
from tests.kit import torch_standin
from tests.kit.golden import LIFTED, LIFTED_MORE

Host = np.ndarray[Any, Any]


def images(nn: Any) -> Any:
    """Build a network of many kinds of modules, for images of shape (3, 15, 16)."""
    return nn.Sequential(
        nn.Conv2d(3, 4, (3, 5), stride=(2, 1), padding=(1, 2)), nn.BatchNorm2d(4), nn.GELU(),
        nn.Sequential(nn.Conv2d(4, 5, 3, padding="same", bias=False), nn.LeakyReLU(0.1)), nn.MaxPool2d(2),
        nn.AvgPool2d(3, 2, 1), nn.Flatten(), nn.BatchNorm1d(40), nn.Linear(40, 7), nn.LayerNorm(7), nn.Tanh(),
        nn.Dropout(0.3), nn.Linear(7, 6), nn.Softplus(2.0), nn.Linear(6, 3, bias=False),
    )  # fmt: skip


def more_images(nn: Any) -> Any:
    """Build a network with modules that are lifted to `minintk.more_layers`, for images of shape (3, 15, 16)."""
    return nn.Sequential(
        nn.Conv2d(3, 6, (3, 2), padding=(1, 2), dilation=(1, 2), groups=3), nn.GroupNorm(2, 6), nn.Hardswish(),
        nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.Conv2d(6, 6, 3, stride=(2, 1), padding=1, groups=6, bias=False),
        nn.ReLU6(), nn.AvgPool2d(3, 2, ceil_mode=True), nn.GELU("tanh"), nn.Conv2d(6, 4, 1), nn.ELU(0.7),
        nn.AdaptiveAvgPool2d((3, 2)), nn.Flatten(), nn.Linear(24, 8), nn.Hardtanh(-1.0, 1.5), nn.Linear(8, 3),
    )  # fmt: skip


MODELS = {"images": (images, LIFTED), "more_images": (more_images, LIFTED_MORE)}


def sines(state: dict[str, Any], dtype: str = "float64") -> dict[str, Host]:
    """Return tensors from a formula: |W| <= 2 / sqrt(fan-in), |b| <= 2, and scales and variances from 1/2 to 3/2."""
    found = dict[str, Host]()
    for k, (name, a) in enumerate(state.items()):
        wave = np.sin(np.arange(float(np.prod(a.shape))) ** 2 * 0.37 + k).reshape(a.shape)
        positive = name.endswith("var") or (a.ndim == 1 and name.endswith("weight"))
        number = 1 + wave / 2 if positive else 2 * wave / np.prod(a.shape[1:]) ** 0.5
        found[name] = a if name.endswith("tracked") else np.asarray(number, dtype)
    return found


def inputs(shape: tuple[int, ...], n: int = 4, dtype: str = "float64") -> Host:
    """Return inputs with channels first, as in torch."""
    return np.cos(np.arange(float(n * np.prod(shape))) ** 2 * 0.9).reshape(n, *shape).astype(dtype)


def summary(grads: dict[str, Host], recorded: dict[str, Any] = LIFTED) -> tuple[Host, Host]:
    """Return two arrays with one entry per gradient: sums weighted by position, and sums of absolute values."""
    found = [grads[name].ravel().astype(float) for name in recorded["tensors"]]
    return np.array([g @ np.sin(np.arange(g.size) + 1.0) for g in found]), np.array([np.abs(g).sum() for g in found])


def loaded(model: Any, dtype: str = "float64") -> tuple[Any, dict[str, Host]]:
    """Fill the stand-in `model` with the tensors of `sines`, and return the model and the tensors."""
    state = sines(model.state_dict(), dtype)
    model.state_dict = lambda: state
    return model, state


def check_recorded(dtype: str = "float64", digits: float = 1e-12, name: str = "images") -> None:
    """Check that f and weighted sums of the gradients of sum(f u), in torch's order of axes, equal torch's results."""
    make, recorded = MODELS[name]
    model, state = loaded(make(torch_standin.nn), dtype)
    net, theta = mn.lift(model, (15, 16, 3), check=False)
    assert theta.dtype == dtype
    f, J = net.linearize(theta, np.ascontiguousarray(np.moveaxis(inputs((3, 15, 16), dtype=dtype), 1, -1)))
    assert_close("outputs", f.ravel(), np.array(recorded["f"]), digits * float(np.abs(recorded["f"]).max()))
    u = np.sin(np.arange(float(f.size))).reshape(f.shape).astype(dtype)
    numbers, sizes = summary(mn.unlift(net, J.vjp(u), state), recorded)
    assert_close("gradients", numbers / sizes, np.array(recorded["gradients"]) / sizes, digits)


D = mn.Sequential(mn.Dense(8, b_std=1.0), mn.Tanh(), mn.Dense(8, b_std=1.0))


class TwoLayers(torch_standin.Module):
    """The module out(tanh(inp(x))), which is not a Sequential. Its layers are defined in the order `defined`."""

    def __init__(self, *defined: str) -> None:
        super().__init__()
        for k, name in enumerate(defined):
            layer = torch_standin.nn.Linear(8, 8)
            layer.weight, layer.bias = (a + k for a in sines(layer.state_dict()).values())
            setattr(self, name, layer)

    def run(self, x: Host, u: Host, off: dict[str, float]) -> tuple[Host, dict[str, Host], dict[str, Host]]:
        """Compute torch's results with NumPy. off : errors added to the outputs ("f") and to the gradients."""
        inp, out = vars(self)["inp"], vars(self)["out"]
        z = x @ inp.weight.T + inp.bias
        y = np.tanh(z) @ out.weight.T + out.bias
        du = u @ out.weight * (1 - np.tanh(z) ** 2)
        grads = {"inp.weight": du.T @ x, "inp.bias": du.sum(0), "out.weight": u.T @ np.tanh(z), "out.bias": u.sum(0)}
        return y + off.get("f", 0.0), {k: g + off.get(k, 0.0) for k, g in grads.items()}, {"inp": z, "out": y}


def lift_two_layers(*defined: str, **off: float) -> tuple[mn.Network, mn.Array]:
    """Lift a `TwoLayers` module whose results are changed by the errors `off`, and check the lifted network."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checking, "run", lambda twin, x, u: twin.run(x, u, off))
        patch.setattr(checking, "LARGER", ())  # larger inputs need torch; see tests/minintk/lifting/test_modules.py
        return mn.lift(TwoLayers(*defined), (8,), spec=D)


def check_refused() -> None:
    """lift refuses a module whose outputs or gradients differ from the network's"""
    lift_two_layers("inp", "out")
    wrong: tuple[tuple[tuple[str, ...], dict[str, float]], ...] = (
        (("out", "inp"), {}), (("inp", "out"), {"f": 1e-3}), (("inp", "out"), {"out.weight": 1e-3}),
    )  # fmt: skip
    for defined, off in wrong:
        try:
            lift_two_layers(*defined, **off)
        except ValueError:
            continue
        raise AssertionError(f"lifted: layers defined as {defined}, called as ('inp', 'out'), off by {off or 1.2}")
