"""Create the Python environments of the benchmarks: minintk uses the current one, each peer its own virtual one.

A peer's environment is created when it is first needed. The environments are separate because neural-tangents needs
older versions of NumPy and SciPy than minintk.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

PYTHONS = {"jax": ("3.11", "3.12"), "torch": ("3.12", "3.13", "3.11", "3.14")}
"""The Python versions that each peer supports, in order of preference."""


def python(environment: str) -> str:
    """Return the path of the Python interpreter of the environment "ours", "jax" or "torch"."""
    if environment == "ours":
        return sys.executable
    return str(ROOT / f".venv-peers-{environment}" / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))


def ensure(environment: str) -> None:
    """Create the environment unless it exists and was created from the current requirements file."""
    if environment == "ours":
        return
    requirements = HERE / f"requirements-{environment}.txt"
    folder = ROOT / f".venv-peers-{environment}"
    stamp, digest = folder / "installed", hashlib.sha256(requirements.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    print(f"making {folder.name} from {requirements.name} (the first time takes some minutes)", flush=True)
    subprocess.run([_interpreter(environment), "-m", "venv", "--clear", str(folder)], check=True)
    install = [python(environment), "-m", "pip", "install", "--quiet", "--requirement", str(requirements)]
    subprocess.run(install, check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    stamp.write_text(digest)


def _interpreter(environment: str) -> str:
    """Return a Python interpreter that the peer supports. The current one is preferred to those on the PATH."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if here in PYTHONS[environment]:
        return sys.executable
    for version in PYTHONS[environment]:
        if found := shutil.which(f"python{version}"):
            return found
    wanted = " or ".join(PYTHONS[environment])
    raise SystemExit(f"the {environment} environment needs Python {wanted} on the PATH; this is Python {here}")
