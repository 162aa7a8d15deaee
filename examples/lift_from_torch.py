"""Lift a convolutional network from torch's arrays, and check that outputs and gradients agree up to rounding.

    python3 make.py python examples/lift_from_torch.py [--out FILE.png]

If torch is installed, its own modules compute the reference outputs and gradients.  Otherwise NumPy computes the
outputs from channels-first arrays, and a directional derivative by finite differences.  The weights are trained by
minintk and converted to torch's axes by `mn.unlift`, so `mn.lift` and `mn.unlift` are both tested.  The tangent kernel
at these weights then classifies other digits.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import analytic as an
import minintk as mn

try:
    import torch
except ImportError:
    torch = None
Host = np.ndarray[Any, Any]
SPEC = mn.Sequential(
    *(mn.Conv2d(8, 3, padding=1, b_std=1.0), mn.Tanh(), mn.AvgPool(2), mn.Flatten()),
    *(mn.Dense(32, b_std=1.0), mn.Tanh(), mn.Dense(10, b_std=1.0)),
)


def numpy_outputs(state: dict[str, Host], x: Host) -> Host:
    """Compute the outputs with NumPy in torch's layout, for x (N, 1, 8, 8) and W (out, in, 3, 3).

    Features are flattened as (C, H, W).
    """
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3))
    h = np.einsum("nchwij,ocij->nohw", windows, state["0.weight"]) + state["0.bias"][:, None, None]
    h = np.tanh(h).reshape(len(x), 8, 4, 2, 4, 2).mean((3, 5)).reshape(len(x), -1)
    h = np.tanh(h @ state["4.weight"].T + state["4.bias"])
    return np.asarray(h @ state["6.weight"].T + state["6.bias"])


def there(state: dict[str, Host], x: Host, u: Host, d: dict[str, Host]) -> tuple[Host, float]:
    """Return f and the derivative of sum(f u) along d, computed by torch or by NumPy."""
    if torch is None:
        h = 1e-6  # central difference in float64, with errors of about h^2 and 1e-16 / h
        plus, minus = (numpy_outputs({k: a + s * d[k].astype(float) for k, a in state.items()}, x) for s in (h, -h))
        return numpy_outputs(state, x), float(((plus - minus) * u).sum() / (2 * h))
    nn = torch.nn
    model = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten()),
        *(nn.Linear(128, 32), nn.Tanh(), nn.Linear(32, 10)),
    ).to(torch.as_tensor(x).dtype)
    model.load_state_dict({name: torch.as_tensor(a) for name, a in state.items()})
    f = model(torch.as_tensor(x))
    (f * torch.as_tensor(u)).sum().backward()
    grads = {name: p.grad.numpy() for name, p in model.named_parameters()}
    return f.detach().numpy(), float(sum((grads[name] * d[name]).sum() for name in d))


def main(out: str | None = None, steps: int = 400) -> dict[str, float]:
    """Return the relative differences from the reference in both precisions, and the accuracies of two classifiers."""
    rng, found, drawn = np.random.default_rng(0), dict[str, float](), dict[str, tuple[Host, Host]]()
    x, y = mn.datasets.digits().subset(600, rng).one_hot()
    x, net = x.reshape(-1, 8, 8, 1), mn.Network(SPEC, (8, 8, 1), mn.PyTorch())
    *_, end = mn.train(net, net.init(rng), x[:200], y[:200], loss=mn.mse, optimizer=mn.Adam(3e-3), steps=steps)
    names = [f"{i}.{key}" for i in (0, 4, 6) for key in ("weight", "bias")]
    shapes = ((8, 1, 3, 3), (8,), (32, 128), (32,), (10, 32), (10,))
    blank = {name: np.zeros(shape) for name, shape in zip(names, shapes, strict=True)}
    for dtype in ("float32", "float64"):
        state = {name: a.astype(dtype) for name, a in mn.unlift(net, end.theta, blank).items()}
        lifted, theta = mn.lift(state, (8, 8, 1), spec=SPEC)
        f, J = lifted.linearize(theta, x.astype(dtype))
        u, v = rng.standard_normal(f.shape).astype(dtype), rng.standard_normal(theta.shape).astype(dtype)
        other, slope = there(state, x.transpose(0, 3, 1, 2).astype(dtype), u, mn.unlift(lifted, v, state))
        g = J.vjp(u)
        found[f"{dtype}: outputs"] = float(np.abs(f - other).max() / np.abs(other).max())
        found[f"{dtype}: gradient"] = abs(float(g @ v) - slope) / float(np.linalg.norm(g) * np.linalg.norm(v))
        drawn[dtype] = np.abs(other).ravel(), np.abs(f - other).ravel()
    kernel = mn.ntk(lifted, theta, x, x[:200])
    predicted = an.gradient_flow(kernel[:200], y[:200], ridge=1e-3).predict(np.inf, kernel[200:])
    for name, g in (("network", f[200:]), ("its kernel", predicted)):
        found[f"accuracy on 400 other digits, {name}"] = float((g.argmax(1) == y[200:].argmax(1)).mean())
    if out:
        import matplotlib.pyplot as plt

        plt.style.use("analytic.verify.look")
        figure, axes = plt.subplots(layout="constrained")
        for i, (dtype, (size, apart)) in enumerate(drawn.items()):
            shown, eps = apart > 0, float(np.finfo(dtype).eps)  # the other outputs agree in all digits
            axes.loglog(size[shown], apart[shown], f"C{i}.", ms=2, label=f"{dtype}: {shown.mean():.0%} of outputs")
            axes.axhline(eps, color=f"C{i}", ls="--", label=f"{dtype}: rounding of 1")
        axes.set(xlabel="size of an output", ylabel="difference between the two libraries")
        axes.legend(fontsize=8)
        figure.savefig(out, dpi=120)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="lift_from_torch.png", help="the figure (%(default)s)")
    for name, value in main(parser.parse_args().out).items():
        print(f"{name:45} {value:.3g}")
