"""Test submissions that are scripts, notebooks or damaged files, and the detection of complex numbers."""

import json
from pathlib import Path

import pytest

from minintk.grade import Submission, SubmissionError
from minintk.grade.hand_in import MARK, definitions, imaginary, text_of


def notebook(path: Path, cells: list[tuple[str, str, list[str]]]) -> Path:
    """Write a notebook with the cells (kind, source, tags) to `path`, and return `path`."""
    made = [{"cell_type": k, "source": s.splitlines(keepends=True), "metadata": {"tags": t}} for k, s, t in cells]
    path.write_text(json.dumps({"cells": made, "nbformat": 4}))
    return path


@pytest.mark.parametrize("isolated", [True, False])
def test_a_notebook_is_handed_in_as_it_is(tmp_path: Path, isolated: bool) -> None:
    """From untagged cells, only imports, functions, classes and constants are used.

    Code that trains, plots or uses IPython's kernel is left out.
    """
    cells = [
        ("markdown", "# Words", []),
        ("code", "%matplotlib inline\n!pip install x\nimport math\ndef f(x):\n    return helper(x) + CONSTANT", [MARK]),
        ("code", "def helper(x):\n    return 2 * x\nCONSTANT = 3\nget_ipython().magic('time')\nf(1)", []),
        ("code", "while True: pass", []),
        ("code", "%%time\nthis is no Python", []),
    ]
    path = notebook(tmp_path / "a.ipynb", cells)
    with Submission(path, isolated=isolated) as student:
        assert student.call("f", 2) == 7
    untagged = notebook(tmp_path / "b.ipynb", [(kind, source, []) for kind, source, _ in cells[:2]])
    assert "def f(x)" in text_of(untagged)


def test_a_damaged_file_is_said(tmp_path: Path) -> None:
    for name, content in (("a.ipynb", b"{"), ("b.ipynb", b'{"cells": 3}'), ("c.py", b"\xff\xfe")):
        (tmp_path / name).write_bytes(content)
        with Submission(tmp_path / name) as student, pytest.raises(SubmissionError, match="the file does not load"):
            student.call("f")


def test_definitions() -> None:
    code = "import os\nx = 3\ny = f(3)\nprint(x)\nclass A:\n    pass\nfor i in range(3): pass"
    assert definitions(code) == "import os\nx = 3\nclass A:\n    pass"
    assert definitions(code + "\nx = (") == ""


def test_only_complex_numbers_are_found() -> None:
    for text, line in (("import numpy as np\nd = np.tanh(z + 1e-30j).imag", 2), ("from numpy import imag", 0),
                       ("getattr(z, 'imag')", 1), ("y = np.fft.irfft2(np.fft.rfft2(x) * np.conj(k)).real", 0),
                       ("imag(z)", 1), ("1 +", 0), ("x = 1\nz = x + 1e-30j", 2), ("x.astype(complex)", 1),
                       ("np.zeros(3, 'complex128')", 1), ("z = np.csingle(x)", 1),
                       ("'complex numbers are not used here'", 0), ("np.iscomplexobj(x)", 0)):  # fmt: skip
        assert imaginary(text) == line
