"""Test make.py without installing packages: the choice of Python, when packages are installed, and error messages."""

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

FATAL = "-W error -W ignore:invalid value encountered in matmul:RuntimeWarning"


class Checkout:
    """A folder with only the two input files of make.py. Commands are recorded but not run."""

    def __init__(self, make: ModuleType, root: Path) -> None:
        self.make, self.root, self.calls, self.failing = make, root, [], set()  # type: ignore[var-annotated]
        self.unpatched = make.call

    def call(self, command: list[str], quiet: bool = False, here: bool = False) -> int:
        line = " ".join(command[1:])
        self.calls.append(line)
        if any(part in line for part in self.failing):
            return 1
        if "venv --clear" in line or "virtualenv import" in line:
            for versions in ("pinned", "lowest", "newest"):
                if str(self.make.folder(versions)) in line.replace("'", " ").replace("]", " ").split():
                    python = Path(self.make.venv_python(versions))
                    python.parent.mkdir(parents=True, exist_ok=True)
                    python.touch()
        elif ".venv" in command[0] and not Path(command[0]).exists():
            return 127
        return 0

    def run(self, *arguments: str) -> tuple[int, list[str]]:
        self.calls.clear()
        return self.make.main(list(arguments)), list(self.calls)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    monkeypatch.syspath_prepend(str(ROOT))
    make = importlib.import_module("make")
    places = {"ROOT": "", "VENV": ".venv", "BOOTSTRAP": ".bootstrap", "CONSTRAINTS": "constraints.txt"}
    for name, place in places.items():
        monkeypatch.setattr(make, name, tmp_path / place)
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    made = Checkout(make, tmp_path)
    monkeypatch.setattr(make, "call", made.call)
    return made


def test_first_run_makes_the_environment_and_later_runs_find_it(checkout: Checkout) -> None:
    status, calls = checkout.run("verify", "--seeds", "3")
    assert status == 0
    assert calls[-1] == "-m minintk verify --seeds 3"
    assert [c for c in calls if "venv --clear" in c]
    pins = f"--constraint {checkout.root / 'constraints.txt'}"
    assert f"-m pip install --quiet --editable . {pins}" in calls
    assert checkout.run("verify") == (0, ["-m minintk verify"])
    status, calls = checkout.run("test", "-x")  # needs an extra: one more install, into the same environment
    assert calls == [
        "-c import pip",
        f"-m pip install --quiet --editable .[test] {pins}",
        f"-m pytest -n auto --maxprocesses=4 --dist=worksteal {FATAL} -x",
    ]


def test_a_change_of_what_is_asked_for_installs_again_and_no_other_does(checkout: Checkout) -> None:
    checkout.run("verify")
    pyproject = checkout.root / "pyproject.toml"
    pyproject.write_text(pyproject.read_text() + "\n[tool.other]\nlines = 3\n")
    assert checkout.run("verify")[1] == ["-m minintk verify"]
    pyproject.write_text(pyproject.read_text().replace('"scipy>=', '"networkx", "scipy>='))
    assert any("--editable ." in c for c in checkout.run("verify")[1])
    with (checkout.root / "constraints.txt").open("a") as lines:
        lines.write("networkx==3.4\n")
    assert any("--editable ." in c for c in checkout.run("verify")[1])
    assert checkout.run("verify")[1] == ["-m minintk verify"]


def test_warnings_are_errors_under_the_constraints_alone(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "version_info", checkout.make.UNTRIED)
        calls = checkout.run("test")[1]
        assert not any("--constraint" in c or "-W" in c for c in calls)
    checkout.failing = {"--constraint"}  # the index lacks one of the versions
    (checkout.root / "constraints.txt").write_text("numpy==2.99\n")
    status, calls = checkout.run("test")
    assert status == 0
    assert calls[-3:] == [
        f"-m pip install --quiet --editable .[test] --constraint {checkout.root / 'constraints.txt'}",
        "-m pip install --quiet --editable .[test]",
        "-m pytest -n auto --maxprocesses=4 --dist=worksteal",
    ]
    assert "not all to be had here" in capsys.readouterr().err
    assert checkout.run("test")[1] == ["-m pytest -n auto --maxprocesses=4 --dist=worksteal"]  # the stamp records it
    checkout.failing = set()
    (checkout.root / "constraints.txt").write_text("numpy==2.4.6\n")
    assert checkout.run("test")[1][-1].endswith(FATAL)


def test_the_lowest_versions_are_those_that_pyproject_names(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 11, 4))
    status, calls = checkout.run("lowest", "-x")
    place = checkout.root / ".venv-lowest"
    assert status == 0
    assert calls[-2:] == [
        f"-m pip install --quiet --editable .[test] --constraint {place / 'lowest.txt'}",
        "-m pytest -n auto --maxprocesses=4 --dist=worksteal -x",
    ]
    project = checkout.make.project_table()
    asked = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    held = (place / "lowest.txt").read_text().split()
    assert [line.replace("==", ">=") for line in held] == asked
    assert all("==" in line for line in held)
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))  # another Python calls Python 3.11, if it exists
    monkeypatch.setattr(checkout.make.shutil, "which", {"python3.11": sys.executable}.get)
    assert checkout.run("lowest")[1][-1] == f"{ROOT / 'make.py'} lowest"
    checkout.failing = {"sys.exit"}
    assert checkout.run("lowest")[0] == 1
    assert "runs on Python 3.11, and none is on the PATH" in capsys.readouterr().err


def test_the_newest_versions_are_looked_for_every_time(checkout: Checkout) -> None:
    newest = "-m pip install --quiet --editable .[test] --upgrade --upgrade-strategy eager"
    assert newest in checkout.run("newest")[1]
    status, calls = checkout.run("newest", "--pre", "-k", "kernel")
    assert status == 0
    assert calls == [
        "-c import pip",
        f"{newest} --pre",
        "-m pytest -n auto --maxprocesses=4 --dist=worksteal -k kernel",
    ]
    assert not (checkout.root / ".venv").exists()


def test_exploring_draws_new_seeds_until_the_time_is_up_and_says_which_failed(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    minutes = iter(range(0, 600, 60))
    monkeypatch.setattr(checkout.make, "time", SimpleNamespace(monotonic=lambda: next(minutes)))
    status, calls = checkout.run("explore", "--minutes", "3", "tests/laws")
    rounds = [c for c in calls if c.startswith("-m pytest")]
    assert status == 0
    assert len(rounds) == 3
    assert len({c.split()[-2] for c in rounds}) == 3
    for line in rounds:
        assert line.startswith(f"-m pytest -m hypothesis --hypothesis-profile=explore -rf {FATAL} --hypothesis-seed=")
        assert line.endswith(" tests/laws")
    checkout.failing = {"-m pytest"}
    status, calls = checkout.run("explore", "--minutes=0")
    assert status == 1
    seed = calls[-1].split()[-1]
    said = capsys.readouterr().err
    assert "rounds: 1, failed: 1" in said
    assert f"make.py explore --minutes 0 {seed} tests/" in said


def test_an_interrupted_install_starts_afresh(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(command: list[str], quiet: bool = False, here: bool = False) -> int:
        if "--editable" in command:
            raise KeyboardInterrupt
        return checkout.call(command, quiet)

    with monkeypatch.context() as patch:
        patch.setattr(checkout.make, "call", interrupt)
        with pytest.raises(KeyboardInterrupt):
            checkout.run("verify")
    status, calls = checkout.run("verify")
    assert status == 0
    assert any("venv --clear" in c for c in calls)
    assert checkout.run("verify") == (0, ["-m minintk verify"])


def test_no_network_is_explained_and_tried_again_next_time(
    checkout: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout.failing = {"--editable"}
    assert checkout.run("verify")[0] == 1
    assert "No network?" in capsys.readouterr().err
    checkout.failing = set()
    status, calls = checkout.run("verify")
    assert status == 0
    assert not any("venv --clear" in c for c in calls)  # the environment itself was complete


def test_no_ensurepip_falls_back_to_virtualenv(checkout: Checkout) -> None:
    checkout.failing = {"venv --clear"}
    status, calls = checkout.run("verify")
    assert status == 0
    assert f"-m pip install -q --upgrade --target {checkout.root / '.bootstrap'} virtualenv" in calls
    assert calls[-1] == "-m minintk verify"


def test_neither_ensurepip_nor_pip_names_the_package(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    checkout.failing = {"venv --clear", "pip --version"}
    assert checkout.run("test")[0] == 1
    assert "apt install python3-venv" in capsys.readouterr().err


def test_an_old_python_hands_over_to_a_newer_one(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 8, 10))
    monkeypatch.setattr(checkout.make.shutil, "which", lambda name: sys.executable if name == "python3.12" else None)
    status, calls = checkout.run("test", "-x")
    assert status == 0
    assert calls[-1] == f"{ROOT / 'make.py'} test -x"
    monkeypatch.setattr(checkout.make.shutil, "which", lambda name: None)
    assert checkout.run("test")[0] == 1
    assert "needs Python 3.11 or newer; this is 3.8" in capsys.readouterr().err


def test_a_python_on_the_path_that_does_not_run_is_passed_over(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, good = checkout.root / "broken", checkout.root / "good"
    for path in (broken, good):
        path.touch()
    places = {"python3.13": str(broken), "python3": str(good)}
    monkeypatch.setattr(checkout.make.shutil, "which", places.get)
    monkeypatch.setattr(checkout.make, "call", lambda command, quiet=False: 127 if command[0] == str(broken) else 0)
    assert checkout.make.find_python() == str(good)


@pytest.mark.parametrize("handed_over", [False, True])
def test_python_runs_files_of_the_folder_that_the_caller_is_in(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, handed_over: bool
) -> None:
    """`make.py python` runs in the caller's folder. Other commands run in the checkout."""
    found: list[tuple[str, str | None]] = []

    def watch(command: list[str], *, cwd: str | None, **rest: Any) -> int:
        found.append((" ".join(command[1:]), cwd))
        return 0

    with monkeypatch.context() as patch:
        if handed_over:
            patch.setattr(sys, "version_info", (3, 8, 10))
            patch.setattr(checkout.make.shutil, "which", {"python3.12": sys.executable}.get)
        patch.setattr(checkout.make, "ensure", lambda *how: True)
        patch.setattr(checkout.make, "call", checkout.unpatched)
        patch.setattr(checkout.make.subprocess, "call", watch)
        assert (checkout.make.main(["python", "mine.py"]), checkout.make.main(["verify"])) == (0, 0)
    mine, verify = (cwd for line, cwd in found if line.endswith(("mine.py", "verify")))
    assert mine is None  # None: the caller's folder
    assert verify == (None if handed_over else str(checkout.root))


def test_the_exit_status_is_the_first_failure_and_all_parts_run(checkout: Checkout) -> None:
    checkout.failing = {"ruff check"}
    status, calls = checkout.run("lint")
    assert status == 1
    own = ["tests/project/words.py", "-m tests.project.claims"]
    assert calls[-5:] == ["-m ruff check", "-m ruff format --check", *own, "-m mypy"]


def test_unknown_commands_show_the_list(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    assert checkout.run("tset") == (2, [])
    assert "make.py verify" in capsys.readouterr().err
    assert checkout.run("--help") == (0, [])


def test_clean_stays_inside_and_leaves_the_environment(checkout: Checkout) -> None:
    for name in (".venv/bin", ".mypy_cache/x", "minintk/__pycache__", "out"):
        (checkout.root / name).mkdir(parents=True)
    assert checkout.run("clean")[0] == 0
    left = {".venv", "constraints.txt", "minintk", "out", "pyproject.toml"}
    assert {p.name for p in checkout.root.iterdir()} == left
    assert list((checkout.root / "minintk").iterdir()) == []


def test_child_processes_do_not_inherit_another_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    make: Any = importlib.import_module("make")
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    child = make.environment()
    assert not {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"} & child.keys()
    assert child["PIP_USER"] == "0"
    # old Pythons must be able to parse the script, which reports that they are too old
    import ast

    ast.parse((ROOT / "make.py").read_text(encoding="utf-8"), feature_version=(3, 7))


def test_the_workflow_calls_commands_that_there_are() -> None:
    """All commands of make.py in .github/workflows/ci.yml exist, and pyproject.toml lists its Python versions."""
    workflow = ROOT / ".github" / "workflows" / "ci.yml"
    if not workflow.exists():
        pytest.skip("there is no workflow in this tree (an sdist, say)")
    text, make = workflow.read_text(encoding="utf-8"), importlib.import_module("make")
    called = re.findall(r"run: python\S* make\.py (\S+)", text)
    assert len(called) == 3
    assert set(called) <= set(make.COMMANDS)
    tried = re.search(r"python: \[(.*)\]", text)
    assert tried is not None
    classifiers = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert all(f':: {version}"' in classifiers for version in re.findall(r"3\.\d+", tried[1]))
