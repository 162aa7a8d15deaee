"""Compile every CUDA source of the library with NVIDIA's compiler (extra `gpu-test`), which needs no GPU."""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from ctypes.util import find_library
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import analytic
import minintk
from analytic.fast import gpu_kernels, gpu_vectors
from analytic.recursion.scalar_forms import FORMS

HOMES = [Path(str(package.__file__)).parent for package in (minintk, analytic)]
TARGETS = (70, 75, 80, 86, 89, 90)
"""CUDA targets (sm_...), including those of V100, A100, H100 and H200. Tests skip targets that NVRTC has dropped."""


def compiler() -> Any:
    """Return NVRTC from pip's packages or from the system, or None if NVRTC is missing."""
    nvidia = find_spec("nvidia")
    places = [Path(place) for place in (nvidia.submodule_search_locations or ())] if nvidia else []
    patterns = "*/lib/libnvrtc.so.*", "*/lib/x86_64/libnvrtc.so.*", "*/bin/nvrtc64*.dll", "*/bin/x86_64/nvrtc64*.dll"
    found = [str(path) for place in places for pattern in patterns for path in sorted(place.glob(pattern))]
    found += [name for name in (find_library("nvrtc"),) if name is not None]
    try:
        return ctypes.CDLL(found[0]) if found else None
    except OSError:
        return None


NVRTC = compiler()
needs_nvrtc = pytest.mark.skipif(NVRTC is None, reason="no NVRTC here: pip install 'minintk[gpu-test]'")


def compiled(source: str, option: str) -> tuple[str, bytes]:
    """Return PTX and machine code for the target in `option`, or raise AssertionError with the compiler's messages."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert NVRTC.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"k.cu", 0, None, None) == 0
    options = (ctypes.c_char_p * 2)(option.encode(), b"--std=c++17")
    status = NVRTC.nvrtcCompileProgram(program, 2, options)
    made: list[bytes] = []
    for what in ("ProgramLog", "PTX", "CUBIN"):
        if what != "ProgramLog":
            assert status == 0, made[0].decode()
        assert getattr(NVRTC, f"nvrtcGet{what}Size")(program, ctypes.byref(size)) == 0
        buffer = ctypes.create_string_buffer(size.value)
        assert getattr(NVRTC, f"nvrtcGet{what}")(program, buffer) == 0
        made.append(buffer.raw)
    NVRTC.nvrtcDestroyProgram(ctypes.byref(program))
    return made[1].decode(), made[2]


def targets() -> list[int]:
    """Return the TARGETS that the installed compiler supports. CUDA 13 no longer supports target 70."""
    count = ctypes.c_int()
    assert NVRTC.nvrtcGetNumSupportedArchs(ctypes.byref(count)) == 0
    known = (ctypes.c_int * count.value)()
    assert NVRTC.nvrtcGetSupportedArchs(known) == 0
    return [target for target in TARGETS if target in list(known)]


def test_these_are_all() -> None:
    """Besides `arrays`, only `offsets` and `gpu_vectors` compile CUDA sources, from `gpu_kernels` and `gpu_vectors`."""
    call = re.compile(r"\b(?:ElementwiseKernel|raw_kernel|RawKernel|ReductionKernel|RawModule)\(")
    calls = {
        path.relative_to(home.parent).as_posix(): len(call.findall(path.read_text("utf-8")))
        for home in HOMES
        for path in home.rglob("*.py")
    }
    homes = "minintk/arrays.py", "analytic/fast/offsets.py", "analytic/fast/gpu_vectors.py"
    assert {name: n for name, n in calls.items() if n} == dict.fromkeys(homes, 1)


PREPARED = ("kinked", 2, 5), ("linear", 1, 2), ("normalised", 3, 3)
EVERY = (
    *PREPARED,
    *(
        (name, len(form.numbers(np, np.ones(1))) + 1, 3 + len(form.constants))
        for name, form in FORMS.items()
        if name not in [prepared for prepared, *_ in PREPARED]
    ),
)
"""(name, count of numbers, count of constants) of each formula for planes. A single source contains all formulas."""


OF_ROWS: tuple[tuple[str, int, int], ...] = (
    ("dense", 4, 2),
    ("dense", 3, 2),
    ("homogeneous", 0, 2),
    ("end", 1, 0),
    *(
        (name, len(form.rows(np, np.ones(1), form.constants)) + 1, len(form.constants))
        for name, form in FORMS.items()
        if form.rows is not FORMS["kinked"].rows
    ),
)
"""(name, count of numbers, count of constants) of each formula for vectors. A single source contains all formulas."""


def in_double(ptx: str) -> Counter[str]:
    """Count the double-precision arithmetic instructions of each kind, such as add, fma and sqrt."""
    return Counter(re.findall(r"\b(add|sub|mul|div|fma|sqrt|rcp|neg)[.a-z]*\.f64\b", ptx))


@needs_nvrtc
@pytest.mark.parametrize("tangent", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_planes_compile_for_every_target(dtype: str, tangent: bool) -> None:
    """In float32, only the read-out uses double precision.

    The read-out computes the product of the weights, its products with D and (for the NTK) with Theta, and two totals.
    """
    for target in targets():
        ptx, code = compiled(gpu_kernels.source(dtype, EVERY, tangent=tangent), f"--gpu-architecture=sm_{target}")
        assert f"sm_{target}" in ptx
        assert code[:4] == b"\x7fELF"
        if dtype == "float32":
            assert in_double(ptx) == {"mul": 1, "fma": 1 + tangent, "add": 2}


@needs_nvrtc
@pytest.mark.parametrize("tangent", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pairs_compile_for_every_target(dtype: str, tangent: bool) -> None:
    """In float32, no instruction uses double precision."""
    forms = tuple((f"a row's {name}", numbers, constants) for name, numbers, constants in OF_ROWS)
    for target in targets():
        ptx, code = compiled(gpu_vectors.source(dtype, forms, tangent=tangent), f"--gpu-architecture=sm_{target}")
        assert code[:4] == b"\x7fELF"
        assert (".f64" in ptx) == (dtype == "float64")


@needs_nvrtc
def test_a_mistake_in_a_source_is_found() -> None:
    """The negative controls, an undefined name and arithmetic in double precision, are detected."""
    text = gpu_kernels.source("float32", EVERY, tangent=True)
    with pytest.raises(AssertionError, match='identifier "halb" is undefined'):
        compiled(text.replace("found += g * g;", "found += g * halb;"), "--gpu-architecture=sm_80")
    ptx, _ = compiled(text.replace("found += g * g;", "found += 1.1 * g * g;"), "--gpu-architecture=sm_80")
    assert in_double(ptx) == {"mul": 2, "fma": 3, "add": 2}
    text = gpu_vectors.source("float32", (("a row's homogeneous", 0, 2),), tangent=True)
    ptx, _ = compiled(text.replace("(T)4.0", "4.1"), "--gpu-architecture=sm_80")
    assert in_double(ptx).total() > 0
