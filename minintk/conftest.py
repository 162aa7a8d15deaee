"""When pytest collects docstring examples, skip modules whose optional dependency is missing.

`pytest --pyargs minintk analytic --doctest-modules` then works on an installed package, with or without extras.
"""

from importlib.util import find_spec

NEEDS = {"fast/compiled.py": "llvmlite", "fast/numba_loops.py": "llvmlite"}
"""{module: the library that is needed to import it}."""

collect_ignore = [module for module, library in NEEDS.items() if find_spec(library) is None]
