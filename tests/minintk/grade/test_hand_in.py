"""Scripts and notebooks, the file that is graded among several, and copies."""

import json
from pathlib import Path

import pytest

from minintk.grade import Submission, SubmissionError
from minintk.grade.hand_in import MARK, alike, chosen, definitions, text_of, written
from tests.minintk.grade.tiny import SOLUTION, STARTER

NAMES = ["dense", "dense_backward"]


def notebook(path: Path, cells: list[tuple[str, str, list[str]]]) -> Path:
    """Write a notebook of (kind, source, tags)."""
    made = [{"cell_type": k, "source": s.splitlines(keepends=True), "metadata": {"tags": t}} for k, s, t in cells]
    path.write_text(json.dumps({"cells": made, "nbformat": 4}))
    return path


@pytest.mark.parametrize("isolated", [True, False])
def test_a_notebook_is_handed_in_as_it_is(tmp_path: Path, isolated: bool) -> None:
    """Take functions and constants of a student's own cells, and nothing that trains, plots or asks the kernel."""
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


def test_the_file_is_chosen_by_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "check.py").write_text("from starter import dense\nprint(dense)\n")
    (tmp_path / "variant.py").write_text("bias = 'plus'\n")
    (tmp_path / "a_starter.py").write_text(STARTER)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "week1.py").write_text(SOLUTION)
    assert chosen(tmp_path, NAMES).name == "week1.py"
    half = STARTER.replace("W, b):\n    raise NotImplementedError", "W, b):\n    return x @ W", 1)
    (tmp_path / "sub" / "week1.py").write_text(half)
    assert chosen(tmp_path, NAMES).name == "week1.py"
    notebook(tmp_path / "z.ipynb", [("code", SOLUTION, [MARK])])
    assert chosen(tmp_path, NAMES).name == "z.ipynb"
    assert (written(STARTER, NAMES), written(half, NAMES), written(SOLUTION, NAMES)) == (0, 1, 2)
    with pytest.raises(FileNotFoundError, match="a script or notebook with network"):
        chosen(tmp_path, ["network"])


def test_definitions() -> None:
    code = "import os\nx = 3\ny = f(3)\nprint(x)\nclass A:\n    pass\nfor i in range(3): pass"
    assert definitions(code) == "import os\nx = 3\nclass A:\n    pass"
    assert definitions(code + "\nx = (") == ""


def test_a_copy_with_other_names_is_alike_and_other_work_is_not() -> None:
    copy = SOLUTION.replace("x", "inputs").replace("W", "weights").replace("db", "grad") + "# my own words\n"
    other = "import numpy as np\n" + "\n".join(
        f"def g{i}(a):\n    out = []\n    for k in range(len(a)):\n        out.append(np.exp(a[k]))\n    return out"
        for i in range(3)
    )
    assert alike(SOLUTION, copy) > 0.95
    assert alike(SOLUTION, other) < 0.2
    assert alike(SOLUTION, SOLUTION, given=SOLUTION) == 0
    assert alike("1 +", SOLUTION) == 0
