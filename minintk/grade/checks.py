"""Check a layer's jvp, vjp and gram one by one, and describe the errors of each.

`minintk.testing.check_layer` calls this module when a law is broken.  The laws relate jvp, vjp and gram to each other,
so a broken law does not show which of the three is wrong.  Finite differences identify the wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minintk.grade.compare import Diagnosis, Finding, differs
from minintk.grade.gradient import check_pair
from minintk.grade.suspects import Values, close, explain, margin
from minintk.grade.worker import watched
from minintk.layers.contract import Bound, bind
from minintk.models.network import Network
from minintk.spec.layers import Flatten, Layer, Sequential
from minintk.spec.parametrization import NTK, Parametrization
from minintk.spec.shapes import Site, couples, out_shape


def diagnose_layer(layer: Layer, shape: Sequence[int], parametrization: Parametrization | None = None) -> Diagnosis:
    """Compare the layer's jvp and vjp with finite differences and, if both are correct, its gram with J J'.

    shape : the shape of one input example.  The gram is skipped if the layer has no weights or couples examples.

    >>> import minintk as mn
    >>> diagnose_layer(mn.Dense(4, b_std=0.5), (3,)).passed
    True
    """
    shape, parametrization = tuple(shape), parametrization or NTK()
    bound = bind(layer, Site(shape, first=False, last=False, inputs=True), parametrization, "layer")
    rng = np.random.default_rng(0)
    names = ["x", *(t.name.removeprefix("layer.") for t in bound.tensors)]
    args = [rng.standard_normal((3, *shape)), *(rng.standard_normal(t.shape) for t in bound.tensors)]
    numbers = {f"the multiplier of {name}": t.row.multiplier for name, t in zip(names[1:], bound.tensors)}

    def value(x: Values, *weights: Values) -> tuple[Any, list[int]]:
        y, changed = watched(lambda x, *w: bound(_named(bound, w), x)[0], (x, *weights))
        return np.asarray(y), changed

    written = _written(bound, args, names)
    found = list(written.values())
    for method, gradient in (("jvp", _turned(bound, args)), ("vjp", lambda u, *a: _pull(bound, u, a))):
        said = check_pair(value, gradient, args, names, hard=False, numbers=numbers)
        for f in said.findings:
            if f.where != "forward":
                f = Finding(f"{method}, {f.where}", f.cause, f.text)
            if f.where.removeprefix("vjp, d") not in written:
                found.append(f)
    if not couples(layer) and bound.tensors and not found:
        found += _gram(layer, shape, parametrization, rng)
    return Diagnosis(tuple(dict.fromkeys(found)))


def _named(bound: Bound, weights: Sequence[Values]) -> dict[str, Any]:
    return dict(zip((t.name for t in bound.tensors), weights, strict=True))


def _pull(bound: Bound, u: Values, args: Sequence[Values], fill: float = 0.0) -> tuple[list[Any], list[int]]:
    """Return vjp's [dx, *gradients], with arrays preset to `fill`, and positions of arguments it changed (u: -1)."""
    _, J = bound(_named(bound, args[1:]), args[0])
    given = _named(bound, [np.full_like(a, fill) for a in args[1:]])
    dx, changed = watched(lambda u, *_: J.vjp(u, dict(given)), (u, *args))
    return [dx, *given.values()], [i - 1 for i in changed]


def _turned(bound: Bound, args: Sequence[Values]) -> Callable[..., tuple[Any, list[int]]]:
    """Return a vjp that is the transpose of jvp, computed by applying jvp to each unit vector of each argument."""
    _, J = bound(_named(bound, args[1:]), args[0])
    rows = []
    for a in args:
        units = np.eye(a.size).reshape(a.size, *a.shape)
        d = [[unit if b is a else np.zeros_like(b) for b in args] for unit in units]
        rows.append([np.asarray(J.jvp(_named(bound, weights), x)) for x, *weights in d])

    def pull(u: Values, *args: Values) -> tuple[Any, list[int]]:
        return [np.reshape([np.sum(u * y) for y in ys], a.shape).astype(u.dtype) for ys, a in zip(rows, args)], []

    return pull


def _written(bound: Bound, args: Sequence[Values], names: Sequence[str]) -> dict[str, Finding]:
    """Return {tensor: the error in how vjp writes its gradient}, found by calls with arrays of zeros and of ones."""
    y, _ = bound(_named(bound, args[1:]), args[0])
    (zero, _), (one, _) = (_pull(bound, np.ones_like(y), args, fill) for fill in (0.0, 1.0))
    found = {}
    for name, a, b in zip(names[1:], zero[1:], one[1:], strict=True):
        if np.allclose(b - a, 1.0):
            cause, text = "accumulated", "added to what stands in dw: write = and not +="
            if not np.any(a):
                cause, text = "nothing", "not written: `dw[name] = ...` makes a new array, write `dw[name][...] = ...`"
            found[name] = Finding(f"vjp, d{name}", cause, text)
    return found


def _gram(layer: Layer, shape: Any, parametrization: Parametrization, rng: np.random.Generator) -> list[Finding]:
    """Compare gram with J J', where J comes from vjp, already found correct.  Name the tensor whose part is wrong."""
    end = [Flatten()] if len(out_shape(layer, shape)) > 1 else []
    net = Network(Sequential(layer, *end), shape, parametrization)
    theta, x = rng.standard_normal(net.size), rng.standard_normal((3, *shape))
    _, J = net.linearize(theta, x)
    got, dense = np.asarray(J.gram()), np.asarray(J.dense())
    parts = {name: dense[..., at] for name, at in net.layout.slices.items()}
    whole = {name.rpartition(".")[2]: np.einsum("ncp,mdp->ncmd", d, d) for name, d in parts.items()}
    right = sum(whole.values(), np.zeros_like(got))
    tolerance = margin(right)
    if close(got, right, tolerance):
        return []
    for name, part in whole.items() if len(whole) > 1 else ():
        if close(got, right - part, tolerance):
            return [Finding("gram", "part missing", f"the part of {name} is missing")]
        if said := explain(got - (right - part), part, tolerance, {}):
            return [Finding("gram", said[0], f"the part of {name}: {said[1]}")]
    return [Finding("gram", *(explain(got, right, tolerance, {}) or ("unnamed", differs(got, right))))]
