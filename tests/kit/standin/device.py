"""Define the device of the stand-in: an array class separate from NumPy's, and counts of operations.

The stand-in is meant to be at least as strict as CuPy, so that code that passes here also passes with CuPy.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np


@dataclass
class Counts:
    """Counts of events. A synchronisation or an upload stalls a GPU, and a launch costs microseconds."""

    synchronisations: int = 0
    uploads: int = 0
    launches: int = 0


_counts = Counts()


@contextmanager
def counting() -> Iterator[Counts]:
    """Count the device's events until the end of the `with` block.

    >>> a = ndarray(np.ones(3))
    >>> with counting() as counts:
    ...     total = float((a + a).sum())
    >>> total, counts
    (6.0, Counts(synchronisations=1, uploads=0, launches=2))
    """
    global _counts
    before, _counts = _counts, Counts()
    try:
        yield _counts
    finally:
        _counts = before


def synchronised() -> None:
    """Count one synchronisation of the host with the device."""
    _counts.synchronisations += 1


class Device:
    """The only device. Like CuPy's devices, this one is a context manager."""

    id = 0

    def __init__(self, device: Any = None) -> None:
        if device is not None and not isinstance(device, Device):
            raise ValueError(f"the stand-in has one device, got {device!r}")

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device)

    def __hash__(self) -> int:
        return 0


# ------------------------------------------------------------------------------------- across the border


def unwrap(value: Any, *, scalars: bool = True, sequences: bool = False) -> Any:
    """Return the NumPy array inside a device array. Allowed values without arrays are returned unchanged.

    A TypeError is raised for NumPy arrays, for NumPy scalars other than integers (or for all, without `scalars`), and
    for sequences of arrays unless `sequences` is True.
    """
    if isinstance(value, ndarray):
        return value._host
    if isinstance(value, np.ndarray):
        raise TypeError(f"a NumPy array {value.shape} among arrays of the device: move it there first, xp.asarray(...)")
    if isinstance(value, np.generic) and not (scalars and isinstance(value, np.integer)):
        raise TypeError(
            f"a NumPy scalar {value!r} among arrays of the device: it would set the dtype, take float(...) of it"
        )
    if isinstance(value, (tuple, list)):
        if not sequences and any(isinstance(item, ndarray) for item in value):
            raise TypeError(
                "a sequence of arrays where one is expected: CuPy would gather them one by one, use xp.stack"
            )
        return type(value)(unwrap(item, scalars=scalars, sequences=sequences) for item in value)
    if isinstance(value, dict):
        return {key: unwrap(item, scalars=scalars, sequences=sequences) for key, item in value.items()}
    return value


def wrap(value: Any) -> Any:
    """Convert a result of NumPy to a result on the device.

    Scalars become arrays of shape (), and named tuples become plain tuples.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        return ndarray(value)
    if isinstance(value, tuple):
        return tuple(wrap(item) for item in value)
    return [wrap(item) for item in value] if isinstance(value, list) else value


def on_device(
    f: Callable[..., Any],
    *,
    elementwise: bool = False,
    sequences: bool = False,
    syncs: int = 0,
    keywords: frozenset[str] | None = None,
) -> Callable[..., Any]:
    """Return NumPy's function f as a function on device arrays.

    elementwise : if True, all NumPy scalars raise TypeError. sequences : True if f takes tuples of arrays. syncs :
    the number of times that CuPy's version waits for the device. keywords : the keywords that CuPy supports, if fewer
    than NumPy's.
    """

    @wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if name in ("where", "initial") or (keywords is not None and name not in keywords):
                raise TypeError(f"CuPy's {f.__name__} has no keyword {name}=")
        out = kwargs.get("out")
        if out is not None and not isinstance(out, ndarray):
            raise TypeError(f"{f.__name__}(out=...) expects an array of the device, got {type(out).__name__}")
        if f.__name__ in ("matmul", "dot") and out is not None and not out.flags.c_contiguous:
            raise ValueError(f"CuPy's {f.__name__}(out=...) needs a C-contiguous array")
        _counts.launches += 1
        _counts.synchronisations += syncs
        host_args = (
            unwrap(args, scalars=not elementwise, sequences=True)
            if sequences
            else tuple(unwrap(a, scalars=not elementwise) for a in args)
        )
        host_kwargs = {name: unwrap(value, scalars=not elementwise) for name, value in kwargs.items()}
        with np.errstate(all="ignore"):  # a GPU does not warn
            result = f(*host_args, **host_kwargs)
        if out is not None:
            return out
        if isinstance(f, np.ufunc) and len(args) > f.nin:
            return args[f.nin]
        if isinstance(result, bool):  # CuPy's allclose and array_equal return an array without waiting
            return ndarray(np.asarray(result))
        return wrap(result)

    return function


UFUNC_KEYWORDS = frozenset({"out", "dtype", "casting"})


def _binary(apply: Callable[[Any, Any], Any], in_place: bool = False) -> Callable[[Any, Any], Any]:
    """Return a method for a + b, b + a or a += b that accepts only device arrays and Python numbers."""

    def method(self: ndarray, other: Any) -> Any:
        b = unwrap(other, scalars=False)
        if not isinstance(b, (np.ndarray, int, float, complex)):
            return NotImplemented
        _counts.launches += 1
        with np.errstate(all="ignore"):
            result = apply(self._host, b)
        return self if in_place else wrap(result)

    return method


def _swapped(apply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: apply(b, a)


# ------------------------------------------------------------------------------------------- the array


class ndarray:
    """An array on the device. The array has only CuPy's operators and methods, and only `get` converts it to NumPy.

    a.get(), a.item(), a.tolist(), float(a), int(a), bool(a), printing and indexing by a boolean mask wait for the
    device. These operations count as synchronisations.
    """

    __module__ = "standin"  # errors name the library by the module of a class

    __slots__ = ("_host",)
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, host: Any) -> None:
        self._host = np.asarray(host)
        if self._host.dtype.kind not in "biufc":
            raise TypeError(f"the device has no arrays of {self._host.dtype}")

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        from tests.kit.standin.namespace import xp

        return xp

    # Implicit conversions to NumPy raise TypeError

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("implicit conversion of a device array to NumPy: use minintk.arrays.to_host")

    def __array_ufunc__(self, ufunc: np.ufunc, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"numpy.{ufunc.__name__} on a device array: use xp.{ufunc.__name__}")

    def __array_function__(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"numpy.{function.__name__} on a device array: use xp.{function.__name__}")

    # Conversions that copy to the host

    def get(self) -> np.ndarray[Any, Any]:
        """Return a copy as a NumPy array."""
        synchronised()
        return self._host.copy()

    def item(self) -> Any:
        return self.get().item()

    def tolist(self) -> Any:
        return self.get().tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __bool__(self) -> bool:
        return bool(self.get())

    def __repr__(self) -> str:
        return repr(self.get())

    def __format__(self, spec: str) -> str:
        return format(self.item() if self.ndim == 0 else self, spec)

    # Attributes that need no synchronisation

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._host.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._host.shape

    @property
    def ndim(self) -> int:
        return self._host.ndim

    @property
    def size(self) -> int:
        return self._host.size

    @property
    def itemsize(self) -> int:
        return self._host.itemsize

    @property
    def nbytes(self) -> int:
        return self._host.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        return self._host.strides

    @property
    def flags(self) -> Any:
        return self._host.flags

    @property
    def device(self) -> Device:
        return Device()

    @property
    def T(self) -> ndarray:
        return ndarray(self._host.T)

    @property
    def mT(self) -> ndarray:
        return ndarray(self._host.swapaxes(-1, -2))

    @property
    def real(self) -> ndarray:
        return ndarray(self._host.real)

    @property
    def imag(self) -> ndarray:
        return ndarray(self._host.imag)

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Iterator[ndarray]:
        return (self[i] for i in range(len(self)))

    # Indexing by integers, slices, None, ... and device arrays

    def _key(self, key: Any) -> Any:
        return tuple(map(self._one, key)) if isinstance(key, tuple) else self._one(key)

    @staticmethod
    def _one(key: Any) -> Any:
        if isinstance(key, ndarray):
            return key._host
        if isinstance(key, slice):
            if any(isinstance(end, ndarray) for end in (key.start, key.stop, key.step)):
                raise TypeError("a slice with ends on the device: int(...) of them first, it is a synchronisation")
            return key
        if key is None or key is Ellipsis or (isinstance(key, (int, np.integer)) and not isinstance(key, bool)):
            return key
        raise TypeError(f"an index expects whole numbers, slices, None, ... or device arrays, got {type(key).__name__}")

    def __getitem__(self, key: Any) -> ndarray:
        key = self._key(key)
        parts = key if isinstance(key, tuple) else (key,)
        if any(isinstance(part, np.ndarray) for part in parts):
            _counts.launches += 1
        if any(isinstance(part, np.ndarray) and part.dtype == bool for part in parts):
            synchronised()  # the shape depends on the number of True entries
        return ndarray(self._host[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        key, value = self._key(key), unwrap(value)
        if not isinstance(value, (np.ndarray, int, float, complex)):
            raise TypeError(f"an assignment expects an array of the device or a number, got {type(value).__name__}")
        parts = key if isinstance(key, tuple) else (key,)
        masks = [part for part in parts if isinstance(part, np.ndarray) and part.dtype == bool]
        if masks and np.ndim(value):
            synchronised()
        places = [part for part in parts if isinstance(part, np.ndarray) and part.dtype != bool]
        if places and np.ndim(value) and not masks:
            flat = np.stack([place.ravel() for place in np.broadcast_arrays(*places)])
            if np.unique(flat, axis=1).shape[1] < flat.shape[1]:
                raise ValueError("a place is assigned to twice: on a GPU nobody knows which value stays")
        _counts.launches += 1
        self._host[key] = value

    def set(self, host: np.ndarray[Any, Any]) -> None:
        """Overwrite the entries with a NumPy array."""
        _counts.uploads += 1
        self._host[...] = host


NAMES = Path(__file__).parents[1] / "cupy_names.json"


def _names(of: str) -> list[str]:
    """Return the public names of the module or class `of` in the real CuPy, as recorded in NAMES."""
    names: dict[str, list[str]] = json.loads(NAMES.read_text(encoding="utf-8"))
    return [name for name in names[of] if not name.startswith("_")]


SYNCHRONISING = {
    "nonzero", "compress", "argwhere", "flatnonzero", "extract", "bincount", "unique", "intersect1d", "setdiff1d",
    "union1d", "histogram", "matrix_rank",
}  # fmt: skip
"""CuPy's functions that wait for the device because the shape of the result, or an error, depends on values."""


def _method(name: str) -> Callable[..., Any]:
    def host_method(host: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(host, name)(*args, **kwargs)

    host_method.__name__ = name
    return on_device(host_method, syncs=int(name in SYNCHRONISING))


BINARY = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "matmul",
)  # fmt: skip
for _name in BINARY:
    _apply = getattr(operator, f"__{_name}__")
    setattr(ndarray, f"__{_name}__", _binary(_apply))
    setattr(ndarray, f"__r{_name}__", _binary(_swapped(_apply)))
    if _name != "matmul":
        setattr(ndarray, f"__i{_name}__", _binary(getattr(operator, f"__i{_name}__"), in_place=True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(ndarray, f"__{_name}__", _binary(getattr(operator, f"__{_name}__")))
for _name in ("neg", "pos", "abs", "invert"):
    setattr(ndarray, f"__{_name}__", _method(f"__{_name}__"))
for _name in _names("cupy.ndarray"):
    if not hasattr(ndarray, _name) and callable(getattr(np.ndarray, _name, None)):
        setattr(ndarray, _name, _method(_name))
