"""Compute with finite, linearised and infinitely wide networks, with hand-written derivatives, in NumPy or CuPy."""

import warnings
from pathlib import Path

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # __init__.pyi lists the names


def other_analytic(home: Path = Path(__file__).parents[1]) -> str | None:
    """Return an error message if the package `analytic` beside minintk is not the one shipped with it, else None.

    Another package named `analytic` can overwrite analytic/__init__.py.  Uninstalling that package deletes the file.

    >>> other_analytic() is None
    True
    """
    face = home / "analytic" / "__init__.py"
    there = face.exists()
    try:
        if not face.parent.is_dir() or (there and b"lazy_loader.attach_stub" in face.read_bytes()):
            return None  # the shipped package, or minintk was moved without it
    except OSError:
        return None  # files cannot be read here, e.g. in a grading process
    what = "is of another distribution, installed over minintk's" if there else "is missing: another one was removed"
    return f"{face} {what}: pip uninstall -y analytic, then pip install --force-reinstall --no-deps minintk"


if (_problem := other_analytic()) is not None:
    warnings.warn(_problem, RuntimeWarning, stacklevel=2)

__version__ = "1.0.0rc1"  # as in pyproject.toml
