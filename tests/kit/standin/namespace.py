"""Provide the namespace of the stand-in: CuPy's names, wrapped by array-api-compat as the real CuPy is.

The module `cupy` below corresponds to the module cupy on a GPU. The module contains nearly every name that both the
real CuPy (cupy_names.json) and NumPy have, for device arrays. array-api-compat's code for CuPy then runs on this
module, under the name array_api_compat.standin. The functions `xp.isdtype`, `xp.concat` and `xp.asarray(copy=True)` are
therefore the functions that run on a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import array_api_compat
import numpy as np

from tests.kit.standin import device as d

SEQUENCES = {
    "concatenate", "concat", "stack", "vstack", "hstack", "dstack", "column_stack", "broadcast_arrays", "meshgrid",
    "einsum", "select", "choose", "ix_", "lexsort", "ravel_multi_index",
}  # fmt: skip
"""Functions that take a sequence of arrays."""

HOST = {
    "issubdtype", "finfo", "iinfo", "result_type", "promote_types", "can_cast", "broadcast_shapes", "isscalar", "shape",
    "ndim", "size", "isdtype", "iscomplexobj", "isrealobj", "common_type", "min_scalar_type", "may_share_memory",
    "shares_memory",
}  # fmt: skip
"""Functions that compute nothing on the device. Most of these functions use only shapes and dtypes."""


def _array(obj: Any, dtype: Any = None, copy: bool | None = True, order: str = "K", **kwargs: Any) -> d.ndarray:
    """Create a device array.

    By default, the data are copied. Creating an array from NumPy arrays or numbers counts as an upload.
    """
    if isinstance(obj, d.ndarray):
        if not copy and (dtype is None or obj.dtype == dtype) and order == "K":
            return obj
        return d.ndarray(np.array(obj._host, dtype=dtype, copy=True, order=order, **kwargs))  # type: ignore[call-overload]
    d._counts.uploads += 1
    if not isinstance(obj, (np.ndarray, np.generic)):
        obj = d.unwrap(obj)  # raises TypeError for a list of device arrays
    return d.ndarray(np.array(obj, dtype=dtype, copy=True, order=order, **kwargs))  # type: ignore[call-overload]


def _asarray(a: Any, dtype: Any = None, order: str = "K", **kwargs: Any) -> d.ndarray:
    return _array(a, dtype=dtype, copy=False, order=order, **kwargs)


def _where(condition: Any, *choices: Any) -> Any:
    """Return where(condition, x, y). Raise TypeError for where(condition), whose shape would depend on values."""
    if not choices:
        raise TypeError("where expects (condition, x, y): where(condition) is nonzero, which waits for the device")
    if not isinstance(condition, d.ndarray):
        raise TypeError(f"where expects a condition on the device, got {type(condition).__name__}")
    return d.on_device(np.where, elementwise=True)(condition, *choices)


def _unravel_index(indices: Any, shape: tuple[int, ...]) -> Any:
    if not isinstance(indices, d.ndarray):
        raise TypeError("CuPy's unravel_index takes an array of the device, not a number")
    return d.on_device(np.unravel_index, syncs=2)(indices, shape)


def _take(a: Any, indices: Any, axis: int | None = None, out: Any = None) -> Any:
    if not isinstance(indices, (d.ndarray, int)):
        raise TypeError(f"take expects indices on the device, got {type(indices).__name__}")
    return d.on_device(np.take)(a, indices, axis=axis, out=out)


def _unless_singular(f: Callable[..., Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls f, and `otherwise` if f rejects a matrix as singular or indefinite.

    For singular or indefinite matrices, cuSOLVER raises no error and returns meaningless values.
    """

    def solver(*args: Any, **kwargs: Any) -> Any:
        try:
            return f(*args, **kwargs)
        except np.linalg.LinAlgError as error:
            if "must be" in str(error) or "square" in str(error):  # errors about shapes are raised again
                raise
            return otherwise(*args)

    solver.__name__ = f.__name__
    return d.on_device(solver)


def _not_a_number(*args: Any) -> Any:
    return np.full_like(args[-1], np.nan)


def _fill(module: ModuleType, of: str, source: Any) -> None:
    """Add to `module` the names that CuPy's `of` and `source` (of NumPy or SciPy) share. Functions are wrapped."""
    for name in d._names(of):
        f = getattr(source, name, None)
        if f is None:
            continue
        if isinstance(f, np.ufunc) and name != "matmul":
            f = d.on_device(f, elementwise=True, keywords=d.UFUNC_KEYWORDS)
        elif callable(f) and not isinstance(f, type):
            f = (
                _on_host(f)
                if name in HOST
                else d.on_device(
                    f, sequences=name in SEQUENCES, elementwise=name == "clip", syncs=int(name in d.SYNCHRONISING)
                )
            )
        setattr(module, name, f)


def _on_host(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: f(*(d.unwrap(a) if isinstance(a, d.ndarray) else a for a in args), **kwargs)


def _cupy() -> dict[str, ModuleType]:
    """Return {name: module} for the stand-ins of cupy and its submodules."""
    cupy, linalg, fft, cuda = (ModuleType(name) for name in ("cupy", "cupy.linalg", "cupy.fft", "cupy.cuda"))
    _fill(cupy, "cupy", np)
    for name in ("random", "poly", "poly1d", "vectorize"):  # not needed: the library draws random numbers on the host
        cupy.__dict__.pop(name, None)
    special = {"array": _array, "asarray": _asarray, "where": _where, "unravel_index": _unravel_index, "take": _take}
    vars(cupy).update(special, ndarray=d.ndarray, asnumpy=lambda a: a.get(), linalg=linalg, fft=fft, cuda=cuda)
    _fill(linalg, "cupy.linalg", np.linalg)
    vars(linalg).update(
        cholesky=_unless_singular(np.linalg.cholesky, np.tril),
        solve=_unless_singular(np.linalg.solve, _not_a_number),
        inv=_unless_singular(np.linalg.inv, _not_a_number),
    )
    for name in dir(np.fft):
        if "fft" in name and callable(f := getattr(np.fft, name)):
            setattr(fft, name, d.on_device(f))
    vars(cuda).update(Device=d.Device, device=cuda)
    return {"cupy": cupy, "cupy.linalg": linalg, "cupy.fft": fft, "cupy.cuda": cuda, "cupy.cuda.device": cuda}


def _compat(modules: dict[str, ModuleType]) -> Any:
    """Execute array_api_compat.cupy with these modules, and return it under the name array_api_compat.standin."""
    folder = Path(array_api_compat.__file__).parent / "cupy"
    name = "array_api_compat.standin"
    spec: ModuleSpec | None = spec_from_file_location(
        name, loader=SourceFileLoader(name, str(folder / "__init__.py")), submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "cupy"}
    sys.modules.update(modules)
    try:
        sys.modules[name] = module = module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        for name in modules:
            del sys.modules[name]
        sys.modules.update(before)
    return module


_modules = _cupy()
cupy = _modules["cupy"]
xp = _compat(_modules)
