"""Test that 91 wrong gradients fail, at least 3/4 with the correct cause, and 40 unusual correct functions pass."""

from collections import Counter

import numpy as np
import pytest

from minintk.grade import Assignment, Exercise, Gradient, Values, check_gradient, compare, grade
from tests.minintk.grade.more_gradients import MISTAKES, UNUSUAL, diagnosed, judged


@pytest.mark.parametrize("row", MISTAKES[::6], ids=lambda row: f"{row[0]}: {row[2][:20]}")
def test_a_sample_is_refused(row: tuple[str, str, str, str]) -> None:
    outcome, text = judged(*row)
    assert outcome == ("named" if row[3] else "numbers"), text


@pytest.mark.slow
def test_all_are_refused_and_most_are_named() -> None:
    found = Counter(judged(*row)[0] for row in MISTAKES)
    assert sum(found.values()) == len(MISTAKES) == 91
    assert found["accepted"] == 0
    assert found["named"] >= 0.75 * 91, found
    assert found["misnamed"] <= 0.03 * 91, found


@pytest.mark.parametrize("row", UNUSUAL, ids=lambda row: f"{row[0]}: {row[2][:20]}")
def test_right_and_unusual_ones_pass(row: tuple[str, str, str]) -> None:
    said = diagnosed(*row)
    assert said.passed, said


def test_there_are_forty() -> None:
    assert len(UNUSUAL) == 40


X = np.random.default_rng(0).standard_normal((5, 4))


def test_a_root_of_numpys_may_be_allowed() -> None:
    """np.sqrt(4) is a float64 scalar, which turns float32 arrays into float64. `dtype=False` accepts this."""

    def forward(x: np.ndarray) -> np.ndarray:
        return x / np.sqrt(x.shape[1])

    def backward(u: np.ndarray, x: np.ndarray) -> np.ndarray:
        return u / np.sqrt(x.shape[1])

    assert "float32 arguments give float64: keep x.dtype" in str(check_gradient(forward, backward, (X,)))
    assert check_gradient(forward, backward, (X,), dtype=False).passed


def test_N_and_C_are_told_apart_where_they_can_be() -> None:
    assert "len(y)" in str(compare("db", X[0] / 4, X[0]))  # any axis of length four may be meant
    square = X[:4]
    for x, word in ((X, "1/N"), (square, "1/(N or C)")):
        said = check_gradient(lambda x: 1 * x, lambda u, x: u / x.dtype.type(len(x)), (x,))
        assert word in str(said), said


def test_the_line_of_a_warning_is_told(tmp_path: object) -> None:
    path = f"{tmp_path}/sub.py"
    with open(path, "w") as file:
        file.write("import numpy as np\n\n\ndef f(x):\n    return np.log(x) * 0\n")
    cases = [Values("f", (np.array([1.0, 0.0]),), np.zeros(2))]
    for isolated in (True, False):
        found = grade(Assignment("a", [Exercise("logarithm", 1, cases)]), path, isolated=isolated)
        assert "NumPy: divide by zero encountered in log (line 5)" in found.exercises[0].text, found.exercises[0].text


def test_a_complex_step_is_refused(tmp_path: object) -> None:
    path = f"{tmp_path}/sub.py"
    hidden = "np.tanh(x + 1e-30j).view(float).reshape(*x.shape, 2)[..., 1] / 1e-30"
    for slope, passes in (
        ("np.tanh(x + 1e-30j).imag / 1e-30", False), (hidden, False), ("1 - np.tanh(x) ** 2", True)
    ):  # fmt: skip
        with open(path, "w") as file:
            file.write(f"import numpy as np\n\ndef f(x): return np.tanh(x)\n\ndef g(u, x): return u * ({slope})\n")
        cases = [Gradient("f", "g", (X,))]
        found = grade(Assignment("a", [Exercise("slope", 1, cases)]), path, isolated=False)
        assert (found.score == 1) == passes
        assert passes or "line 5 has complex numbers" in found.exercises[0].text
