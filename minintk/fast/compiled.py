"""Compile loops with Numba, and cache them on disk, each with a checksum of key and code (`pip install minintk[fast]`).

Numba does not verify its cache, so a damaged file causes obscure errors or a crash.  Here each compiled loop has its
own file: the SHA-256 of (key, code), then the code.  A loop whose file does not match its checksum is compiled again.
The key includes the loop's source, the types of its arguments, Numba's version and the processor.  A file is therefore
not used with another version or processor.  If the folder is not writable, each process warns and compiles again.
"""

from __future__ import annotations

import pickle
import sys
import warnings
from functools import cache, partial
from hashlib import sha256
from inspect import getsource
from pathlib import Path
from time import perf_counter
from typing import Any

import llvmlite
from llvmlite import ir
from numba import njit, types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.extending import intrinsic as typed_intrinsic

from minintk.undisturbed import undisturbed

NUMBA_OPTIONS: Any = {"error_model": "numpy", "fastmath": {"contract", "nsz"}}
"""A division by 0 raises no exception.  The compiler may round a b + c only once, but must not reorder sums."""

PATIENCE = 1.0
"""Total compilation time in seconds after which the next compilation prints a message."""

KEPT: list[Any] = []
"""Loops whose `address` is in use; the list keeps them alive."""

intrinsic: Any = typed_intrinsic  # its declared type has a wrong number of arguments


class CheckedFile(IndexDataCacheFile):
    """A cache with one file per key, instead of Numba's index and numbered files."""

    def file(self, key: Any) -> tuple[Path, bytes]:
        """Return the path of the file for a key, and the key as bytes."""
        signature, machine, (_, closure) = key
        name = sha256(repr((signature, machine, closure)).encode()).hexdigest()[:16]
        path = Path(self._cache_path, f"{Path(self._index_name).stem}.{name}.nbc")
        return path, repr((self._index_name, self._version, self._source_stamp, key)).encode()

    def load(self, key: Any) -> Any:
        """Return the saved data, or None if the file is missing, unreadable, damaged, outdated or for another key."""
        path, identity = self.file(key)
        try:
            content = path.read_bytes()
        except (OSError, MemoryError):
            return None
        digest, data = content[:32], content[32:]
        if sha256(identity + data).digest() != digest:
            return None
        try:
            return pickle.loads(data)  # noqa: S301  written by `save`; Numba's own cache is pickled too
        except (ImportError, AttributeError):  # a module that the data refer to was renamed
            return None

    def save(self, key: Any, data: Any) -> None:
        """Write a temporary file and rename it, so that other processes find either the old file or the new one."""
        path, identity = self.file(key)
        data = self._dump(data)
        with self._open_for_write(str(path)) as to:
            to.write(sha256(identity + data).digest() + data)


class CheckedCache(FunctionCache):
    """Numba's cache with a `CheckedFile`.  It reports slow compilation.  Raises RuntimeError if it has no folder."""

    spent, started, told = 0.0, 0.0, False

    def __init__(self, f: Any) -> None:
        super().__init__(f)
        sources = [getsource(sys.modules[name]) for name in (__name__, f.__module__)]
        self._cache_file = CheckedFile(self._cache_path, self._impl.filename_base, (llvmlite.__version__, *sources))

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = super().load_overload(sig, target_context)
        if found is None:
            if CheckedCache.spent > PATIENCE and not CheckedCache.told:
                CheckedCache.told = True
                text = f"compiling loops for this machine, once, about a second each; kept in {self.cache_path}"
                sys.stderr.write(f"minintk: {text}\n")
            CheckedCache.started = perf_counter()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        CheckedCache.spent += perf_counter() - CheckedCache.started
        try:
            super().save_overload(sig, data)
        except (OSError, MemoryError) as error:
            not_kept(f"{self.cache_path}: {getattr(error, 'strerror', None) or type(error).__name__}")


@cache
def not_kept(reason: str) -> None:
    """Warn, once per reason, that compiled loops are not cached."""
    warnings.warn(f"compiled loops cannot be kept, so the next start compiles them again: {reason}", RuntimeWarning, 2)


def compiled(f: Any, options: Any = NUMBA_OPTIONS) -> Any:
    """Return f as a loop that is compiled for this machine when it is first called with new argument types."""
    made = njit(nogil=True, **options)(f)
    try:
        made._cache = CheckedCache(f)
    except (RuntimeError, OSError):  # the cache folder is not writable, or f has no source
        not_kept(f"{f.__module__} has no folder that can be written to; set NUMBA_CACHE_DIR")
    compile_for = made._compile_for_args  # Numba calls this for new argument types
    made._compile_for_args = lambda *args, **named: undisturbed(partial(compile_for, *args, **named))
    return made


def address(loop: Any, count: int) -> int:
    """Return the address of the machine code of a loop with `count` integer arguments, for use with `call`."""
    made = undisturbed(partial(loop.get_compile_result, types.void(*[types.int64] * count)))
    KEPT.append(loop)
    return int(made.library.get_pointer_to_function(made.fndesc.llvm_cfunc_wrapper_name))


@intrinsic
def call(context: Any, address: Any, args: Any) -> Any:
    """Call the function at an `address` with a tuple of integers."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * len(args))
        given = [builder.extract_value(values[1], i) for i in range(len(args))]
        builder.call(builder.inttoptr(values[0], kind.as_pointer()), given)
        return context.get_dummy_value()

    return types.void(address, args), emit
