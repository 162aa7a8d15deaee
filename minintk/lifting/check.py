"""Run a torch module and the network lifted from it, and require their outputs and gradients to agree.

This reveals errors that module names do not show, such as a different order of calls in `forward` or a detached tensor.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from minintk.arrays import Array, Host, to_host
from minintk.lifting.modules import AUTODIFF
from minintk.lifting.slots import Axes, Slot, pairs
from minintk.lifting.unlift import unlift
from minintk.models.network import Network
from minintk.spec.shapes import UnsupportedLayer

TOLERANCE = 1e-7
"""Tolerance relative to the largest entry, in float64.  torch's Softplus deviates by only 2e-9 / beta."""

LARGER = 10.0, 1000.0
"""Scales of the inputs besides 1.  Large inputs reveal bounds and thresholds, as in relu6 or softplus(threshold=)."""

NEVER = {
    "RNNBase": "is recurrent", "RNNCellBase": "is recurrent", "MultiheadAttention": "attends to other positions",
    "Embedding": "reads integers", "EmbeddingBag": "reads integers",
}  # fmt: skip
"""Base classes of modules that have no counterpart in minintk, even if a spec is given."""

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def check_module(module: Any) -> None:
    """Raise an error that names the faulty inner module or array, e.g. for training mode, hooks or tied weights."""
    noisy = [m for m in module.modules() if m.training and (hasattr(m, "running_mean") or hasattr(m, "p"))]
    if noisy:
        raise ValueError(f"lift expects a module in evaluation mode, {noisy[0]!r} is in training: model.eval()")
    for name, m in module.named_modules():
        if found := [what for kind in type(m).__mro__ if (what := NEVER.get(kind.__name__))]:
            what = f"{type(m).__name__} at {name or 'the top'!r} {found[0]}, and lift has no layer that does"
            raise UnsupportedLayer(f"{AUTODIFF}: {what}")
        if "forward" in vars(m):
            raise UnsupportedLayer(f"write forward into the class: {name or 'the top'!r} has one of the instance alone")
        if hasattr(m, "parametrizations"):
            first_of = next(iter(m.parametrizations))
            remedy = f"torch.nn.utils.parametrize.remove_parametrizations(module, {first_of!r})"
            raise UnsupportedLayer(f"{remedy}: {name or 'the top'!r} computes {first_of!r} from other arrays")
    parameters, first = list(module.named_parameters(remove_duplicate=False)), dict[int, str]()
    for name, one in (*module.named_modules(), *parameters):
        if hooks := [hook[1:] for hook in HOOKS if getattr(one, hook, None)]:
            raise UnsupportedLayer(f"{name or 'the top'!r} has {hooks[0]}, and layers have none: remove them")
    for name, p in parameters:
        if first.setdefault(id(p), name) != name:
            tied = f"{name!r} is {first[id(p)]!r} again, the same array"
            raise UnsupportedLayer(f"{tied}; layers have weights of their own here: untie them, with copies")
        if str(p.dtype) not in ("torch.float32", "torch.float64"):
            raise TypeError(f"{name!r} expects float32 or float64, got {p.dtype}: module.float()")


def check_run(
    module: Any, lifted: Callable[[Any], tuple[Network, Array]], net: Network, layout: Axes,
    places: Sequence[str | None] | None,
) -> None:  # fmt: skip
    """Raise ValueError unless outputs and gradients of a copy of the module and of its network agree to TOLERANCE.

    Both run in float64.  lifted : a function that lifts the copy.  places : the paths of the layers' modules, if known.
    """
    shape = net.input_shape
    x, u = (np.random.default_rng(0).standard_normal((2, *axes)) for axes in (shape, (net.outputs,)))
    try:
        twin = deepcopy(module).cpu().double()
        f, gradients, calls = run(twin, np.ascontiguousarray(np.moveaxis(x, -1, 1)), u)
    except Exception as error:  # the caller's code can raise any exception
        what = f"lift could not run the module on {(2, shape[-1], *shape[:-1])}, {type(error).__name__}: {error}"
        raise ValueError(f"{what}. Mend input_shape={shape}, channels last, or skip the run, check=False") from error
    net, theta = lifted(twin)
    own, J = net.linearize(theta, x)
    state = twin.state_dict()
    slots = [(slot, [name for name, _ in group.values()]) for slot, group in pairs(net, state, layout)]
    if (off := apart(to_host(own), f)) > TOLERANCE:
        place = departs([*map(to_host, net.layer_outputs(theta, x))], slots, calls, places)
        remedy = "give spec=... that is what forward computes, its arrays in the order of the calls"
        raise ValueError(f"lift computes other outputs than the module, by {off:.2g} of the largest{place}: {remedy}")
    for scale in LARGER:
        there = outputs(twin, np.ascontiguousarray(np.moveaxis(scale * x, -1, 1)))
        off = apart(to_host(net(theta, scale * x)), there) if np.all(np.isfinite(there)) else 0.0
        if off > TOLERANCE:
            what = (
                f"lift computes other outputs than the module at inputs of size {scale:g}, by {off:.2g} of the largest"
            )
            raise ValueError(f"{what}: give spec=... that is what forward computes, its bounds and thresholds too")
    pulled = J.vjp(u)
    home, size = unlift(net, pulled, state, layout=layout), float(np.abs(pulled).max())
    for name in (name for slot, names in slots if slot.tensors for name in names):
        if (off := apart(home[name], gradients[name], size)) > TOLERANCE:
            what = f"{name!r} has another gradient than in the module, by {off:.2g} of the largest"
            raise ValueError(f"{what}: forward may not detach it, nor use it twice")


def outputs(twin: Any, x: Host) -> Host:
    """Return the module's outputs for x, computed by torch."""
    f: Host = twin(next(iter(twin.parameters())).detach().new_tensor(x)).detach().numpy()
    return f


def run(twin: Any, x: Host, u: Host) -> tuple[Host, dict[str, Host], dict[str, Host]]:
    """Return torch's f, the gradient of sum(f u) for each parameter, and the inner modules' outputs in call order."""
    calls = dict[str, Host]()

    def note(name: str) -> Callable[..., None]:
        def write(_module: Any, _given: Any, y: Any) -> None:
            if hasattr(y, "detach"):
                calls[name] = y.detach().numpy().copy()

        return write

    notes = [inner.register_forward_hook(note(name)) for name, inner in twin.named_modules() if name]
    like = next(iter(twin.parameters())).detach()
    with sys.modules["torch"].enable_grad():
        f = twin(like.new_tensor(x))
        (f * like.new_tensor(u)).sum().backward()
    for each in notes:
        each.remove()
    grads = {name: (0 * p if p.grad is None else p.grad).detach().numpy() for name, p in twin.named_parameters()}
    return f.detach().numpy(), grads, calls


def apart(a: Host, b: Host, size: float | None = None) -> float:
    """Return max |a - b| / size, or inf if shapes differ or b is not finite.  size : defaults to max(|a|, |b|)."""
    if a.shape != b.shape or not np.all(np.isfinite(b)):
        return np.inf
    size = float(max(np.abs(a).max(), np.abs(b).max())) if size is None else size
    return float(np.abs(a - b).max()) / (size or 1.0)


def departs(
    layers: list[Host], slots: list[tuple[Slot, list[str]]], calls: dict[str, Host], places: Sequence[str | None] | None
) -> str:
    """Return text that names the first module at which the network and torch differ, or "" if none is found."""
    owners = [names[0].rpartition(".")[0] for _, names in slots]
    called = [name for name in calls if name in owners]
    for defined, name in zip(owners, called):
        if defined != name and places is None:
            return f"; {name!r} is called where {defined!r} is defined"
    if places is None:
        found = [(int(slot.name), owner) for (slot, _), owner in zip(slots, owners) if slot.name.isdigit()]
    else:
        found = [(i, name) for i, name in enumerate(places) if name is not None]
    for i, name in found:
        ours, theirs = (np.sort(a.reshape((len(a), -1))) for a in (layers[i], calls.get(name, layers[i])))
        if apart(ours, theirs) > TOLERANCE:  # sorted, because the axes and the order of features differ
            return f", from {name!r} on"
    return ""
