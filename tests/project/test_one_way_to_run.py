"""Test that runs of papers' scripts are recorded, and that a killed script resumes and gives the same bytes."""

import importlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.stats import t as student

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = '''
"""Square roots."""
import os, sys, time
from pathlib import Path
sys.path.insert(0, {examples!r})
from common import Row, command_line, finish, interval
SIZES = {{"small": {{"numbers": 5}}, "paper": {{"numbers": 60}}}}

def root_of(data, number, seed):
    (Path({folder!r}) / f"pid-{{os.getpid()}}").touch()
    while number == 4 and not Path({folder!r}, "go").exists():
        time.sleep(0.01)
    if number == 3:
        raise FloatingPointError("diverged in step 7")
    return [{{"root": number**0.5 + s}} for s in seed]

def main(s, numbers: int):
    runs = s.sweep(root_of, {{"number": range(numbers), "seed": (0, 1)}}, together="seed", data=s.data)
    roots = {{str(n): interval(runs["root"][n]) for n in range(numbers)}}
    def draw(plt):
        plt.plot(runs["root"])
    return finish(s, {{"roots": roots, "diverged": runs.diverged.tolist()}}, [Row("roots", "sqrt", "sqrt")], draw)

if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "roots")
'''


@pytest.fixture
def roots(tmp_path: Path) -> Path:
    """Return the path of a script like those in examples/. The script cannot end before the file `go` exists."""
    (tmp_path / "go").touch()
    path = tmp_path / "examples" / "roots.py"
    path.parent.mkdir()
    path.write_text(SCRIPT.format(examples=str(ROOT / "examples"), folder=str(tmp_path)))
    return path


@pytest.fixture
def common(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    return importlib.import_module("common")


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in Linux's /proc")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # which error depends on when the process ends
        return False


def all_end(pids: list[int], within: float = 20.0) -> bool:
    end = time.monotonic() + within
    while time.monotonic() < end:
        if not any(map(alive, pids)):
            return True
        time.sleep(0.1)
    return False


def workers_of(folder: Path, at_least: int) -> list[int]:
    """Wait until `root_of` has begun in at least `at_least` processes, and return the process ids."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = [int(path.name.split("-")[1]) for path in folder.glob("pid-*")]
        if len(found) >= at_least:
            return found
        time.sleep(0.05)
    raise AssertionError("no work has begun")


@needs_proc
def test_a_script_killed_goes_on_and_ends_with_the_same_bytes(roots: Path, tmp_path: Path) -> None:
    def start(out: str) -> "subprocess.Popen[str]":
        command = [sys.executable, str(roots), "--out", str(tmp_path / out)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    whole = start("whole")
    assert "roots" in whole.communicate()[0]
    assert whole.returncode == 0
    for path in tmp_path.glob("pid-*"):
        path.unlink()

    (tmp_path / "go").unlink()
    killed = start("killed")
    pids = workers_of(tmp_path, 1)
    records = tmp_path / "killed" / "roots.runs" / "root_of" / "records"
    while not list(records.glob("*.json")):
        assert killed.poll() is None
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert all_end(pids + workers_of(tmp_path, 1))  # no worker outlives its parent
    kept = {path: path.stat().st_mtime_ns for path in records.glob("*.json")}
    assert 0 < len(kept) < 10
    (tmp_path / "go").touch()
    again = start("killed")
    again.communicate()
    assert again.returncode == 0
    assert all(path.stat().st_mtime_ns == at for path, at in kept.items())  # not computed again
    for name in ("roots.json", "roots.png", "roots.runs/root_of/results.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    found = json.loads((tmp_path / "killed" / "roots.json").read_text())
    assert found["diverged"] == [[False, False]] * 3 + [[True, True]] + [[False, False]]
    assert found["table"][0]["claim"] == "roots"


@needs_proc
def test_reproduce_killed_takes_its_script_along(roots: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from minintk.lab.experiments import papers\n"
        "from minintk.lab.cli import main\n"
        f"papers.EXAMPLES = Path({str(roots.parent)!r})\n"
        f"main(['reproduce', '--scale', 'paper', '--device', 'cpu', '--out', {str(tmp_path / 'out')!r}])"
    )
    (tmp_path / "go").unlink()
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pids = workers_of(tmp_path, 1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert all_end(pids + workers_of(tmp_path, 1))


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_reproduce_runs_a_script_to_its_end(times: int, roots: Path, tmp_path: Path) -> None:
    """`reproduce` ends without error, although a thread of the script waits for the end of `reproduce`."""
    code = (
        "import sys; from pathlib import Path; from minintk.lab.experiments import papers\n"
        "from minintk.lab.cli import main\n"
        f"papers.EXAMPLES = Path({str(roots.parent)!r})\n"
        f"sys.exit(main(['reproduce', '--out', {str(tmp_path / 'out')!r}]))"
    )
    for _ in range(times):  # the second run only draws the figure
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (found.returncode, "Fatal" in found.stderr) == (0, False), found.stderr
        assert "sqrt" in found.stdout


@pytest.mark.slow
def test_parts_make_the_whole(roots: Path, tmp_path: Path) -> None:
    def run(*options: str) -> int:
        command = [sys.executable, str(roots), "--out", str(tmp_path / "out"), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        said.append(done.stderr.splitlines()[-1])
        return done.returncode

    said: list[str] = []
    assert run("--part", "0/2") == 1  # lists the missing runs, and draws nothing
    assert "4 of 10 runs of root_of are missing, number 1, seed 0 to number 3, seed 1: run the other parts" in said[0]
    assert not (tmp_path / "out" / "roots.json").exists()
    assert len(list((tmp_path / "out" / "roots.runs" / "root_of" / "records").glob("*.json"))) == 6
    assert run("--part", "1/2") == 0
    assert (tmp_path / "out" / "roots.json").exists()


def coverage(interval_of: object, draws: int, rng: np.random.Generator, seeds: int, images: int) -> float:
    """Return the fraction of intervals that contain the true mean of a score that varies over seeds and images."""
    hits = 0
    for _ in range(draws):
        score = rng.normal(size=(seeds, 1)) + rng.normal(size=(1, images)) + rng.normal(size=(seeds, images))
        mean, half = interval_of(score)[:2]  # type: ignore[operator]
        hits += abs(mean) <= half
    return hits / draws


@pytest.mark.parametrize(("seeds", "images"), [(2, 300), (5, 40), (8, 20)])
def test_intervals_cover_what_they_say(common: ModuleType, seeds: int, images: int) -> None:
    """Intervals cover at least 95 %, up to three standard errors. With two seeds, normal intervals cover only 72 %."""
    draws = 2000
    low = 0.95 - 3 * (0.95 * 0.05 / draws) ** 0.5
    assert coverage(common.tested, draws, np.random.default_rng(1), seeds, images) > low

    def normal(score: np.ndarray) -> tuple[float, float]:
        mean, _, of, _ = common.tested(score)
        assert of == "both"
        variance = score.mean(0).var(ddof=1) / score.shape[1] + score.mean(1).var(ddof=1) / seeds
        return mean, 1.96 * variance**0.5

    if seeds == 2:
        assert coverage(normal, draws, np.random.default_rng(1), seeds, images) < low - 0.1


def test_an_interval_over_seeds_is_students(common: ModuleType) -> None:
    values = [1.0, 2.0, 4.0]
    mean, half, of, _ = common.interval(values)
    low, high = student.interval(0.95, 2, loc=np.mean(values), scale=np.std(values, ddof=1) / 3**0.5)
    assert (mean, of) == (np.mean(values), "seeds")
    assert (mean - half, mean + half) == pytest.approx((low, high))
    assert common.tested(np.array([[1.0, 0.0, 1.0]]))[2] == "images"  # one seed: only images vary
