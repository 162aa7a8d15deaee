"""What this machine has for minintk, what will be used of it, and what is broken: the command `minintk doctor`."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import matplotlib
import numpy as np
from threadpoolctl import threadpool_info

import minintk
from minintk.arrays import available_memory, device_namespace
from minintk.fast.threads import cores

EXTRAS = {"cupy": "gpu", "numba": "fast", "pooch": "data", "sklearn": "sklearn", "pandas": "tables"}
"""The extra that brings each package."""

Finding = tuple[str, str, bool]
"""What was looked at, what was found, whether it is broken."""


def examine() -> Iterator[Finding]:
    """All findings, in the order of the report.

    >>> next(finding for finding in examine() if finding[0] == "minintk")[1] == minintk.__version__
    True
    """
    yield "Python", f"{platform.python_version()} on {platform.platform()}", False
    for name in (
        "minintk",
        "numpy",
        "scipy",
        "matplotlib",
        "array_api_compat",
        "threadpoolctl",
        "filelock",
        "rich",
        *EXTRAS,
    ):
        yield package(name)
    yield analytic()
    yield "cores", f"{cores()} of {os.cpu_count()}", False
    yield "memory", f"{available_memory(np) / 1e9:.3g} GB free", False
    pools = {f"{pool['internal_api']} {pool['version']}, {pool['num_threads']} threads" for pool in threadpool_info()}
    yield "threads of", "; ".join(sorted(pools)) or "no library that is known", False
    a = np.ones((1500, 1500), np.float32)
    product, copy = 2e-9 * 1500**3 / quickest(lambda: a @ a), 2e-9 * a.nbytes / quickest(a.copy)
    yield "speed", f"a product {product:.0f} GFLOP/s in float32, a copy {copy:.0f} GB/s", False
    yield gpu()
    for what, folder in ("current folder", "."), ("temporary files", tempfile.gettempdir()), ("cache", cache()):
        yield what, *writable(folder)


def package(name: str) -> Finding:
    """Its version; broken where it does not load, and it may be missing only where it is an extra's."""
    try:
        return name, str(getattr(import_module(name), "__version__", None) or version(name)), False
    except Exception as error:  # whatever an extension module raises
        if name in EXTRAS and find_spec(name) is None:
            return name, f"not installed: pip install 'minintk[{EXTRAS[name]}]'", False
        return name, f"does not load, {type(error).__name__}: {error}", True


def analytic() -> Finding:
    """Where Python finds the package; broken where that is not this distribution's."""
    if (problem := minintk.other_analytic()) is not None:
        return "analytic", problem, True
    spec, ours = find_spec("analytic"), Path(minintk.__file__).parents[1] / "analytic" / "__init__.py"
    if spec is not None and spec.origin is not None and Path(spec.origin) == ours:
        return "analytic", str(ours.parent), False
    got = "nothing" if spec is None else f"{spec.origin or spec.submodule_search_locations}, first on sys.path: move it"
    return "analytic", f"expected {ours}, got {got}", True


def gpu() -> Finding:
    """Its free memory, or why it is not used; broken where CuPy is installed all the same."""
    try:
        free = available_memory(device_namespace("gpu")) / 1e9
    except RuntimeError as error:
        return "GPU", f"not used: {error}", find_spec("cupy") is not None
    return "GPU", f"used for arrays of CuPy and with --device gpu; {free:.3g} GB free", False


def cache() -> str:
    """The folder that downloads go to, as far as it exists, or where Matplotlib keeps its fonts."""
    place = Path(import_module("pooch").os_cache("minintk") if find_spec("pooch") else matplotlib.get_cachedir())
    return str(next(folder for folder in (place, *place.parents) if folder.exists()))


def writable(folder: str) -> tuple[str, bool]:
    """The folder, and whether nothing can be written there."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return str(Path(folder).resolve()), False
    except OSError as error:
        return f"{folder} cannot be written to: {error.strerror}", True


def quickest(work: Callable[[], object]) -> float:
    """Seconds of the fastest of five runs."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
