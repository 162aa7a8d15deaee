"""Add JupyterLite with the notebooks to the site: `python3 make.py lite`, after `docs`, which deletes site/.

site/lite/ then contains Jupyter, the notebooks as .ipynb, and wheels of minintk and of packages that Pyodide lacks.
The reader's browser fetches Pyodide, NumPy, SciPy and Matplotlib from the server that hosts Pyodide's builds.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import jupytext
from nbformat.v4 import new_code_cell

ROOT = Path(__file__).resolve().parents[2]
BUILD, SITE = ROOT / "build" / "lite", ROOT / "site" / "lite"

LACKING = ("array-api-compat", "filelock", "lazy-loader", "markdown-it-py", "mdurl")
"""Packages that minintk needs but Pyodide does not provide."""


def converted(source: Path) -> None:
    """Convert a notebook to .ipynb in build/lite/files, with an added first cell that installs minintk."""
    notebook = jupytext.read(source)
    notebook.metadata["kernelspec"] = {"name": "python", "display_name": "Python (Pyodide)", "language": "python"}
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"\]\((\d-[\w-]+)\.md\)", r"](\1.ipynb)", cell.source)
        if "hide-cell" in cell.metadata.get("tags", ()):
            cell.metadata["jupyter"] = {"source_hidden": True}
    notebook.cells.insert(0, new_code_cell("%pip install -q minintk"))
    jupytext.write(notebook, BUILD / "files" / f"{source.stem}.ipynb", fmt="ipynb")


def main() -> None:
    """Build the JupyterLite site."""
    for folder in (BUILD, SITE):
        shutil.rmtree(folder, ignore_errors=True)
    (BUILD / "files").mkdir(parents=True)
    for source in sorted(Path(__file__).parent.glob("[0-9]*.md")):
        converted(source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", BUILD / "pypi", ROOT], check=True)
    constraints = ["-c", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, "download", "--no-deps", "-d", BUILD / "pypi", *constraints, *LACKING], check=True)
    program = [sys.executable, "-m", "jupyterlite_core.app", "build"]
    subprocess.run([*program, "--lite-dir", BUILD, "--contents", BUILD / "files", "--output-dir", SITE], check=True)


if __name__ == "__main__":
    main()
