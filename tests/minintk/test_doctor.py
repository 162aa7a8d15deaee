"""`minintk doctor`, and the warning where another distribution's `analytic` has come over ours."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import minintk as mn
from minintk import cli, doctor

HOME = Path(mn.__file__).parents[1]
FOREIGN = '"""Read CSV files."""\n\n\ndef read(path):\n    return open(path).read()\n'


def installed(place: Path) -> Path:
    """Both packages in a folder of their own, as an installer leaves them."""
    (place / "analytic").mkdir(parents=True)
    (place / "minintk").symlink_to(HOME / "minintk", target_is_directory=True)
    for path in (HOME / "analytic").iterdir():
        if path.name not in ("__init__.py", "__pycache__"):
            (place / "analytic" / path.name).symlink_to(path, target_is_directory=path.is_dir())
    (place / "analytic" / "__init__.py").write_text((HOME / "analytic" / "__init__.py").read_text())
    return place


def distribution(place: Path) -> Path:
    """A wheel of another project that has a package `analytic`."""
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
    """What `import minintk` and the doctor say there; predictions need only our modules."""
    code = "import minintk.doctor as d; print(d.analytic()); import minintk.verify.theory"
    env = {**os.environ, "PYTHONPATH": str(home)}
    env.pop("PYTHONWARNINGS", None)
    return subprocess.run([sys.executable, "-c", code], cwd=home, env=env, capture_output=True, text=True, check=False)


@pytest.mark.skipif(os.name == "nt", reason="needs links to folders")
def test_another_distribution_on_top_is_named_with_the_remedy(tmp_path: Path) -> None:
    """Before, with its wheel unpacked over ours, and after its files have been removed."""
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
    monkeypatch.setattr(f"minintk.doctor.{name}", plant)
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
