"""Test the library under a browser's restrictions: without threads, processes, mapped files, Numba and CuPy."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.thinned import thinned

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("[0-9]*.md"))
QUICK = {"2-kernels"}
"""Notebooks that run in a few seconds. The other notebooks are marked slow."""

VERIFY = """
import sys
from analytic import verify
result = verify.run(widths=(8, 16, 32), depth=1, activations=["erf"], seeds=4)
assert result.verdict in ("pass", "fail", "undecided"), result
verify.write(result, sys.argv[0] + ".report")
"""

GRADER = """
import sys
sys.path.insert(0, {tiny!r})
from tests.minintk.grade import tiny
from pathlib import Path
from minintk.grade import grade

here = Path(sys.argv[0]).parent
for name, text in (("right", tiny.SOLUTION), ("wrong", "def dense(x, W, b): pass")):
    (here / f"{{name}}.py").write_text(text)
right, wrong = (grade(tiny.assignment, here / f"{{name}}.py", isolated=False) for name in ("right", "wrong"))
assert (right.score, wrong.score) == (right.points, 0), (right, wrong)
try:
    grade(tiny.assignment, here / "right.py")
except RuntimeError as error:
    assert "isolated=False" in str(error), error
else:
    raise AssertionError("a process started")
"""

LIBRARY = """
import sys
import numpy as np, minintk as mn, analytic as an

x, y = mn.datasets.digits().subset(40, np.random.default_rng(0)).one_hot()
images = mn.datasets.digits().images().subset(3, np.random.default_rng(0)).x
spec = mn.Sequential(mn.Conv2d(4, 3), mn.ReLU(), mn.Flatten(), mn.Dense(1))
assert an.kernel(spec).both(images).ntk.shape == (3, 3)
wide = np.random.default_rng(0).standard_normal((1500, 30))  # several tiles: threads are asked for
k = an.kernel(mn.Sequential(mn.Dense(1), mn.ReLU(), mn.Dense(1)))
assert np.array_equal(k.ntk(wide), k.ntk(wide).T)
net = mn.Network(mn.Sequential(mn.Dense(16), mn.ReLU(), mn.Dense(10)), x.shape[1:])
place = sys.argv[0] + ".checkpoint"
for epochs in (1, 2):  # the second run continues the first
    run = mn.fit(
        net, net.init(np.random.default_rng(0)), x, y, loss=mn.mse, optimizer=mn.SGD(0.1), epochs=epochs, batch_size=10,
        rng=np.random.default_rng(0), checkpoint=place,
    )
print(run.history.last)
"""


def printed(*paths: Path) -> list[str]:
    """Run files as in a browser, and return the printed lines. Raise AssertionError if a file fails.

    The last line contains the numbers of threads, processes and maps that the files requested.
    """
    settings = os.environ | {"MPLBACKEND": "agg", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "4"}
    command = [sys.executable, str(HERE / "browser.py"), *map(str, paths)]
    done = subprocess.run(command, env=settings, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def run(*paths: Path) -> dict[str, int]:
    """Run files as in a browser, and return the numbers of threads, processes and maps that the files requested."""
    asked: dict[str, int] = json.loads(printed(*paths)[-1])
    return asked


def written(folder: Path, code: str) -> Path:
    path = folder / "code.py"
    path.write_text(code, encoding="utf-8")
    return path


def test_thirty_lines(tmp_path: Path) -> None:
    """In browser mode, README.md's code prints the output shown, to one unit in each number's last digit."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code, shown = (text.split(f"```{kind}\n")[1].split("```")[0] for kind in ("python", "text"))
    said = printed(written(tmp_path, code))[:-1]
    number = re.compile(r"\d+\.?\d*")
    assert [number.sub("#", line) for line in said] == [number.sub("#", line) for line in shown.splitlines()]
    for got, want in zip(number.findall("\n".join(said)), number.findall(shown), strict=True):
        assert abs(float(got) - float(want)) <= 1.001 * 10.0 ** -len(want.partition(".")[2]), (got, want)


def test_threads_are_asked_for_and_done_without(tmp_path: Path) -> None:
    asked = run(written(tmp_path, LIBRARY))
    assert asked["threads"] > 0
    assert asked["maps"] == 0


def test_a_small_verify(tmp_path: Path) -> None:
    run(written(tmp_path, VERIFY))
    assert list(tmp_path.rglob("*.png"))


def test_the_grader_without_its_isolation(tmp_path: Path) -> None:
    asked = run(written(tmp_path, GRADER.format(tiny=str(ROOT / "tests" / "minintk" / "grade"))))
    assert asked["processes"] == 1  # from the last call, whose error says what to do instead


@pytest.mark.parametrize(
    "code",
    thinned(
        [
            "import threading; threading.Thread(target=print).start()",
            "from concurrent.futures import ThreadPoolExecutor; ThreadPoolExecutor(1).submit(int)",
            "import os; os.fork()",
            "import subprocess, sys; subprocess.run([sys.executable, '-V'])",
            "import numpy as np, sys; np.memmap(sys.argv[0] + '.map', np.uint8, 'w+', shape=9)",
            "import multiprocessing as m; m.get_context('spawn').Process(target=print).start()",
        ],
        every=2,
    ),
)
def test_all_three_are_refused(tmp_path: Path, code: str) -> None:
    with pytest.raises(AssertionError, match=r"can't start new thread|does not support processes|does not map files"):
        run(written(tmp_path, code))


@pytest.mark.parametrize(
    "notebook",
    [pytest.param(p, id=p.stem, marks=[] if p.stem in QUICK else pytest.mark.slow) for p in NOTEBOOKS],
)
def test_notebook(notebook: Path) -> None:
    run(notebook)
