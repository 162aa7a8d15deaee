"""Test `minintk examine`: the files that are read, the report, and the exit status."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.lab.cli import FAILED, OK, USAGE, main
from minintk.lab.cli.options import UNDECIDED
from tests.kit import torch_standin as nn

MODEL = """
import minintk as mn, numpy as np
net = mn.Network(mn.Sequential(mn.Dense(256), mn.Erf(), mn.Dense(10)), (64,))
pair = net, net.init(np.random.default_rng(3))
def made():
    return pair
def scaled():
    return mn.Network(mn.Sequential(mn.Dense(64), mn.Erf(), mn.Dense(10, w_std=40.0)), (64,))
other = 3
from tests.kit.torch_standin import nn
module = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 10))
def made_module():
    return module
"""


@pytest.fixture
def place(tmp_path: Any) -> Any:
    data = mn.datasets.digits().subset(30, np.random.default_rng(0))
    np.savez(tmp_path / "x.npz", x=data.x, y=data.labels)
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def call(place: Any, name: Any, *options: Any) -> Any:
    fixed = (
        "--data",
        str(place / "x.npz"),
        "--no-widths",
        "--steps",
        "60",
        "--replicates",
        "3",
        "--out",
        str(place / "o"),
    )
    return main(["examine", f"{place / 'model.py'}:{name}", *fixed, *options])


@pytest.mark.parametrize("name", ["net", "pair", "made"])
def test_a_lazy_network(place: Any, name: Any, capsys: Any) -> None:
    assert call(place, name) == OK
    assert "regime: LAZY" in capsys.readouterr().out
    assert (place / "o" / "examine.html").exists()


@pytest.mark.parametrize("name", ["module", "made_module"])
def test_a_torch_module_is_lifted_with_the_shape_of_the_data(
    place: Any, name: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mn, "lift", partial(mn.lift, check=False))  # a stand-in cannot be run
    monkeypatch.setattr(nn.Module, "__call__", nn.Module.forward, raising=False)  # callable, but raises
    assert call(place, name) in (OK, FAILED, UNDECIDED)
    assert "input_shape=(64,), PyTorch(), P = 19210" in capsys.readouterr().out


def test_cross_entropy(place: Any, capsys: Any) -> None:
    assert call(place, "net", "--loss", "cross-entropy") in (OK, FAILED, UNDECIDED)
    assert "rates of torch.nn.CrossEntropyLoss" in " ".join(capsys.readouterr().out.split())
    assert call(place, "net", "--loss", "hinge") == USAGE


def test_findings_are_a_failure(place: Any, capsys: Any) -> None:
    assert call(place, "scaled") == FAILED
    assert "finding, badly scaled: outputs start" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "words"), [("nothing", "has no 'nothing'"), ("other", "expects a network")])
def test_wrong_names_are_refused(place: Any, name: Any, words: Any, capsys: Any) -> None:
    assert call(place, name) == USAGE
    assert words in capsys.readouterr().err


def test_wrong_files_are_refused(place: Any, capsys: Any) -> None:
    assert main(["examine", "nofile", "--data", "x.npz"]) == USAGE
    assert "FILE.py:NAME" in capsys.readouterr().err
    np.savez(place / "x.npz", a=np.ones(3))
    assert call(place, "net") == USAGE
    assert "arrays x and y" in capsys.readouterr().err
    np.savez(place / "x.npz", x=np.ones((4, 3)), y=np.array([-1, 1, -1, 1]))
    assert call(place, "net") == USAGE
    assert "a class in y expects a whole number >= 0, got" in capsys.readouterr().err
    (place / "x.npz").write_bytes(b"nothing")
    assert call(place, "net") == USAGE
    assert "np.savez" in capsys.readouterr().err
