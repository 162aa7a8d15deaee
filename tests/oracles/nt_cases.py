"""Read neural_tangents.npz: the kernels that neural-tangents' own tests request, with their networks as specs.

cases : JSON, [{"spec": ["Sequential", [["Dense", {"width": 3}], ...]], "standard": true or false (NTK parametrization),
    "x1", "x2": index in `shapes`, "nngp", "ntk": {"shape", "from": index in `values`, "largest": entry}, "test"}, ...].
inputs : all inputs, concatenated. shapes : their shapes, as JSON.
values : the entries of all kernels, concatenated. For large kernels, only ENTRIES evenly spaced ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import cache
from math import pi, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import erf

import analytic as an
import minintk as mn
from minintk.layers.activation import Pointwise, pointwise
from tests.kit.golden import SIGMOID_LIKE

DATA = Path(__file__).with_name("neural_tangents.npz")
ENTRIES = 24


@dataclass(frozen=True)
class ScaledErf(mn.Activation):
    """The activation a erf(b x) + c. With the default constants, it approximates the sigmoid."""

    a: float = 0.5
    b: float = 1 / SIGMOID_LIKE
    c: float = 0.5


@dataclass(frozen=True)
class Gabor(mn.Activation):
    """The activation exp(-x^2) sin(x)."""


@pointwise.register
def _(phi: ScaledErf) -> Pointwise:
    a, b, c = phi.a, phi.b, phi.c
    slope = 2 * a * b / sqrt(pi)
    return Pointwise(lambda xp, x: a * erf(b * x) + c, lambda xp, x: slope * xp.exp(-((b * x) ** 2)))


@pointwise.register
def _(phi: Gabor) -> Pointwise:
    return Pointwise(
        lambda xp, x: xp.exp(-x * x) * xp.sin(x), lambda xp, x: xp.exp(-x * x) * (xp.cos(x) - 2 * x * xp.sin(x))
    )


OWN = {"ScaledErf": ScaledErf, "Gabor": Gabor}


def encode(spec: Any) -> list[Any]:
    """Return a spec as JSON data [name, layers or non-default arguments]."""
    name = type(spec).__name__
    if isinstance(spec, mn.Sequential | mn.Sum | mn.Product | mn.Concat):
        return [name, [encode(one) for one in spec.inside]]
    given = {f.name: getattr(spec, f.name) for f in fields(spec) if getattr(spec, f.name) != f.default}
    return [name, {key: encode(one) if isinstance(one, mn.spec.Layer) else one for key, one in given.items()}]


def decode(name: str, given: Any) -> Any:
    """Return the spec that the JSON data [name, given] describe."""
    make = OWN.get(name) or getattr(mn, name)
    if isinstance(given, list):
        return make(*(decode(*one) for one in given))
    return make(**{key: argument(one) for key, one in given.items()})


def argument(value: Any) -> Any:
    """Return the argument that JSON data describe. Lists become tuples or layers."""
    if not isinstance(value, list):
        return value
    return decode(*value) if value and isinstance(value[0], str) else tuple(value)


def entries(kernel: Any) -> Any:
    """Return all entries of a small kernel, or ENTRIES evenly spaced entries of a large kernel, as a flat array."""
    flat = np.asarray(kernel).ravel()
    return flat if flat.size <= ENTRIES else flat[np.linspace(0, flat.size - 1, ENTRIES).round().astype(int)]


@cache
def read() -> tuple[list[dict[str, Any]], list[Any], Any]:
    """Return the cases, the inputs and the values."""
    with np.load(DATA, allow_pickle=False) as file:
        cases, shapes = (json.loads(file[name].tobytes()) for name in ("cases", "shapes"))
        inputs, values = file["inputs"], file["values"]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    return cases, [a.reshape(s) for a, s in zip(np.split(inputs, ends[:-1]), shapes, strict=True)], values


def kernels(spec: Any, standard: bool, x1: Any, x2: Any, rank: int) -> dict[str, Any]:
    """Return {"nngp": f, "ntk": g} with functions f and g that return the kernels of the spec on x1, x2.

    rank : number of axes of the kernels. The rank exceeds 2 for kernels of pairs of pixels.
    """
    k = an.kernel(spec, mn.Standard() if standard else mn.NTK())
    xs = (x1,) if x2 is None else (x1, x2)
    if rank > 2:
        pixels = k.pixels(*xs)
        return {"nngp": lambda: pixels.nngp, "ntk": lambda: pixels.ntk}
    return {"nngp": lambda: k.nngp(*xs), "ntk": lambda: k.ntk(*xs)}


def distance(case: dict[str, Any], spec: Any = None) -> float:
    """Return the largest difference from neural-tangents' NNGP and NTK, relative to the largest entry of the kernel.

    spec : the spec to compare. Defaults to the spec of the case. Returns inf if the shapes of the kernels differ.
    """
    _, inputs, values = read()
    spec = decode(*case["spec"]) if spec is None else spec
    x1, x2 = (None if case[name] is None else inputs[case[name]] for name in ("x1", "x2"))
    wanted = {name: case[name] for name in ("nngp", "ntk") if name in case}
    rank, worst = max(len(one["shape"]) for one in wanted.values()), 0.0
    found = kernels(spec, case["standard"], x1, x2, rank)
    for name, one in wanted.items():
        got = np.asarray(found[name]())
        if list(got.shape) != one["shape"]:
            return np.inf
        part = entries(got)
        off = np.abs(part - values[one["from"] : one["from"] + len(part)]).max()
        worst = max(worst, float(off) / max(one["largest"], 1e-300))
    return worst
