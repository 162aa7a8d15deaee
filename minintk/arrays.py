"""Select the array library of the caller's arrays, and implement operations that differ between NumPy and CuPy.

Code for both libraries uses only the namespace of its arrays (`array_namespace`).  Only this file imports CuPy.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from math import isfinite
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

Array = np.ndarray[tuple[int, ...], Any]
"""A NumPy or CuPy array.  Type checkers treat it as a NumPy array, and accept CuPy arrays because CuPy is untyped."""

Host = np.ndarray[Any, Any]
"""A NumPy array."""

SCIPY = {"numpy": "scipy", "cupy": "cupyx.scipy"}
"""The package that provides the special functions and solvers for each array library."""
STRIDES = {"numpy": "numpy.lib.stride_tricks", "cupy": "cupy.lib.stride_tricks"}
"""The module that provides `as_strided` for each array library."""


def array_namespace(*arrays: Array) -> Any:
    """Return the namespace `xp` of the arrays' library: NumPy, or the CuPy wrapper of array-api-compat.

    Raises TypeError if NumPy and CuPy arrays are mixed, or if an argument is neither a NumPy nor a CuPy array.

    >>> array_namespace(np.ones(3)).__name__
    'numpy'
    """
    for a in arrays:
        if not isinstance(a, (np.ndarray, np.generic)):
            break
    else:
        if arrays:
            return np
    import array_api_compat

    try:
        xp = array_api_compat.array_namespace(*arrays)  # ignores None and Python numbers
        if all(hasattr(a, "dtype") for a in arrays) and xp.__name__.removeprefix("array_api_compat.") in SCIPY:
            return xp
        raise TypeError(f"arrays of {xp.__name__}")
    except TypeError as error:
        names = sorted({f"{type(a).__module__.partition('.')[0]}.{type(a).__name__}" for a in arrays})
        remedy = "move them to one side, numpy.asarray(...) or cupy.asarray(...); from others, cupy.from_dlpack(...)"
        raise TypeError(f"expected arrays of one library, NumPy or CuPy, got {', '.join(names)}: {remedy}") from error


def library(xp: Any) -> str:
    """Return the name of the library, "numpy" or "cupy".

    >>> library(array_namespace(np.ones(3)))
    'numpy'
    """
    return str(xp.__name__).rpartition(".")[2]


def on_host(xp: Any) -> bool:
    """Return True if arrays of this namespace live in host memory, where threads can share them."""
    return xp is np or library(xp) == "numpy"


def scipy_module(xp: Any, name: str) -> ModuleType:
    """Return the module `name` (e.g. "special") of SciPy for NumPy arrays, or of cupyx.scipy for CuPy arrays."""
    return import_module(f"{SCIPY[library(xp)]}.{name}")


def to_host(a: Array | float) -> np.ndarray[Any, Any]:
    """Return `a` as a NumPy array.  Arrays on the GPU are copied to the host."""
    return a.get() if hasattr(a, "get") else np.asarray(a)


def own(a: Array) -> Array:
    """Return a copy of `a` that does not change if the caller overwrites `a`.

    >>> a = np.zeros(2)
    >>> b = own(a)
    >>> a += 1
    >>> b
    array([0., 0.])
    """
    return array_namespace(a).asarray(a, copy=True)


def to_library(a: Array, xp: Any) -> Array:
    """Return the host array `a` as an array of `xp`."""
    return xp.asarray(a)


def device_namespace(device: str) -> Any:
    """Return the namespace for ``"cpu"`` or ``"gpu"``.  Raise RuntimeError, with advice, if no GPU can be used."""
    if device == "cpu":
        return array_namespace(np.empty(0))
    if device != "gpu":
        raise ValueError(f"device expects 'cpu' or 'gpu', got {device!r}")
    try:
        one = import_module("cupy").zeros(1) + 1  # tests that a kernel can be compiled
        import_module("cupyx.scipy.linalg")  # loads CUDA's libraries, which `import cupy` does not load
        return array_namespace(one)
    except Exception as error:  # includes CUDA's own errors
        what = f"device 'gpu' needs CuPy, CUDA's libraries and an NVIDIA GPU ({type(error).__name__}: {error})"
        raise RuntimeError(f"{what}: {_gpu_remedy(error)}, or use device 'cpu'") from error


def _gpu_remedy(error: Exception) -> str:
    """Return advice on the part that is missing: a Python package, CUDA's libraries, or a GPU and its driver."""
    extras = "pip install 'minintk[gpu]' (a driver for CUDA 12) or 'minintk[gpu13]' (CUDA 13)"
    if isinstance(error, ModuleNotFoundError):
        package = str(error.name).partition(".")[0]
        return extras if package in ("cupy", "cupyx") else f"pip install {package.replace('_', '-')}"
    if any(word in str(error) for word in (".so", ".dll", "CUDA_PATH", "toolkit")):
        return f"CUDA's libraries are not installed beside CuPy; they come with {extras}"
    return "nvidia-smi has to list a GPU, and a driver new enough for this CuPy"


def available_memory(xp: Any) -> int:
    """Return the number of bytes still available for arrays of `xp`, or 2**62 if the system does not report it.

    For host arrays, the limits of control groups are respected; for the current GPU, CuPy's memory limit.
    """
    if library(xp) == "cupy":
        free, _total = import_module("cupy").cuda.runtime.memGetInfo()
        pool = import_module("cupy").get_default_memory_pool()
        most = int(pool.get_limit()) or 2**62
        return min(int(free) + int(pool.free_bytes()), max(0, most - int(pool.used_bytes())))
    return min(free_host_memory(), free_in_groups())


def free_host_memory(meminfo: str | Path = "/proc/meminfo") -> int:
    """Return this machine's free memory in bytes, or its total memory on macOS, or 2**62 if neither is known."""
    try:
        fields = dict(line.split(":") for line in Path(meminfo).read_text(encoding="ascii").splitlines())
        return 1024 * int(fields["MemAvailable"].split()[0])
    except (OSError, KeyError):  # not Linux
        pass
    if sys.platform == "win32":
        status = (ctypes.c_uint64 * 8)()  # dwLength, dwMemoryLoad, ullTotalPhys, ullAvailPhys and five more fields
        status[0] = ctypes.sizeof(status)
        return int(status[2]) if ctypes.windll.kernel32.GlobalMemoryStatusEx(status) else 2**62
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 2**62


LIMITS = {
    "cgroup2": (("memory.max", "memory.high"), "memory.current", "inactive_file"),
    "cgroup": (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"),
}
"""For each kind of control group: names of its limit files, its usage file, and the cache's entry in memory.stat."""


def free_in_groups(root: str | Path = "/") -> int:
    """Return how many bytes the process's control groups (containers, SLURM) still allow, or 2**62 without a limit.

    A limit also applies to inner groups, so the smallest remaining amount is returned.  root : the file system's root.
    """
    free = 2**62
    for group, files, usage, cached in limited_groups(str(root)):
        limit = min((n for n in map(read_number, files) if n is not None), default=2**62)
        used = (read_number(usage) or 0) - (read_number(group / "memory.stat", cached) or 0)
        free = min(free, max(0, limit - max(0, used)))
    return free


@lru_cache
def limited_groups(root: str) -> tuple[tuple[Path, list[Path], Path, str], ...]:
    """Return (folder, limit files, usage file, cache entry) for each group with a limit.  The result is cached."""
    found = []
    for kind, group in control_groups(root, "memory"):
        limits, usage, cache = LIMITS[kind]
        files = [group / name for name in limits if (read_number(group / name) or 2**62) < 2**60]
        if files:
            found.append((group, files, group / usage, cache))
    return tuple(found)


def control_groups(root: str, controller: str) -> list[tuple[str, Path]]:
    """Return (kind, folder) of all nested control groups that can limit this process's "memory" or "cpu"."""
    found: list[tuple[str, Path]] = []
    try:
        mounts = [line.split() for line in (Path(root) / "proc/self/mountinfo").read_text().splitlines()]
        lines = [line.split(":", 2) for line in (Path(root) / "proc/self/cgroup").read_text().splitlines()]
    except OSError:  # not Linux
        return []
    for fields in mounts:
        kind, *_, options = fields[fields.index("-") + 1 :]
        if kind not in LIMITS or (kind == "cgroup" and controller not in options.split(",")):
            continue
        owner = controller if kind == "cgroup" else ""
        for _, names, path in lines:
            if owner not in names.split(","):
                continue
            inside = os.path.relpath(path, fields[3])  # a container sees only part of the tree
            parts = () if inside.startswith("..") else Path(inside).parts
            top = Path(root) / fields[4].lstrip("/")
            found += [(kind, top.joinpath(*parts[:n])) for n in range(len(parts) + 1)]
    return found


def read_number(path: Path, name: str | None = None) -> int | None:
    """Return the number in a file, or in its line that begins with `name`; None for "max" or a missing entry."""
    text = text_of(path)
    try:
        return int(dict(line.split() for line in text.splitlines())[name] if name else text)
    except (ValueError, KeyError):
        return None


def text_of(path: Path) -> str:
    """Return the text of a small file, or "" if the file is missing or unreadable."""
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""


def check_floating(name: str, a: Array) -> None:
    """Raise TypeError unless `a` is a float32 or float64 array that is neither masked nor a numpy.matrix.

    Raises ValueError if a CuPy array is not on the current GPU, which is where results are allocated.
    """
    try:
        array_namespace(a)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    if type(a) is not np.ndarray and isinstance(a, np.matrix):  # * is its matrix product, and its slices are matrices
        raise TypeError(f"{name} expects an array, got a numpy.matrix: convert it, numpy.asarray({name})")
    if isinstance(a, np.ma.MaskedArray):  # NumPy's sums skip masked values, but networks would use them
        remedy = f"fill it, {name}.filled(0.0), or leave out the examples with masked entries"
        raise TypeError(f"{name} expects numbers without a mask, got a numpy.ma.MaskedArray: {remedy}")
    if a.dtype not in (np.float32, np.float64):
        labels = "numpy.eye(C)[y] for labels of C classes, or " if name == "y" and a.ndim == 1 else ""
        how = f"convert it, {labels}{name}.astype(numpy.float64)"
        raise TypeError(f"{name} expects float32 or float64, got {a.dtype}: {how}")
    device: Any = None if type(a) is np.ndarray else getattr(a, "device", None)
    if hasattr(device, "id") and device.id != (current := type(device)().id):  # Device() is the current device
        what = f"an array on GPU {current}, the current one, got one on GPU {device.id}"
        raise ValueError(f"{name} expects {what}: call within `with cupy.cuda.Device({device.id}):`")


def check_finite(name: str, a: Array) -> None:
    """Raise ValueError if `a` contains a NaN or an infinity.  The message gives the index of the first such entry."""
    if not finite(a):
        xp = array_namespace(a)
        bad = ~xp.isfinite(a)
        where = tuple(int(i) for i in np.unravel_index(int(xp.argmax(bad)), a.shape))
        what = f"{int(xp.sum(bad))} values that are NaN or infinite, the first at index {where}"
        raise ValueError(f"{name} holds {what}: clean the data before using it")


def check_finite_by(result: Array, name: str, a: Array) -> None:
    """Raise ValueError if `result`, computed from `a`, is not finite because `a` contains a NaN or an infinity.

    To save time, `a` is checked only if `result` is not finite.  CuPy arrays are not checked.
    """
    if on_host(array_namespace(result)) and not finite(result):  # a check would have to wait for the GPU
        check_finite(name, a)


def finite(a: Array) -> bool:
    """True if no entry of `a` is NaN or infinite.  A second pass over `a` is needed only if its sum is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return isfinite(float(a.sum())) or bool(array_namespace(a).isfinite(a).all())


def check_examples(name: str, x: Array, shape: Sequence[int] | None = None) -> None:
    """Raise TypeError or ValueError unless x : (N, *shape) contains finite floats.  shape=None allows (N, d, ...)."""
    check_floating(name, x)
    if x.ndim < 2 or (shape is not None and tuple(x.shape[1:]) != tuple(shape)):
        want = f"(N, {', '.join(map(str, shape))})" if shape is not None else "(N, d)"
        hint = ""
        if shape is not None and tuple(x.shape) == tuple(shape):
            hint = f": a single example needs a leading axis, {name}[None]"
        elif shape is not None and len(shape) > 1 and tuple(x.shape[1:]) == (shape[-1], *shape[:-1]):
            back = ", ".join(map(str, (0, *range(2, len(shape) + 1), 1)))
            hint = f", channels first: move the axis, {name}.transpose({back})"
        raise ValueError(f"{name} expects shape {want}, got {tuple(x.shape)}{hint}")
    check_finite(name, x)


def matmul_into(a: Array, b: Array, out: Array) -> None:
    """Write a @ b to out[...], without a temporary array if possible.  `out` must not overlap `a` or `b`.

    >>> a, out = np.eye(2), np.zeros((2, 3))
    >>> matmul_into(a, a, out[:, :2])
    >>> out
    array([[1., 0., 0.],
           [0., 1., 0.]])
    """
    if on_host(xp := array_namespace(a, b, out)) or out.flags.c_contiguous:  # CuPy writes only to contiguous arrays
        xp.matmul(a, b, out=out)
    else:
        out[...] = a @ b


def rows_times(x: Array, W: Array) -> Array:
    """Return x W : (..., N, n) for x : (..., N, d).  If W has two axes, (d, n), compute a single matrix product."""
    if W.ndim > 2 or x.ndim == 2:
        return x @ W
    return (x.reshape((-1, x.shape[-1])) @ W).reshape((*x.shape[:-1], W.shape[-1]))


def strided(a: Array, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """Return a view of `a` with the given strides in bytes.  Bounds are checked only for C-contiguous NumPy arrays.

    >>> a = np.arange(4.0)
    >>> strided(a, (3, 2), (8, 8))
    array([[0., 1.],
           [1., 2.],
           [2., 3.]])
    """
    xp = array_namespace(a)
    if isinstance(a, np.ndarray) and a.flags.c_contiguous:  # ten times as fast as as_strided, and checks the bounds
        return np.ndarray(tuple(shape), a.dtype, a, 0, tuple(strides))
    return import_module(STRIDES[library(xp)]).as_strided(a, tuple(shape), tuple(strides))


@lru_cache
def raw_kernel(xp: Any, name: str, source: str) -> Callable[..., None] | None:
    """Return launch(blocks, threads, arguments, bytes of shared memory) for a CUDA kernel, or None for NumPy."""
    make = getattr(import_module(library(xp)), "RawKernel", None)
    if make is None:
        return None
    kernel = make(source, name)

    def launch(blocks: tuple[int, ...], threads: int, arguments: tuple[Any, ...], memory: int) -> None:
        if memory > 48 * 1024:  # more than CUDA's default limit
            kernel.max_dynamic_shared_size_bytes = memory
        kernel(blocks, (threads,), arguments, shared_mem=memory)

    return launch


def block_memory(xp: Any) -> int:
    """Return how many bytes of shared memory a thread block can use, or 0 for NumPy."""
    if library(xp) != "cupy":
        return 0
    return int(import_module("cupy").cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"])
