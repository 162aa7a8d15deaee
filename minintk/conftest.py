"""Skip modules whose extra is not installed when pytest collects the examples in docstrings.

`pytest --pyargs minintk analytic --doctest-modules` then works with the installed package, with and without extras.
"""

from importlib.util import find_spec

NEEDS = {"fast/compiled.py": "llvmlite", "fast/numba_loops.py": "llvmlite"}
"""{module: the library without which it cannot be imported}."""

collect_ignore = [module for module, library in NEEDS.items() if find_spec(library) is None]
