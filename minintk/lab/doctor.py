"""Report what this machine provides, what minintk uses, and what is broken: `minintk doctor`."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from timeit import repeat

import numpy as np
from threadpoolctl import threadpool_info

import minintk
from minintk.arrays import available_memory, device_namespace
from minintk.cores import cores
from minintk.progress import progress_of

NEEDED = (
    "minintk", "numpy", "scipy", "matplotlib", "array_api_compat", "threadpoolctl", "filelock", "rich", "jinja2",
    "lazy_loader",
)  # fmt: skip
EXTRAS = {"cupy": "gpu", "numba": "fast", "pooch": "data", "sklearn": "sklearn", "pandas": "tables"}
"""{package: the extra of minintk that installs it}"""

Finding = tuple[str, str, bool]
"""The item, what was found, and True if the item is broken."""


def examine() -> Iterator[Finding]:
    """Yield all findings, in the order of the report.

    >>> next(finding for finding in examine() if finding[0] == "minintk")[1] == minintk.__version__
    True
    """
    yield "Python", f"{platform.python_version()} on {platform.platform()}", False
    yield from map(package, (*NEEDED, *EXTRAS))
    yield analytic()
    yield "cores", f"{cores()} of {os.cpu_count()}", False
    yield "memory", f"{available_memory(np) / 1e9:.3g} GB free", False
    pools = {f"{pool['internal_api']} {pool['version']}, {pool['num_threads']} threads" for pool in threadpool_info()}
    yield "threads of", "; ".join(sorted(pools)) or "no library that is known", False
    a = np.ones((1500, 1500), np.float32)
    product, copy = (2e-9 / min(repeat(work, number=1)) for work in (lambda: a @ a, a.copy))
    yield "speed", f"a product {product * 1500**3:.0f} GFLOP/s in float32, a copy {copy * a.nbytes:.0f} GB/s", False
    yield gpu()
    yield folder("current folder", Path.cwd())
    yield folder("temporary files", Path(tempfile.gettempdir()))
    yield folder("cache", Path(import_module("pooch").os_cache("minintk") if find_spec("pooch") else Path.home()))


def package(name: str) -> Finding:
    """Report a package's version.  The package is broken if it does not load, or if it is missing and required."""
    try:
        return name, str(getattr(import_module(name), "__version__", None) or version(name)), False
    except Exception as error:  # extension modules can raise anything
        if name in EXTRAS and find_spec(name) is None:
            return name, f"not installed: pip install 'minintk[{EXTRAS[name]}]'", False
        return name, f"does not load, {type(error).__name__}: {error}", True


def analytic() -> Finding:
    """Report where Python finds the package `analytic`.  A package of another distribution counts as broken."""
    spec, ours = find_spec("analytic"), Path(minintk.__file__).parents[1] / "analytic" / "__init__.py"
    problem = minintk.other_analytic()
    if problem is None and (spec is None or spec.origin != str(ours)):
        problem = f"expected {ours} first on sys.path, got {spec and spec.origin}: rename that, or start elsewhere"
    return "analytic", problem or str(ours.parent), problem is not None


def gpu() -> Finding:
    """Report the GPU's free memory, or why it is not used.  It counts as broken if CuPy is installed but unusable."""
    try:
        free = available_memory(device_namespace("gpu")) / 1e9
    except RuntimeError as error:
        return "GPU", f"not used: {error}", find_spec("cupy") is not None
    return "GPU", f"used for arrays of CuPy and with --device gpu; {free:.3g} GB free", False


def folder(what: str, place: Path) -> Finding:
    """Report the folder `place`, or its closest existing parent.  A folder that is not writable counts as broken."""
    place = next(one for one in (place, *place.parents) if one.exists())
    try:
        with tempfile.TemporaryFile(dir=place):
            return what, str(place), False
    except OSError as error:
        return what, f"{place} cannot be written to: {error.strerror}", True


def compile_loops() -> int:
    """Compile every loop for float32 and float64, unless the compiled loop is already on disk.

    Returns the number of compilation tasks: 0 without Numba, or if the folders that define loops were deleted.
    """
    works = list[Callable[[], object]]()
    for room in ("minintk.fast.accelerate", "analytic.fast.accelerate"):
        with suppress(ModuleNotFoundError):
            works += import_module(room).works()
    with progress_of("compiling", len(works), shown=bool(works)) as advance:
        for work in works:
            work()
            advance(1)
    return len(works)
