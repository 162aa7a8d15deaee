"""`minintk.arrays.elementwise` for NumPy: the C that a GPU would run, compiled by the compiler of this machine.

use(monkeypatch)          # fused steps, on arrays of NumPy; COMPILER is None where there is no compiler
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

COMPILER = which("cc") or which("gcc") or which("clang")

C = {"float32": "float", "float64": "double"}


@lru_cache
def library(name: str, inputs: str, outputs: str, body: str, dtype: str) -> Any:
    """The C function: a loop over the entries; all arguments are pointers, raw ones left to the body."""
    assert COMPILER is not None
    arguments, loads = [], []
    for kind, declared in (("const ", inputs), ("", outputs)):
        for raw, ctype, one in declarations(declared):
            arguments.append(f"{kind}{ctype} *{'' if raw else '_'}{one}")
            if not raw:
                loads.append(f"#define {one} (_{one}[i])")
    text = "\n".join(
        [
            "#include <tgmath.h>",
            "typedef long long i64;",
            f"typedef {C[dtype]} T;",
            *loads,
            f"void run(i64 entries, {', '.join(arguments)}) {{",
            f"for (i64 i = 0; i < entries; i++) {{ {body} }} }}",
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / f"{name}.c", Path(folder) / f"{name}.so"
        source.write_text(text)
        # no contraction of a * b + c, no reordering: what is written, rounded step by step
        flags = ["-O1", "-std=c11", "-ffp-contract=off", "-Wall", "-Werror", "-Wno-unused-variable"]
        done = subprocess.run(
            [COMPILER, *flags, "-shared", "-fPIC", str(source), "-o", str(made), "-lm"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return ctypes.CDLL(str(made))


def declarations(text: str) -> list[tuple[bool, str, str]]:
    """(raw, type, name) of "T a, raw T b, int c"."""
    found = []
    for one in text.split(","):
        match = re.fullmatch(r"(raw )?(T|int) (\w+)", one.strip())
        assert match is not None, one
        found.append((match[1] is not None, match[2], match[3]))
    return found


class Kernel:
    """Called as CuPy's ElementwiseKernel: inputs, then outputs; inputs broadcast, Python's numbers are cast."""

    def __init__(self, name: str, inputs: str, outputs: str, body: str) -> None:
        self.text = (name, inputs, outputs, body)
        self.inputs, self.outputs = declarations(inputs), declarations(outputs)
        self.calls = 0

    def __call__(self, *values: Any) -> None:
        self.calls += 1
        ins, outs = values[: len(self.inputs)], values[len(self.inputs) :]
        assert len(outs) == len(self.outputs)
        shape, dtype = outs[0].shape, outs[0].dtype
        pointers, kept = [], []
        for (raw, ctype, name), value in zip(self.inputs, ins, strict=True):
            wanted = np.dtype(np.int32) if ctype == "int" else dtype
            assert not isinstance(value, np.ndarray) or value.dtype == wanted, name
            a = np.asarray(value, dtype=wanted)
            # a copy, whatever the layout: CuPy's are references, which the text must not read after it writes
            a = np.ascontiguousarray(a if raw else np.broadcast_to(a, shape))
            kept.append(a)
            pointers.append(ctypes.c_void_p(a.ctypes.data))
        results = [np.empty(shape, dtype) for _ in outs]
        shared = [k for k, value in enumerate(ins) if any(value is out for out in outs)]
        for k in shared:  # in place: one memory for both, as on the GPU
            which_out = next(n for n, out in enumerate(outs) if out is ins[k])
            results[which_out][...] = kept[k]
            pointers[k] = ctypes.c_void_p(results[which_out].ctypes.data)
        pointers += [ctypes.c_void_p(a.ctypes.data) for a in results]
        library(*self.text, str(dtype)).run(ctypes.c_longlong(int(np.prod(shape))), *pointers)
        for out, result in zip(outs, results, strict=True):
            assert out.shape == shape
            assert out.dtype == dtype
            out[...] = result


@lru_cache
def kernel(xp: Any, name: str, inputs: str, outputs: str, body: str) -> Kernel:
    """Stands in for `minintk.arrays.elementwise`."""
    return Kernel(name, inputs, outputs, body)


def use(patch: Any) -> Callable[..., Kernel]:
    """From here to the patch's end NumPy has fused steps."""
    from analytic.images import gpu_kernels

    patch.setattr(gpu_kernels, "elementwise", kernel)
    return kernel
