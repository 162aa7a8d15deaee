"""Test `minintk doctor`, and the warning if another distribution's `analytic` has overwritten minintk's."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import minintk as mn
from analytic.fast.accelerate import faster
from minintk.lab import cli, doctor

HOME = Path(mn.__file__).parents[1]
FOREIGN = '"""Read CSV files."""\n\n\ndef read(path):\n    return open(path).read()\n'


def installed(place: Path) -> Path:
    """Lay out both packages in the folder `place` as after an installation, mostly by links."""
    (place / "analytic").mkdir(parents=True)
    (place / "minintk").symlink_to(HOME / "minintk", target_is_directory=True)
    for path in (HOME / "analytic").iterdir():
        if path.name not in ("__init__.py", "__pycache__"):
            (place / "analytic" / path.name).symlink_to(path, target_is_directory=path.is_dir())
    (place / "analytic" / "__init__.py").write_text((HOME / "analytic" / "__init__.py").read_text())
    return place


def distribution(place: Path) -> Path:
    """Return a wheel of another project that has a package `analytic`."""
    wheel, info = place / "analytic-1.0-py3-none-any.whl", "analytic-1.0.dist-info"
    files = {
        "analytic/__init__.py": FOREIGN,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: analytic\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel


def said(home: Path) -> subprocess.CompletedProcess[str]:
    """Run the doctor's check of `analytic` and an import from it in a process that uses `home`. Return the process."""
    code = "import minintk.lab.doctor as d; print(d.analytic()); import analytic.verify.networks"
    env = {**os.environ, "PYTHONPATH": str(home)}
    env.pop("PYTHONWARNINGS", None)
    return subprocess.run([sys.executable, "-c", code], cwd=home, env=env, capture_output=True, text=True, check=False)


@pytest.mark.skipif(os.name == "nt", reason="needs links to folders")
def test_another_distribution_on_top_is_named_with_the_remedy(tmp_path: Path) -> None:
    """The doctor reports another project's wheel that was unpacked over minintk's files.

    Nothing is reported before the wheel is unpacked. After the wheel's removal, the missing file is reported.
    """
    home = installed(tmp_path / "site")
    assert mn.other_analytic(home) is None
    with zipfile.ZipFile(distribution(tmp_path)) as wheel:
        wheel.extractall(home)
        removed = [name for name in wheel.namelist() if name.startswith("analytic/")]
    for what in ("is of another distribution", "is missing: another one was removed"):
        done = said(home)
        assert done.returncode == 0, done.stderr
        assert f"RuntimeWarning: {home / 'analytic' / '__init__.py'} {what}" in done.stderr
        assert "pip uninstall -y analytic, then pip install --force-reinstall --no-deps minintk" in done.stderr
        assert done.stdout.startswith("('analytic'")
        assert done.stdout.endswith("True)\n")
        for name in removed:
            (home / name).unlink()
        removed = []


def test_minintk_alone_has_nothing_to_say_of_analytic(tmp_path: Path) -> None:
    assert mn.other_analytic(tmp_path) is None


def test_a_package_that_comes_first_on_the_path_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere:
        origin = "/home/me/analytic.py"

    monkeypatch.setattr(doctor, "find_spec", lambda name: Elsewhere())
    _, found, broken = doctor.analytic()
    assert broken
    assert "first on sys.path, got /home/me/analytic.py: rename" in found
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    assert "got None" in doctor.analytic()[1]


def test_the_doctor_lists_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == cli.OK
    out = capsys.readouterr().out
    assert all(what in out for what in ("Python", "numpy", "analytic", "GFLOP/s", "GB free", "GPU", "temporary files"))


BROKEN: list[tuple[str, Any, str]] = [
    ("import_module", lambda name: (_ for _ in ()).throw(OSError("libcudart.so.12: cannot open")), "does not load"),
    ("device_namespace", lambda device: (_ for _ in ()).throw(RuntimeError("no driver")), "not used: no driver"),
    ("tempfile.TemporaryFile", lambda dir: (_ for _ in ()).throw(PermissionError(13, "denied")), "cannot be written"),
]


@pytest.mark.parametrize(("name", "plant", "words"), BROKEN, ids=[name for name, *_ in BROKEN])
def test_what_is_broken_makes_the_status_1(
    name: str, plant: Any, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(f"minintk.lab.doctor.{name}", plant)
    monkeypatch.setattr(doctor, "find_spec", lambda package: package == "cupy" or None)
    monkeypatch.setattr(doctor, "analytic", lambda: ("analytic", "", False))
    assert cli.main(["doctor"]) == cli.FAILED
    assert words in capsys.readouterr().out


def test_an_extra_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    assert doctor.package("pandas") == ("pandas", "not installed: pip install 'minintk[tables]'", False)
    monkeypatch.setitem(sys.modules, "scipy", None)
    assert doctor.package("scipy")[2]


COMPILED_NOW = """
import numpy as np, minintk as mn, analytic as an
from minintk.fast.numba_here import numba_is_here
assert numba_is_here()
from numba.core import event
class Listener(event.Listener):
    def on_start(self, event):
        print(event.data["dispatcher"].py_func.__qualname__)
    def on_end(self, event):
        pass
event.register("numba:compile", Listener())
conv = mn.Residual(mn.Sequential(mn.BatchNorm(), mn.ReLU(), mn.Conv2d(32, 3)))
spec = mn.Sequential(mn.Conv2d(32, 5), conv, mn.MaxPool(2), mn.Conv2d(16, 3, stride=2), mn.Flatten(), mn.Dense(10))
rng = np.random.default_rng(0)
for dtype in ("f4", "f8"):
    net, x = mn.Network(spec, (16, 16, 3)), rng.standard_normal((64, 16, 16, 3)).astype(dtype)
    x.flags.writeable = False
    for state in mn.train(net, net.init(rng, dtype=x.dtype), x, np.eye(10, dtype=dtype)[rng.integers(0, 10, 64)],
                          loss=mn.softmax_cross_entropy, optimizer=mn.SGD(lr=0.01), steps=2):
        pass
    mn.ntk(net.calibrate(state.theta, x), state.theta, x[:8])
    an.kernel(mn.Sequential(mn.Conv2d(1, 3), mn.ReLU(), mn.Conv2d(1, 3), mn.GELU(), mn.GlobalAvgPool())).ntk(x)
"""


@pytest.mark.slow
def test_nothing_is_left_to_compile_after_the_doctor(tmp_path: Path) -> None:
    """With an empty cache, training and kernels of images compile loops; after `doctor --compile`, they do not."""
    pytest.importorskip("numba")

    def run(*args: str, folder: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / folder)}
        return subprocess.run([sys.executable, *args], env=environment, capture_output=True, text=True, check=True)

    fresh = run("-c", COMPILED_NOW, folder="fresh")
    assert {"correlate", "add_gradient", "follow", "centre"} <= set(fresh.stdout.split())
    assert fresh.stdout.split().count("correlate") == 2  # one per precision; read-only arrays need no others
    assert "compiling loops" in fresh.stderr
    assert "compiling" in run("-m", "minintk", "doctor", "--compile", folder="compiled").stderr
    after = run("-c", COMPILED_NOW, folder="compiled")
    assert after.stdout == after.stderr == ""


def test_the_doctor_says_what_compiling_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for room in ("minintk.fast.accelerate", "minintk.fast.numba_here"):
        monkeypatch.setattr(f"{room}.numba_is_here", lambda: False)
    monkeypatch.delitem(vars(faster), "lines", raising=False)
    assert cli.main(["doctor", "--compile"]) == cli.FAILED
    assert "pip install 'minintk[fast]'" in capsys.readouterr().err
