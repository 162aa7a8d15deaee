"""Match the layers of networks of several widths or depths, and measure the sizes of features and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from minintk.arrays import Array, Host, array_namespace, available_memory, check_floating, to_host, to_library
from minintk.diagnostics.layer_io import trace
from minintk.diagnostics.weight_norms import natural_norms, spectral_norms
from minintk.layers.contract import Tensor
from minintk.models.network import Network
from minintk.spec.layers import Residual
from minintk.spec.parametrization import Parametrization, SpectralMuP
from minintk.training.losses import Loss
from minintk.training.optimizers import Optimizer
from minintk.training.train import Descent

Quantity = Literal["h", "dh", "W", "dW", "dL/df", "growth"]

ENSEMBLE_BYTES = 2**31
"""Memory limit, in bytes, for the members that are trained together."""


def networks(
    spec_of_width: Any, x: Array, widths: Any, parametrization: Parametrization | None
) -> tuple[tuple[int, ...], list[Network]]:
    """Return the widths and one network per width.  Raise an error for invalid widths or if all have the same size."""
    if not callable(spec_of_width):
        raise TypeError(f"spec_of_width expects a function, width -> spec, got {spec_of_width!r}")
    check_floating("x", x)
    found = tuple(widths) if isinstance(widths, Iterable) else ()
    if len(set(found)) < 2 or not all(hasattr(n, "__index__") and n >= 1 for n in found):
        raise ValueError(f"widths expects two different whole numbers >= 1 at least, got {widths!r}")
    nets = [_network(spec_of_width, int(n), x.shape[1:], parametrization) for n in found]
    if len(sizes := {net.size for net in nets}) == 1:
        raise ValueError(f"spec_of_width gives {sizes.pop()} parameters at all of the widths {found}: use its argument")
    return tuple(map(int, found)), nets


def _network(make: Any, n: int, shape: Any, parametrization: Parametrization | None) -> Network:
    """Return the network for a spec or a torch module.  Without a parametrization, a module keeps its own weights."""
    made = make(n)
    if not hasattr(made[0] if isinstance(made, tuple) else made, "state_dict"):
        return Network(made, shape, parametrization or SpectralMuP())
    from minintk.lifting.by_width import of_width

    net = of_width(make, n, tuple(shape))
    return net if parametrization is None else Network(net.spec, shape, parametrization)


def chosen_optimizer(optimizer: Any, net: Network) -> Optimizer:
    """Return `optimizer`, or, if it is a function, the optimiser that it returns for the network."""
    chosen = optimizer(net) if callable(optimizer) and not isinstance(optimizer, type) else optimizer
    if not isinstance(chosen, Optimizer):
        raise TypeError(f"optimizer expects one such as mn.SGD(lr=0.1), or a function network -> one, got {chosen!r}")
    return chosen


def initial_thetas(net: Network, x: Array, rng: np.random.Generator, seeds: int) -> Iterator[Array]:
    """Yield initial theta : (E, P), drawn with `rng`, until there are `seeds` members.  E is limited by memory."""
    xp = array_namespace(x)
    room = min(ENSEMBLE_BYTES, available_memory(xp) // 4)
    E = max(1, min(seeds, room // (8 * net.size * x.dtype.itemsize)))
    for i in range(0, seeds, E):
        yield to_library(net.init(rng, ensemble=min(E, seeds - i), dtype=x.dtype), xp)


def matched(nets: Sequence[Network], widths: Sequence[int]) -> tuple[str, list[Callable[[str], str | None]]]:
    """Return "n" for widths or "L" for depths, and maps from each network's names to those of the shallowest one.

    The names are those of layers and tensors.  Branch ceil(k L / L_0) of L branches is mapped to branch k of L_0 in the
    shallowest network, at the same relative depth.  Other branches have no counterpart (None).
    """
    sizes = [len(net.spec) for net in nets]
    blocks = [[i for i, layer in enumerate(net.spec) if isinstance(layer, Residual)] for net in nets]
    least, deep = sizes.index(min(sizes)), len(set(sizes)) > 1 and all(blocks)

    def places(size: int, its: list[int]) -> dict[int, int]:
        """Return {position of a layer: position of its counterpart}."""
        after = {i: i + sizes[least] - size for i in range(its[-1] + 1, size)}
        chosen = {its[-(-(k + 1) * len(its) // len(blocks[least])) - 1]: i for k, i in enumerate(blocks[least])}
        return {i: i for i in range(its[0])} | chosen | after

    names = [partial(_counterpart, places(*both) if deep else None) for both in zip(sizes, blocks)]
    tensors = [[(name(t.name), t.shape if deep else ()) for t in net.layout.tensors] for net, name in zip(nets, names)]
    tensors = [[tensor for tensor in its if tensor[0]] for its in tensors]
    if odd := [n for n, its in zip(widths, tensors) if its != tensors[0]]:
        what = "the same layers at every width, or residual branches of the same width at every depth"
        raise ValueError(f"spec_of_width expects {what}, but {odd[0]} and {widths[0]} differ")
    return "L" if deep else "n", [*names]


def _counterpart(places: Mapping[int, int] | None, name: str) -> str | None:
    """Return the name with its position mapped by `places`; return it unchanged without `places` or a position."""
    at, dot, rest = name.partition(".")
    if places is None or not at.isdigit():
        return name
    return f"{places[int(at)]}{dot}{rest}" if int(at) in places else None


def spectral_mup(t: Tensor, natural: float) -> tuple[float, float]:
    """Return (|W|, |dW|) in spectral muP with w_std = b_std = 1.  natural : sqrt(fan_out / fan_in)."""
    (end, branch), r = t.role.depth, natural
    size = r if t.role.kind == "bias" else (1.0 if t.role.place == "input" else min(1.0, r)) * (1 + r)
    return size * end, r * end * branch


def measure(
    net: Network, theta: Array, x: Array, y: Array, loss: Loss, optimizer: Optimizer, steps: int,
    variable: str, width: int,
) -> dict[tuple[Quantity, str], Host]:  # fmt: skip
    """Train all members and return {(quantity, name): sizes}, of shape (E, steps + 1) for h and dh, otherwise (E,)."""
    run = Descent(net, theta, x, y, loss, optimizer, steps)
    xp, before, f, curves = array_namespace(theta), trace(net, theta, x), net(theta, x), []
    grown = moved = theta
    try:
        for step in range(steps + 1):
            with np.errstate(over="ignore", invalid="ignore"):  # divergence is reported below
                now = trace(net, run.theta, x)
                sizes = [(_rms(now[name].h), _rms(now[name].h - before[name].h)) for name in before]
            if not all(bool(xp.all(xp.isfinite(size))) for pair in sizes for size in pair):
                raise FloatingPointError(f"training diverged in step {step}: choose a rate below {optimizer.lr}")
            curves.append(sizes)
            _, value = run.advance(learn=step < steps)
            grown, moved = (value, run.theta - theta) if step == 0 else (grown, moved)
    except FloatingPointError as error:
        raise FloatingPointError(f"at {variable} = {width}: {error}") from error
    u = _rms(loss.cotangent(f, y)) * x.shape[0]
    start, first = (spectral_norms(net, at, rtol=1e-2) for at in (theta, moved))
    still = any(bool(xp.any(norm == 0)) for norm in first.values())
    late = spectral_norms(net, run.theta - theta, rtol=1e-2) if still else first
    natural, one = natural_norms(net), xp.ones_like(u)
    mup = {t.name: spectral_mup(t, natural[t.name]) for t in net.layout.tensors}
    shared = xp.where(u > 0, u, one) if optimizer.rule == "sgd" else one
    found: dict[Quantity, dict[str, Array]] = {
        "h": {name: xp.stack([step[i][0] for step in curves], axis=-1) for i, name in enumerate(before)},
        "dh": {name: xp.stack([step[i][1] for step in curves], axis=-1) for i, name in enumerate(before)},
        "W": {name: norm / mup[name][0] for name, norm in start.items()},
        # tensors below outputs that start at 0 do not move in the first step, but they can move later
        "dW": {k: xp.where(v > 0, v, late[k]) / mup[k][1] / shared for k, v in first.items()},
        "dL/df": {"loss": u},
        "growth": {"loss": value / xp.where(grown > 0, grown, one)},
    }
    return {(q, name): to_host(a).astype(np.float64) for q, of in found.items() for name, a in of.items()}


def _rms(h: Array) -> Array:
    """Return the root mean square over examples and features, (E,)."""
    xp = array_namespace(h)
    return xp.sqrt(xp.mean(h * h, axis=tuple(range(1, h.ndim))))
