"""A network of all modules that are lifted, with numbers by a formula, and what torch computes with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch_standin
from golden import LIFTED

import minintk as mn
from minintk.testing import assert_close

Host = np.ndarray[Any, Any]


def images(nn: Any) -> Any:
    """Every kind of layer on images (3, 15, 16)."""
    return nn.Sequential(
        nn.Conv2d(3, 4, (3, 5), stride=(2, 1), padding=(1, 2)), nn.BatchNorm2d(4), nn.GELU(),
        nn.Sequential(nn.Conv2d(4, 5, 3, padding="same", bias=False), nn.LeakyReLU(0.1)), nn.MaxPool2d(2),
        nn.AvgPool2d(3, 2, 1), nn.Flatten(), nn.BatchNorm1d(40), nn.Linear(40, 7), nn.LayerNorm(7), nn.Tanh(),
        nn.Dropout(0.3), nn.Linear(7, 6), nn.Softplus(2.0), nn.Linear(6, 3, bias=False),
    )  # fmt: skip


def sines(state: dict[str, Any], dtype: str = "float64") -> dict[str, Host]:
    """Numbers by a formula for every tensor: weights +-1 / sqrt(fan-in), scales and variances about 1."""
    found = dict[str, Host]()
    for k, (name, a) in enumerate(state.items()):
        wave = np.sin(np.arange(float(np.prod(a.shape))) ** 2 * 0.37 + k).reshape(a.shape)
        positive = name.endswith("var") or (a.ndim == 1 and name.endswith("weight"))
        number = 1 + wave / 2 if positive else 2 * wave / np.prod(a.shape[1:]) ** 0.5
        found[name] = a if name.endswith("tracked") else np.asarray(number, dtype)
    return found


def inputs(shape: tuple[int, ...], n: int = 4, dtype: str = "float64") -> Host:
    """Channels-first, as torch has them."""
    return np.cos(np.arange(float(n * np.prod(shape))) ** 2 * 0.9).reshape(n, *shape).astype(dtype)


def summary(grads: dict[str, Host]) -> tuple[Host, Host]:
    """(a number for each gradient that sees every entry and its place, the sum of absolute values)."""
    found = [grads[name].ravel().astype(float) for name in LIFTED["tensors"]]
    return np.array([g @ np.sin(np.arange(g.size) + 1.0) for g in found]), np.array([np.abs(g).sum() for g in found])


def loaded(model: Any, dtype: str = "float64") -> tuple[Any, dict[str, Host]]:
    """The stand-in with the formula's numbers."""
    state = sines(model.state_dict(), dtype)
    model.state_dict = lambda: state
    return model, state


def check_recorded(dtype: str = "float64", digits: float = 1e-12) -> None:
    """Outputs, and gradients of sum(f u) in torch's axes, are those that torch computed."""
    model, state = loaded(images(torch_standin.nn), dtype)
    net, theta = mn.lift(model, (15, 16, 3))
    assert theta.dtype == dtype
    f, J = net.linearize(theta, np.ascontiguousarray(np.moveaxis(inputs((3, 15, 16), dtype=dtype), 1, -1)))
    assert_close("outputs", f.ravel(), np.array(LIFTED["f"]), digits * float(np.abs(LIFTED["f"]).max()))
    u = np.sin(np.arange(float(f.size))).reshape(f.shape).astype(dtype)
    numbers, sizes = summary(mn.unlift(net, J.vjp(u), state))
    assert_close("gradients", numbers / sizes, LIFTED["gradients"] / sizes, digits)
