"""When pytest collects docstring examples, skip modules that need an extra that is not installed."""

from importlib.util import find_spec

NEEDS = {"large/estimators.py": "sklearn"} | dict.fromkeys(
    ("fast/compiled.py", "fast/llvm.py", "fast/numba_kernels.py", "fast/vectors.py"), "llvmlite"
)
"""{module: the library that its import needs}."""

collect_ignore = [module for module, library in NEEDS.items() if find_spec(library) is None]
