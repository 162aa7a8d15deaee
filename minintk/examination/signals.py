"""Measure the signals in each layer at initialisation, to find dead units and exploding or vanishing features.

For each layer with weights, h is the output and x is the input.

    size     rms of h over examples and features
    gain     rms of h / rms of x
    dead     share of features of x that are equal for all examples (and pixels); None for layers that read the inputs
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from minintk.arrays import Array, to_host
from minintk.diagnostics.layer_io import trace
from minintk.models.network import Network


@dataclass(frozen=True)
class Signal:
    """The signal at one layer, as the module defines it.  dead : None for layers that read the network's inputs."""

    size: float
    gain: float
    dead: float | None


def rms(a: Any) -> float:
    """Return the root mean square of all entries of `a`."""
    return float(np.sqrt(np.mean(np.square(to_host(a), dtype=np.float64))))


def signals(net: Network, theta: Array, x: Array) -> tuple[dict[str, Signal], float]:
    """Return {layer with weights: its signal}, and the number of multiplications by weights per example and pass."""
    inputs = {t.name for t in net.layout.tensors if t.role.place == "input"}
    found, work = dict[str, Signal](), 0.0
    for name, (before, after) in trace(net, theta, x).items():
        if (at := net.layout.slices.get(f"{name}.W")) is None:
            continue
        size = max(rms(before), 1e-300)
        spread = np.ptp(to_host(before).reshape(-1, before.shape[-1]), axis=0)
        dead = None if f"{name}.W" in inputs else float(np.mean(spread <= 1e-6 * size))
        found[name] = Signal(rms(after), rms(after) / size, dead)
        work += (at.stop - at.start) * float(np.prod(after.shape[1:-1]))
    return found, work


def apart(f: Array) -> float:
    """Return |f - mean f| / |f|, with the mean over examples: 0 if the outputs are equal for all examples."""
    a = to_host(f).astype(np.float64)
    return float(np.linalg.norm(a - a.mean(axis=0)) / max(float(np.linalg.norm(a)), 1e-300))


def drawn(net: Network, theta: Array) -> bool:
    """Return True if each tensor's mean and rms differ from those under `net.init` by at most 6 std / sqrt(size)."""
    parts = ((to_host(theta[net.layout.slices[t.name]]).astype(np.float64), t.row.std) for t in net.layout.tensors)
    return all(max(abs(a.mean()), abs(rms(a) - s)) <= 6 * s / np.sqrt(a.size) + 1e-6 * s for a, s in parts)


def uneven(x: Array) -> float:
    """Return the columns' largest standard deviation, divided by the median of the nonzero ones; 1 for images."""
    spread = to_host(x).astype(np.float64).std(axis=0)
    spread = spread[spread > 0]
    return float(spread.max() / np.median(spread)) if x.ndim == 2 and spread.size else 1.0
