"""Compile GPU formulas as C, and sources for `minintk.arrays.raw_kernel` as C++, and run both on NumPy arrays.

use_blocks(monkeypatch) makes the library compute planes in blocks of threads. COMPILER is None if no compiler is found.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from shutil import which
from threading import Lock
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

COMPILER = which("cc") or which("gcc") or which("clang")

C = {"float32": "float", "float64": "double"}


def compile_text(name: str, text: str, *flags: str) -> Any:
    """Compile and load a shared library. On failure, raise AssertionError with the compiler's messages."""
    assert COMPILER is not None
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / name, Path(folder) / f"{name}.so"
        source.write_text(text)
        # No contraction of a * b + c and no -ffast-math: each operation is rounded, in the order of the source.
        flags = ("-O1", "-ffp-contract=off", "-Wall", "-Werror", "-Wno-unused-variable", "-Wno-unknown-pragmas", *flags)
        done = subprocess.run(
            [COMPILER, *flags, "-shared", "-fPIC", str(source), "-o", str(made), "-lm"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return ctypes.CDLL(str(made))


@lru_cache
def library(name: str, inputs: str, outputs: str, body: str, dtype: str) -> Any:
    """Compile the C function `run`, which executes the body for each entry i.

    All arguments of `run` except the number of entries are pointers. In the body, only raw arguments are indexed.
    """
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
    return compile_text(f"{name}.c", text, "-std=c11")


def declarations(text: str) -> list[tuple[bool, str, str]]:
    """Parse declarations such as "T a, raw T b, int c" and return (raw, type, name) for each."""
    found = []
    for one in text.split(","):
        match = re.fullmatch(r"(raw )?(T|int) (\w+)", one.strip())
        assert match is not None, one
        found.append((match[1] is not None, match[2], match[3]))
    return found


class Kernel:
    """A kernel that is called like CuPy's ElementwiseKernel.

    Inputs come first, then outputs. Inputs that are not raw are broadcast, and Python numbers are cast.
    """

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
            # Outputs are new arrays. CuPy writes in place, so a body must not read an input after writing the output.
            a = np.ascontiguousarray(a if raw else np.broadcast_to(a, shape))
            kept.append(a)
            pointers.append(ctypes.c_void_p(a.ctypes.data))
        results = [np.empty(shape, dtype) for _ in outs]
        shared = [k for k, value in enumerate(ins) if any(value is out for out in outs)]
        for k in shared:  # an input that is also an output shares memory with the output, as on the GPU
            which_out = next(n for n, out in enumerate(outs) if out is ins[k])
            results[which_out][...] = kept[k]
            pointers[k] = ctypes.c_void_p(results[which_out].ctypes.data)
        pointers += [ctypes.c_void_p(a.ctypes.data) for a in results]
        library(*self.text, str(dtype)).run(ctypes.c_longlong(int(np.prod(shape))), *pointers)
        for out, result in zip(outs, results, strict=True):
            assert out.shape == shape
            assert out.dtype == dtype
            out[...] = result


# ------------------------------------------------------------------------------------------------ blocks of threads

DEVICE = """

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#define __global__ static
#define __device__ static
#define __shared__
using std::abs; using std::fabs; using std::fma; using std::sqrt;
struct Dim { unsigned x, y; };
static Dim threadIdx, blockIdx, blockDim, gridDim;
double memory[1 << 15];
static const int MOST = 256, STACK = 1 << 15;
static ucontext_t scheduler, fibers[MOST];
static char stacks[MOST][STACK];
static int running, reached[MOST];
[[maybe_unused]] static void __syncthreads() {  /* the others run up to theirs */
    int me = running;
    swapcontext(&fibers[me], &scheduler);
    threadIdx.x = me;
}
"""

BLOCKS = """
static void **given;
static void thread() {{ {name}({arguments}); reached[running] = -1; }}

/* Each thread runs alone from barrier to barrier, the first first or last; 0 if all met at the same barriers. */
extern "C" int run(int blocks, int rows, int threads, int backwards, void **arguments) {{
    given = arguments, gridDim = {{(unsigned)blocks, (unsigned)rows}}, blockDim = {{(unsigned)threads, 1}};
    for (int b = 0; b < blocks * rows; b++) {{
        blockIdx = {{(unsigned)(b % blocks), (unsigned)(b / blocks)}};
        memset(memory, 255, sizeof memory);  /* not a number */
        for (int t = 0; t < threads; t++) {{
            reached[t] = 0;
            getcontext(&fibers[t]);
            fibers[t].uc_stack.ss_sp = stacks[t], fibers[t].uc_stack.ss_size = STACK, fibers[t].uc_link = &scheduler;
            makecontext(&fibers[t], thread, 0);
        }}
        for (int left = threads; left > 0;) {{
            int done = 0;
            for (int k = 0; k < threads; k++) {{
                running = backwards ? threads - 1 - k : k, threadIdx.x = running;
                swapcontext(&scheduler, &fibers[running]);
                done += reached[running] < 0;
            }}
            if (done != 0 && done != threads) return 1;  /* some threads wait for ever */
            left = done ? 0 : left;
        }}
    }}
    return 0;
}}
"""


def block_library(source: str, name: str) -> Any:
    """Compile the CUDA source of a kernel as C++ code that runs the threads in turn, from one barrier to the next."""
    head = re.search(rf'extern "C" __global__ void {name}\((.*?)\) \{{', source, re.DOTALL)
    assert head is not None
    kinds = [
        one.strip().rsplit(" ", 1)[0] if "*" not in one else f"{one.rsplit('*', 1)[0]}*" for one in head[1].split(",")
    ]
    values = [f"({kind})given[{k}]" if "*" in kind else f"*({kind} *)given[{k}]" for k, kind in enumerate(kinds)]
    text = DEVICE + source.replace('extern "C" ', "") + BLOCKS.format(name=name, arguments=", ".join(values))
    return compile_text(f"{name}.cpp", text, "-x", "c++", "-std=c++17")


class Blocks:
    """A kernel that is called like a result of `minintk.arrays.raw_kernel`.

    The threads must give the same result in forward and in backward order.
    """

    name = "planes"

    def __init__(self, source: str) -> None:
        self.source, self.library, self.calls = source, block_library(source, self.name), 0
        self.lock = Lock()

    def __call__(self, blocks: tuple[int, int], threads: int, arguments: tuple[Any, ...], memory: int) -> None:
        assert memory <= 1 << 18
        self.calls += 1
        kept = [np.ascontiguousarray(a) for a in arguments]
        assert all(a is b for a, b in zip(kept, arguments, strict=True) if isinstance(b, np.ndarray))
        given = (ctypes.c_void_p * len(kept))(*(a.ctypes.data for a in kept))
        with self.lock:  # one call at a time, as on one GPU
            self.run(blocks, threads, arguments, given)

    def run(self, blocks: tuple[int, int], threads: int, arguments: tuple[Any, ...], given: Any) -> None:
        """Run the threads in forward order, then in backward order, and compare the results."""
        found = []
        for backwards in (0, 1):
            arguments[-2][...] = np.nan
            assert self.library.run(*blocks, threads, backwards, given) == 0, "threads part at a barrier"
            found.append([a.copy() for a in arguments[-2:]])
        for one, two in zip(*found, strict=True):
            assert np.array_equal(one, two, equal_nan=True), "the order of the threads makes a difference"


class PairBlocks(Blocks):
    """A kernel for pairs of vectors. It overwrites the pairs, so the order of the threads alternates between calls."""

    name = "pairs"

    def run(self, blocks: tuple[int, int], threads: int, arguments: tuple[Any, ...], given: Any) -> None:
        backwards = self.calls % 2
        assert self.library.run(*blocks, threads, backwards, given) == 0, "threads part at a barrier"


@lru_cache
def blocks(xp: Any, name: str, source: str) -> Blocks:
    """Return a kernel that stands in for the result of `minintk.arrays.raw_kernel`."""
    return {"planes": Blocks, "pairs": PairBlocks}[name](source)


def use_blocks(patch: Any, edit: Callable[[str], str] = lambda source: source) -> Callable[..., Blocks]:
    """Compute planes of NumPy arrays by blocks of GPU code until `patch` is undone. `edit` modifies the source."""
    from analytic.fast import gpu_kernels, offsets
    from analytic.fast import planes as plan

    patch.setattr(offsets, "raw_kernel", lambda xp, name, source: blocks(xp, name, edit(source)))
    patch.setattr(gpu_kernels, "threads_for", lambda size: 8)
    patch.setattr(offsets, "on_host", lambda xp: False)
    patch.setattr(plan, "worth_compiling", lambda program, *_, **how: offsets.split(program) > 0)
    return blocks


def use_pairs(patch: Any, edit: Callable[[str], str] = lambda source: source) -> None:
    """Compute kernels of NumPy vectors with the GPU code until `patch` is undone. `edit` modifies the source."""
    from analytic.fast import gpu_vectors
    from analytic.fast.accelerate import Faster

    patch.setattr(gpu_vectors, "raw_kernel", lambda xp, name, source: blocks(xp, name, edit(source)))
    patch.setattr(Faster, "passes", lambda self, xp: partial(self.launches, xp))
