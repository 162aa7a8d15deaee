"""Test that the checker of claims fails on a new sentence, an entry without its sentence, and missing evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project import claims

SOURCE = '''"""Say little.  It is exact.  It cannot be: `exact`.

    formula, exact

x : what a [bound](bounds.md) is.
"""

LIMIT = 3
"""The same bits.  Nothing else."""


def f():
    """Agrees with
    what stands elsewhere."""
    return "It is exact."
'''


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a README that makes one claim, a test of this claim, and the record that links the two."""
    for name, text in {
        "README.md": "It is exact. It is small.\n",
        "tests/test_it.py": "def test_it() -> None: ...\n",
        "claims.toml": '["README.md"]\n"It is exact." = "tests/test_it.py::test_it"\n',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(claims, "ROOT", tmp_path)
    monkeypatch.setattr(claims, "RECORD", tmp_path / "claims.toml")
    return tmp_path


def test_sentences_that_claim() -> None:
    found = ["It is exact.", "It cannot be: `exact`.", "x : what a [bound](bounds.md) is.", "The same bits."]
    assert {*claims.claims("a.py", SOURCE)} == {*found, "Agrees with what stands elsewhere."}
    page = "Ten of 10.\n\n| row | exact |\n| --- | --- |\n\n```\nexact\n```\n\n`exact`, unbounded.\n"
    assert [*claims.claims("docs/a.md", page)] == ["| row | exact |"]
    assert [*claims.claims("README.md", page)] == ["Ten of 10.", "| row | exact |"]


def test_what_is_held_passes(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert claims.main([]) == 0
    assert "1 with tests, 0 with commands, 0 with neither" in capsys.readouterr().out


def test_a_new_sentence_is_refused_until_it_has_evidence(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "README.md").write_text("It is exact at 0. It cannot fail. It is exact.\n")
    assert claims.main([]) == 1
    out = capsys.readouterr().out
    assert "README.md has a new one: It cannot fail." in out
    assert "README.md has a new one: It is exact at 0." in out
    assert "--update" in out
    assert claims.main(["--update"]) == claims.main([]) == 1
    record = (checkout / "claims.toml").read_text()
    assert '"It is exact at 0." = "open tests/test_it.py::test_it"\n"It cannot fail." = "open"\n' in record
    assert "2 with neither" in capsys.readouterr().out
    (checkout / "claims.toml").write_text(record.replace("open tests", "tests").replace('"open"', '"asks"'))
    assert claims.main([]) == 0


def test_a_sentence_that_is_gone_is_refused(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "README.md").write_text("It is small.\n")
    assert claims.main([]) == 1
    assert "README.md has lost an entry's sentence: It is exact." in capsys.readouterr().out
    assert claims.main(["--update"]) == claims.main([]) == 0
    assert "README" not in (checkout / "claims.toml").read_text()


@pytest.mark.parametrize(
    ("evidence", "right"),
    [
        ("tests/test_it.py::test_it", True),
        ("tests/test_it.py::test_it, python3 make.py bench", True),
        ("python3 make.py python tests/test_it.py --fast", True),
        ("defines", True),
        ("tests/test_it.py::test_i", False),
        ("tests/test_it.py", False),
        ("tests/test_that.py::test_it", False),
        ("tests/test_it.py::test_it, tests/test_it.py::test_that", False),
        ("python3 make.py benches", False),
        ("python3 make.py python examples/gone.py", False),
        ("it is so", False),
    ],
)
def test_evidence_has_to_be_there(checkout: Path, evidence: str, right: bool) -> None:
    assert (claims.fault(evidence) == "") == right
    record = checkout / "claims.toml"
    record.write_text(record.read_text().replace("tests/test_it.py::test_it", evidence))
    assert claims.main([]) == (not right)
