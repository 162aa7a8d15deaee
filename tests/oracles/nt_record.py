"""Record kernels that neural-tangents' own tests request, and compute them with neural-tangents in float64.

    python tests/oracles/nt_record.py CHECKOUT OUT.npz [MODULE ...]        a few hours of one core

CHECKOUT is a checkout of google/neural-tangents, whose folder `tests` is imported. The environment needs
neural-tangents 0.6.5, jax 0.4.30, NumPy 1 and absl, but not minintk. While the tests run, recorders replace the layers
of stax, so no kernel is computed, nor any Monte Carlo estimate. Cases that the tests skip for speed run too (per test,
at most MOST and SECONDS). Then stax's layers compute each distinct network's kernels. OUT.npz contains `cases` (JSON:
networks, tests, errors) and each case's arrays, e.g. "x1 7", "x2 7", "nngp 7", "ntk 7". `nt_translate.py` reads it.
"""

from __future__ import annotations

import collections
import enum
import functools
import inspect
import json
import os
import random
import sys
import time
import unittest
from collections.abc import Callable
from typing import Any

import numpy as np

MODULES = [f"stax.{name}_test" for name in ("stax", "elementwise", "branching", "combinators", "requirements")]
MODULES += ["predict_test", "monte_carlo_test", "batching_test"]
MOST, SECONDS = 120, 60.0
"""Limits for each test: the number of parametrisations, drawn at random, and the seconds after which none starts."""
COMPOUND = "serial", "parallel"
Json = dict[str, Any]
Case = dict[str, Any]

cases: dict[str, Case] = {}
test_now = ""


def plain(value: Any) -> Any:
    """Return a network's arguments as JSON data. Functions become their names, and small arrays become lists."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, int | float | str | type(None)):
        return value
    if hasattr(value, "shape"):
        a = np.asarray(value)
        return {"array": a.tolist() if a.size < 4000 else "large", "shape": list(a.shape)}
    return {"function": getattr(value, "__name__", repr(value)), "of": repr(value)}


def shown(name: str, x1: Any, x2: Any) -> Any:
    """Return a placeholder (zeros or a shape) for the attribute `name` of a kernel, or None if the name is unknown."""
    n, m = (np.shape(x)[0] if np.ndim(x) else 1 for x in (x1, x1 if x2 is None else x2))
    found = {"nngp": (n, m), "ntk": (n, m), "cov1": (n,), "cov2": (m,)}
    return {"shape1": (n, 10), "shape2": (m, 10)}.get(name) or (np.zeros(found[name]) if name in found else None)


class Kernel:
    """A stand-in for a kernel, which other kernel functions accept as an input."""

    def __init__(self, network: Json, x1: Any, x2: Any, options: Json) -> None:
        self.network, self.x1, self.x2, self.options = network, x1, x2, options

    def replace(self, **changes: Any) -> Kernel:
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return shown(name, self.x1, self.x2)


def recorded(network: Json, x1: Any, x2: Any, options: Json) -> None:
    """Add a case, unless the network has already been recorded with equal options and with inputs of equal shapes."""
    several = isinstance(x1, tuple | list) or isinstance(x2, tuple | list)
    shapes = "several inputs" if several else (np.shape(x1), None if x2 is None else np.shape(x2))
    more = sorted(k for k, v in options.items() if v is not None and k in ("mask_constant", "pattern", "pos_emb"))
    key = json.dumps([plain(network), shapes, more], sort_keys=True)
    if key in cases:
        cases[key]["times"] += 1
        return
    case: Case = {"network": network, "test": test_now, "times": 1, "options": more}
    if several:
        case["error"] = "several inputs"
    else:
        case |= {name: np.asarray(x, np.float64) for name, x in (("x1", x1), ("x2", x2)) if x is not None}
    cases[key] = case


def triple(network: Json) -> tuple[Any, Any, Any]:
    """Return stand-ins for a network's init_fn, apply_fn and kernel_fn, the last of which records the network."""

    def init_fn(rng: Any = None, input_shape: Any = (4, 4), *rest: Any, **options: Any) -> Any:
        return (input_shape[0], 10), ()

    def apply_fn(params: Any = None, inputs: Any = None, *rest: Any, **options: Any) -> Any:
        return np.zeros((np.shape(inputs)[0], 10))

    def kernel_fn(x1: Any, x2: Any = None, get: Any = None, **options: Any) -> Any:
        whole = network
        if isinstance(x1, Kernel):
            whole = {"layer": "serial", "layers": (x1.network, network)}
            x1, x2, options = x1.x1, x1.x2, {**x1.options, **options}
        recorded(whole, x1, x2, options)
        if get is None:
            return Kernel(whole, x1, x2, options)
        if isinstance(get, str):
            return shown(get, x1, x2)
        return collections.namedtuple("Found", get)(*(shown(one, x1, x2) for one in get))

    kernel_fn.network = network  # type: ignore[attr-defined]
    return init_fn, apply_fn, kernel_fn


def of(layer: Any) -> Json:
    """Return the network that a triple records, or a placeholder if the test defines the triple itself."""
    try:
        return layer[2].network
    except (AttributeError, TypeError, IndexError):
        return {"layer": "own", "what": repr(layer)[:60]}


def recorder(name: str, layer: Callable[..., Any]) -> Callable[..., Any]:
    """Return a stand-in for a layer of stax. The stand-in records the arguments of the layer."""
    signature = inspect.signature(layer)
    return lambda *args, **kw: triple({"layer": name, **signature.bind(*args, **kw).arguments})


def run(checkout: str, modules: list[str], stax: Any, nt: Any, jax: Any) -> None:
    """Run the tests with recorders in place of the layers of stax, and restore the layers afterwards."""
    from absl import flags

    kept = {name: getattr(stax, name) for name in dir(stax)}
    others = jax.jit, nt.batch, nt.monte_carlo_kernel_fn
    for name, one in kept.items():
        if name[0].isupper() and inspect.isfunction(one):
            setattr(stax, name, recorder(name, one))
    for name in COMPOUND:
        setattr(stax, name, lambda *layers, _name=name: triple({"layer": _name, "layers": tuple(map(of, layers))}))
    stax.repeat = lambda layer, n: triple({"layer": "repeat", "layers": (of(layer),), "n": n})
    stax.unmask_fn = lambda function: function
    nt.batch = lambda function, *rest, **kw: function
    nt.monte_carlo_kernel_fn = lambda *rest, **kw: lambda x1, x2=None, get="ntk", *a, **k: shown(str(get), x1, x2)
    jax.jit = lambda function=None, **kw: (lambda g: g) if function is None else function
    try:
        sys.path.insert(0, checkout)
        flags.FLAGS(["record"], known_only=True)
        for module in modules:
            run_module(module)
    finally:
        for name, one in kept.items():
            setattr(stax, name, one)
        jax.jit, nt.batch, nt.monte_carlo_kernel_fn = others


def run_module(module: str) -> None:
    """Run up to MOST parameter sets of each test in a module."""
    global test_now
    importlib = __import__("importlib")
    importlib.import_module("tests.test_utils").skip_test = lambda *rest, **kw: None
    found, rng = importlib.import_module(f"tests.{module}"), random.Random(0)
    groups = collections.defaultdict(list)
    for cls in vars(found).values():
        if isinstance(cls, type) and issubclass(cls, unittest.TestCase) and cls.__module__ == found.__name__:
            for name in unittest.defaultTestLoader.getTestCaseNames(cls):
                groups[cls.__name__, name.rstrip("0123456789")].append((cls, name))
    for (cls_name, test), members in groups.items():
        start, before = time.monotonic(), len(cases)
        for cls, name in rng.sample(members, min(len(members), MOST)):
            if time.monotonic() - start < SECONDS:
                test_now = f"{module}.{cls_name}.{name}"
                cls(name).run(unittest.TestResult())  # assertions can fail, because recorders return zeros
        sys.stdout.write(f"{module}.{cls_name}.{test}: {len(members)}, {len(cases) - before} new\n")


def built(network: Any, stax: Any) -> Any:
    """Return the stax triple that a recorded network represents. Return arguments that are not layers unchanged."""
    if not isinstance(network, dict) or "layer" not in network:
        return network
    rest = {key: value for key, value in network.items() if key != "layer"}
    layers = [built(one, stax) for one in rest.pop("layers", ())]
    return getattr(stax, network["layer"])(*layers, **rest)


def compute(case: Case, stax: Any) -> None:
    """Compute the kernels of a case. Add nngp, ntk and the order of their axes to the case, or the error message."""
    if "error" in case or case["options"]:
        return
    get = ("nngp", "ntk", "is_reversed")
    try:
        found = built(case["network"], stax)[2](case["x1"], case.get("x2"), get)
        case |= {name: np.asarray(one) for name, one in zip(get, found) if one is not None and name != "is_reversed"}
        case["is_reversed"] = bool(found[2])
    except Exception as error:
        case["error"] = f"{type(error).__name__}: {error}"[:150]


def save(path: str) -> None:
    """Write all cases to an .npz file, as JSON and arrays."""
    arrays, texts = dict[str, Any](), list[Any]()
    for i, case in enumerate(cases.values()):
        arrays |= {f"{name} {i}": one for name, one in case.items() if isinstance(one, np.ndarray)}
        texts.append(plain({name: one for name, one in case.items() if not isinstance(one, np.ndarray)}))
    np.savez_compressed(path, cases=np.frombuffer(json.dumps(texts).encode(), np.uint8), **arrays)


def main(checkout: str, out: str, *modules: str) -> None:
    """Record the cases, compute the kernels of each case, and save both."""
    os.environ.update(JAX_PLATFORMS="cpu", NT_NUM_GENERATED_CASES="1000000")
    import jax
    import jax._src.source_info_util
    from jax.interpreters import ad

    for name, one in (("source_info_util", jax._src.source_info_util), ("config", jax.config)):
        setattr(ad, name, getattr(ad, name, one))  # neural-tangents 0.6.5 expects the attributes in `ad`
    import neural_tangents as nt
    from neural_tangents import stax

    run(checkout, list(modules) or MODULES, stax, nt, jax)
    jax.config.update("jax_enable_x64", True)
    for i, case in enumerate(cases.values()):
        compute(case, stax)
        if i % 20 == 0:
            sys.stdout.write(f"computed {i} of {len(cases)}\n")
    save(out)


if __name__ == "__main__":
    functools.partial(main, *sys.argv[1:])()
