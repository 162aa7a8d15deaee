"""Arrays: which library the caller's arrays belong to, and the few places where libraries differ.

Everything numerical asks its arrays for their namespace (`array_namespace`) and stays in it: NumPy in, NumPy
out; CuPy in, CuPy out, on the GPU from end to end.  This is the only module that names CuPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from threading import local
from types import ModuleType
from typing import Any

import numpy as np

Array = Any
"""An array of NumPy, CuPy or a library that follows them."""

SCIPY = {"numpy": "scipy", "cupy": "cupyx.scipy"}
"""Where each array library keeps its special functions and solvers."""

STRIDES = {"numpy": "numpy.lib.stride_tricks", "cupy": "cupy.lib.stride_tricks"}
"""Where each array library keeps `as_strided`."""


def array_namespace(*arrays: Array) -> Any:
    """The namespace `xp` of the arrays' library; TypeError where they are of two libraries, or no arrays.

    NumPy's own, which follows the array API standard; for other libraries, array-api-compat's.

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
        return array_api_compat.array_namespace(*arrays)
    except TypeError as error:
        names = sorted({f"{type(a).__module__.partition('.')[0]}.{type(a).__name__}" for a in arrays})
        raise TypeError(
            f"expected arrays of one library, NumPy or CuPy, got {', '.join(names)}: "
            "move them to one side first, numpy.asarray(...) or cupy.asarray(...)"
        ) from error


def library(xp: Any) -> str:
    """The library's own name, "numpy" or "cupy".

    >>> library(array_namespace(np.ones(3)))
    'numpy'
    """
    return str(xp.__name__).rpartition(".")[2]


def on_host(xp: Any) -> bool:
    """Whether arrays of this namespace live in the host's memory, where threads can share them."""
    return xp is np or library(xp) == "numpy"


def scipy_module(xp: Any, name: str) -> ModuleType:
    """SciPy's module `name` ("special", "linalg") for arrays of `xp`: cupyx.scipy on the GPU."""
    return import_module(f"{SCIPY[library(xp)]}.{name}")


def to_host(a: Array) -> np.ndarray[Any, Any]:
    """The array in NumPy, copied from the GPU where it is there; for figures, tables and files."""
    return a.get() if hasattr(a, "get") else np.asarray(a)


def to_library(a: Array, xp: Any) -> Array:
    """The host array `a` as an array of `xp`."""
    return xp.asarray(a)


def device_namespace(device: str) -> Any:
    """The namespace for ``"cpu"`` or ``"gpu"``; RuntimeError with the remedy where there is no GPU."""
    if device == "cpu":
        return array_namespace(np.empty(0))
    if device != "gpu":
        raise ValueError(f"device expects 'cpu' or 'gpu', got {device!r}")
    try:
        cupy = import_module("cupy")
        return array_namespace(cupy.zeros(1))
    except Exception as error:  # CuPy missing, no driver, no device: one remedy for all
        raise RuntimeError(
            f"device 'gpu' needs CuPy and an NVIDIA GPU ({type(error).__name__}: {error}): "
            "pip install 'minintk[gpu]', or use device 'cpu'"
        ) from error


def available_memory(xp: Any) -> int:
    """Bytes that can still be allocated where `xp` keeps its arrays (2**62 where nobody says)."""
    if library(xp) == "cupy":
        free, _total = import_module("cupy").cuda.runtime.memGetInfo()
        return int(free) + int(import_module("cupy").get_default_memory_pool().free_bytes())
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            fields = dict(line.split(":") for line in lines)
        return 1024 * int(fields["MemAvailable"].split()[0])
    except (OSError, KeyError):  # not Linux
        return 2**62


def check_floating(name: str, a: Array) -> None:
    """TypeError unless `a` is an array of real floating-point numbers."""
    array_namespace(a)
    if str(a.dtype) not in ("float32", "float64"):
        raise TypeError(f"{name} expects float32 or float64, got {a.dtype}: convert it, {name}.astype(numpy.float64)")


def check_finite(name: str, a: Array) -> None:
    """ValueError if `a` holds a NaN or an infinity, with its first place."""
    xp = array_namespace(a)
    with np.errstate(over="ignore", invalid="ignore"):
        total = xp.sum(a)
    if not bool(xp.isfinite(total)):  # one cheap pass; a sum that only overflowed is cleared below
        bad = ~xp.isfinite(a)
        if bool(xp.any(bad)):
            where = tuple(int(i) for i in np.unravel_index(int(xp.argmax(bad)), a.shape))
            raise ValueError(
                f"{name} holds {int(xp.sum(bad))} values that are NaN or infinite, the first at index {where}: "
                "clean the data before using it"
            )


def check_examples(name: str, x: Array, shape: Sequence[int] | None = None) -> None:
    """Check a batch of examples `x : (N, *shape)`: floating, finite, and of the shape expected where one is."""
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


def cache_slices(a: Array, size: int = 2**17) -> list[slice]:
    """The last axis of `a` in pieces that stay in a core's cache through several passes; one piece on the GPU."""
    if not on_host(array_namespace(a)):
        return [slice(0, a.shape[-1])]
    step = max(1, size // max(1, math.prod(a.shape[:-1])))
    return [slice(i, min(i + step, a.shape[-1])) for i in range(0, a.shape[-1], step)]


def strided(a: Array, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """A view of `a` that starts at its first number, with this shape and these strides in bytes; nothing is checked.

    >>> a = np.arange(4.0)
    >>> strided(a, (3, 2), (8, 8))
    array([[0., 1.],
           [1., 2.],
           [2., 3.]])
    """
    xp = array_namespace(a)
    if xp is np and a.flags.c_contiguous:  # a tenth of as_strided's time, and NumPy checks the bounds
        return np.ndarray(tuple(shape), a.dtype, a, 0, tuple(strides))
    return import_module(STRIDES[library(xp)]).as_strided(a, tuple(shape), tuple(strides))


ROW = 256
"""Numbers that NumPy's iterator takes at a time, where rows have gaps between them or broadcast."""


@contextmanager
def short_rows() -> Iterator[None]:
    """NumPy's ufuncs on rows of some hundred numbers at full speed, inside, in this thread.

    NumPy copies rows shorter than its buffer of 8192 numbers into that buffer and back: three times the work.
    """
    before = np.setbufsize(ROW)
    try:
        yield
    finally:
        np.setbufsize(before)


def elementwise(xp: Any, name: str, inputs: str, outputs: str, body: str) -> Callable[..., Any] | None:
    """kernel(*inputs, *outputs), the C statements `body` for every entry, compiled where and when it is first called.

    None where the library compiles nothing: NumPy.

    inputs, outputs : declarations, "T a, T b", with T the arrays' type; inputs broadcast.
    """
    return _elementwise(library(xp), name, inputs, outputs, body)


@lru_cache
def _elementwise(library: str, name: str, inputs: str, outputs: str, body: str) -> Callable[..., Any] | None:
    make = getattr(import_module(library), "ElementwiseKernel", None)
    return None if make is None else make(inputs, outputs, body, f"minintk_{name}")


_kept: Any = local()


def scratch(like: Array, shape: Sequence[int], slot: str) -> Array:
    """An array of this shape to write into and be done with: the thread's next call may return the same slot's memory.

    Fresh memory costs more than a pass over it, page by page; on the GPU, and where it is large, it is fresh.
    """
    xp, bytes_ = array_namespace(like), math.prod(shape) * int(like.dtype.itemsize)
    if not on_host(xp) or bytes_ > 2**24:
        return xp.empty(tuple(shape), dtype=like.dtype)
    memory = _kept.__dict__.get(slot)
    if memory is None or memory.size < bytes_:
        memory = _kept.__dict__[slot] = np.empty(bytes_, np.uint8)
    return memory[:bytes_].view(like.dtype).reshape(shape)


def keep_freed_memory(like: Array) -> None:
    """From now on, memory that this process frees stays with it; for loops that take and free the same arrays.

    The C library of Linux gives back what is free above twice the size of the largest block that was freed so far (64
    MiB at most), and the next step gets the same pages anew, one by one and cleared.  So one such block is freed here,
    which nobody has touched.
    """
    if on_host(array_namespace(like)):
        np.empty(2**25 - 2**16, np.uint8)
