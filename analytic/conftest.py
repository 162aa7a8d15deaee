"""Leaves out modules whose extra is not installed when pytest collects the examples of docstrings."""

from importlib.util import find_spec

NEEDS = {"estimators.py": "sklearn"} | dict.fromkeys(
    ("images/compiled.py", "images/numba_kernels.py", "vectors/llvm.py", "vectors/passes.py"), "llvmlite"
)
"""{module: the library without which it cannot be imported}."""

collect_ignore = [module for module, library in NEEDS.items() if find_spec(library) is None]
