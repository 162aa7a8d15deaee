"""Test the command line: exit statuses, messages, and the files that commands write."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from analytic import verify
from analytic.kernels import Both, Kernel
from analytic.verify import networks
from minintk.lab import cli
from minintk.lab.experiments import named
from minintk.lab.experiments import papers as reproduce
from minintk.progress import progress_of
from minintk.training import checkpoints
from minintk.training.train import Descent

ROOT = Path(__file__).resolve().parents[4]
QUICK = ["verify", "--widths", "32,64,128,256", "--depth", "1", "--activation", "erf", "--seeds", "16"]
LESS = ["verify", "--widths", "32,64,128", "--depth", "1", "--activation", "erf", "--seeds", "8"]


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = cli.main(list(arguments))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_commands_have_the_same_order_in_each_call() -> None:
    first = [name for name, _ in cli.commands()]
    assert first[:2] == ["verify", "examine"]
    assert [name for name, _ in cli.commands()] == first


def test_verify_writes_a_report_and_says_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(*LESS, "--out", str(tmp_path / "out"), capsys=capsys)
    assert status in (cli.OK, cli.FAILED, cli.UNDECIDED)  # a few of the intervals may be too wide to decide
    assert "tangent kernel at the start" in out
    assert "covariance of f_t, eq. (15)" in out
    assert f"depth 1, 32 images, 48 steps; report: {tmp_path / 'out' / 'report.html'}" in out
    assert " fail" not in out
    last = " ".join(out.partition(" checks pass")[2].split())
    assert last.endswith("False alarms: 1% of runs. Power of the weakest control, at the z that it had: 100.0%.")
    assert all(line.startswith("networks: ") for line in err.splitlines())  # no bar without a terminal
    assert err.splitlines()[-1].startswith("networks: 100%")
    assert "minintk verify --widths 32,64,128 --depth 1" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(("verdict", "status"), [("pass", 0), ("fail", 1), ("undecided", 3)])
def test_the_exit_status_is_the_verdict(
    verdict: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = SimpleNamespace(verdict=verdict, problem=SimpleNamespace(x=[0.0]), settings={"steps": 1})
    monkeypatch.setattr(verify, "run", lambda **_: found)
    monkeypatch.setattr(verify, "write", lambda *_, **__: tmp_path)
    monkeypatch.setattr("analytic.verify.command._show", lambda _: None)
    assert cli.main(["verify", "--out", str(tmp_path)]) == status


def test_a_wrong_kernel_exits_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = Kernel.both
    monkeypatch.setattr(Kernel, "both", lambda self, x: Both(*(1.3 * k for k in right(self, x))))
    status, out, _ = run(*LESS, "--out", str(tmp_path / "out"), capsys=capsys)
    assert status == cli.FAILED
    assert "The networks and the theory disagree." in out
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "required: COMMAND"),
        (["verify", "--widths", "32;64"], "expects whole numbers separated by commas"),
        (["verify", "--widths", "64"], "two or more different widths"),
        (["verify", "--activation", "swish"], "activation expects names among relu"),
        (["verify", "--data", "no-such-folder"], "'digits', 'mnist', 'cifar10' or a folder"),
        (["verify", "--seeds", "1"], "seeds expects a whole number >= 2"),
        (["train", "mlp", "--seed", "-1"], "seed expects a whole number >= 0, got -1"),
        (["verify", "--device", "tpu"], "invalid choice: 'tpu'"),
        (["verify", "--depth", "0"], "depth expects"),
    ],
)
def test_a_command_that_makes_no_sense(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = run(*arguments, capsys=capsys)
    assert (status, out) == (cli.USAGE, "")
    assert says in err
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_could_not_be_written_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(**_: Any) -> None:
        raise AssertionError("the experiment began")

    monkeypatch.setattr(verify, "run", never)
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        status, _, err = run("verify", "--out", str(out), capsys=capsys)
        assert status == cli.USAGE
        assert "file" in err
    assert (tmp_path / "file").read_text() == "mine"


def test_an_interrupt_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(networks, "train", interrupt)
    status, _, err = run(*QUICK, "--out", str(tmp_path / "out"), capsys=capsys)
    assert status == cli.INTERRUPTED
    assert "interrupted; nothing was written" in err
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_gets_a_progress_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_of("networks", 2.0, shown=True) as advance:
        advance(1.0)
    assert "networks" in capsys.readouterr().err


def test_python_m_minintk() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "minintk", "--version"],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("minintk ")


# ------------------------------------------------------------------------------------------------- train


def test_train_writes_what_it_says_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command writes a curve and a history. Repeating it trains no further and prints the same result."""
    command = ["train", "mlp", "--width", "32", "--epochs", "2", "--shift", "1", "--out"]
    status, out, err = run(*command, str(tmp_path / "whole"), capsys=capsys)
    assert status == cli.OK
    assert "mlp on digits, 3,466 parameters; 1,500 images to train on, 297 to test" in out
    assert "epoch 2, " in err
    assert (tmp_path / "whole" / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "whole" / "history.json").read_text().count("test_accuracy") == 2
    again = run(*command, str(tmp_path / "whole"), capsys=capsys)
    assert again[0] == cli.OK
    assert again[2].strip() == "resuming at step 46 of 46"  # nothing left to do
    assert again[1] == out


def test_an_interrupted_train_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right, calls = Descent.advance, iter(range(1, 1000))

    def advance(self: Any, **options: Any) -> Any:
        if next(calls) == 30:
            signal.raise_signal(signal.SIGINT)
        return right(self, **options)

    command = ["train", "mlp", "--width", "32", "--epochs", "2", "--out"]
    with monkeypatch.context() as patch:
        patch.setattr(Descent, "advance", advance)
        status, _, err = run(*command, str(tmp_path / "stopped"), capsys=capsys)
    assert status == cli.INTERRUPTED
    assert f"interrupted; step 30 is saved in {tmp_path / 'stopped'}; the same call resumes from there" in err
    for folder, says in (("stopped", "resuming at step 30 of 46"), ("whole", "step 23, epoch 1")):
        status, _, err = run(*command, str(tmp_path / folder), capsys=capsys)
        assert status == cli.OK
        assert err.startswith(says)
    stopped, whole = (checkpoints.load(tmp_path / f / "checkpoint.npz")[0].theta for f in ("stopped", "whole"))
    assert np.array_equal(stopped, whole)
    status, _, err = run(*command, str(tmp_path / "whole"), "--lr", "0.1", capsys=capsys)
    assert status == cli.USAGE
    assert "belongs to another run: optimizer" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train"], "required: network"),
        (["train", "resnet"], "network expects one of mlp, lenet5, lenet"),
        (["train", "wrn-11-1"], "expects 6 N + 4"),
        (["train", "myrtle5"], "does not fit"),
        (["train", "mlp", "--data", "no-such-folder"], "'digits', 'mnist', 'cifar10' or a folder"),
        (["train", "mlp", "--data", "."], "holds neither MNIST's nor CIFAR-10's files"),
        (["train", "mlp", "--epochs", "0"], "epochs expects a whole number >= 1, got 0"),
        (["train", "mlp", "--batch-size", "2000"], "batch_size expects a whole number from 1 to 1500, got 2000"),
        (["train", "mlp", "--lr", "-1"], "expects a finite number > 0, got -1"),
        (["train", "mlp", "--width", "0"], "width expects a whole number >= 1, got 0"),
    ],
)
def test_a_train_command_that_makes_no_sense(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, err = run(*arguments, capsys=capsys)
    assert status == cli.USAGE
    assert says in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["lenet5", "lenet", "geiger_cnn", "wrn-10-1"])
def test_every_recipe_is_a_network(name: str) -> None:
    train, test = named.data("digits")
    assert (train.x.shape, test.x.shape) == ((1500, 28, 28, 1), (297, 28, 28, 1))
    net = named.network(name, (28, 28, 1), 10, width=2)
    theta = net.init(np.random.default_rng(0), dtype=np.float32)
    assert net(theta, train.x[:3]).shape == (3, 10)
    assert named.network("myrtle7", (32, 32, 3), 10, 4).outputs == 10


# --------------------------------------------------------------------------------------------- reproduce

SCRIPT = """
import json, sys
from pathlib import Path
out = Path(sys.argv[sys.argv.index("--out") + 1])
if "{name}" == "broken":
    sys.exit("no data there")
out.mkdir(parents=True, exist_ok=True)
row = {{"claim": "a claim", "paper": "[1]", "here": " ".join(sys.argv[1:]), "verdict": "undecided"}}
name = "{name}-mnist" if "--data" in sys.argv else "{name}"
(out / f"{{name}}.json").write_text(json.dumps({{"table": [row], "data": "its data"}}))
command_line = main = SIZES = lambda *_: None
if __name__ == "__main__":
    command_line(main, SIZES, __doc__, "{name}")
"""


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "examples"
    folder.mkdir()
    for name in ("first", "broken", "last"):
        (folder / f"{name}.py").write_text(SCRIPT.format(name=name))
    (folder / "common.py").write_text("def command_line(main: object, sizes: object) -> None: ...")
    monkeypatch.setattr(reproduce, "EXAMPLES", folder)
    monkeypatch.setattr("minintk.lab.cli.single.console", lambda width: Console(highlight=False, width=1000))
    return folder


def test_reproduce_runs_the_scripts_and_prints_their_tables(
    examples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, mnist = str(tmp_path / "out"), tmp_path / "mnist"
    mnist.mkdir()
    status, out, err = run("reproduce", "last", "first", "--out", folder, "--data", str(mnist), capsys=capsys)
    assert (status, err) == (cli.OK, "last, mnist\nfirst, mnist\n")
    assert "last, its data" in out
    assert "first, its data" in out
    assert "[1]" in out  # not parsed as markup
    assert out.count("undecided") == 2
    assert f"--out {folder} --data {mnist} --scale small --device cpu" in out
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"first-mnist.json", "last-mnist.json"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--out", "file"], "out expects a folder, but file is a file"),
        (["--data", "nowhere"], "data expects a folder with MNIST's or CIFAR-10's files, got 'nowhere'"),
    ],
)
def test_reproduce_refuses_folders_that_are_none_before_any_script_runs(
    options: list[str], says: str, examples: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(examples.parent)
    Path("file").touch()
    monkeypatch.setattr(reproduce, "rerun", lambda *_, **__: pytest.fail("a script began"))
    status, _, err = run("reproduce", *options, capsys=capsys)
    assert status == cli.USAGE
    assert says in err
    assert not Path("minintk-reproduce").exists()


def test_reproduce_goes_on_after_a_script_that_fails(
    examples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run("reproduce", "--out", str(tmp_path / "out"), capsys=capsys)
    assert status == cli.FAILED
    assert "broken.py failed" in err
    assert "1 of 3 scripts failed: broken" in err
    assert "first, its data" in out
    assert "last, its data" in out


def test_reproduce_knows_the_scripts_of_a_checkout_and_says_where_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {"time_to_learn", "iterative_linearisation", "reduced_alexnet"} <= set(reproduce.scripts())
    assert not {"common", "geiger", "table"} & set(reproduce.scripts())
    status, _, err = run("reproduce", "no_such_claim", capsys=capsys)
    assert status == cli.USAGE
    assert "expects names among" in err
    monkeypatch.setattr(reproduce, "EXAMPLES", tmp_path)
    status, _, err = run("reproduce", capsys=capsys)
    assert status == cli.USAGE
    assert "come with the source, not the installed package" in err


def test_reproduce_without_a_gpu_says_so_before_it_starts(
    examples: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)  # import cupy raises ImportError
    monkeypatch.setattr(reproduce, "rerun", lambda *_, **__: pytest.fail("a script began"))
    status, _, err = run("reproduce", "--scale", "paper", capsys=capsys)
    assert status == cli.USAGE
    assert "CuPy" in err or "cupy" in err


# -------------------------------------------------------------------------------------- coordinate-check

SMALL = ["coordinate-check", "--widths", "64,128,256", "--depth", "2", "--batch-size", "32"]


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--seeds", "32"], cli.OK, "pass: every"),
        (["--seeds", "16", "--optimizer", "adam"], cli.OK, "pass: every"),
        (
            ["--seeds", "8", "--parametrization", "ntk"],
            cli.FAILED,
            "to blame: 5.W, its size at the start, off by n^(+0.5",
        ),
        (["--seeds", "8", "--parametrization", "standard", "--lr", "0.01"], cli.FAILED, "to blame: 5.W"),
    ],
    ids=str,
)
def test_coordinate_check_says_which_parametrization_is_right(
    options: list[str], status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(*SMALL, *options, "--out", str(tmp_path / "out"), capsys=capsys)
    assert code == status, out + err
    assert said in out
    assert said in (tmp_path / "out" / "coordinate-check.txt").read_text(encoding="utf-8")
    assert (tmp_path / "out" / "coordinate-check.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--parametrization", "mu"],
            "parametrization expects mup, mean-field, ntk, standard, pytorch, mup:N, A/B/C or",
        ),
        (["--parametrization", "0,a/0/0"], "could not convert string to float: 'a'"),
        (["--parametrization", "0,1/0/0"], "ABC(a=...) expects a tuple (input, hidden, output) of exponents"),
        (["--parametrization", "minintk.spec.zoo:mlp"], "a parametrization or its class, got 'minintk.spec.zoo:mlp'"),
        (["--depths", "2,4"], "residual branches of the same width at every depth, but 4 and 2 differ"),
        (["--network", "transformer"], "network expects mlp, cnn, resnet or MODULE:FUNCTION, got 'transformer'"),
        (["--network", "minintk.spec.zoo:geiger_cnn"], "a window of 5 pixels does not fit into an image of 1 pixels"),
        (["--activation", "swish"], "activation expects one of tanh, relu, erf, gelu, got 'swish'"),
        (["--widths", "64"], "widths expects two different whole numbers"),
        (["--seeds", "1"], "seeds expects a whole number >= 2, got 1"),
        (["--seed", "-1"], "seed expects a whole number >= 0, got -1"),
        (["--batch-size", "-3"], "batch-size expects a whole number >= 1, got -3"),
        (["--network", "minintk.spec.zoo:nothing"], "network expects MODULE:FUNCTION, a function width -> spec"),
        (["--network", "minintk.spec.zoo:"], "network expects MODULE:FUNCTION, got 'minintk.spec.zoo:'"),
        (["--lr", "0"], "SGD(lr=...) expects a finite number > 0, got 0.0"),
        (["--lr", "1e9"], "training diverged"),
    ],
    ids=str,
)
def test_coordinate_check_refuses_what_makes_no_sense(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(*SMALL, "--activation", "relu", *options, "--out", str(tmp_path / "out"), capsys=capsys)
    assert code == cli.USAGE
    assert message in err
    assert not (tmp_path / "out").exists()


def test_transfer_says_where_the_best_rate_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In muP the best rate is constant across widths and depths. The check fails if all rates are too low or high."""
    base = ["transfer", "--widths", "32,128", "--seeds", "2", "--steps", "15", "--batch-size", "32", "--depth", "1"]
    deep = ["--depths", "2,4", "--width", "32", "--network", "resnet"]
    for options, status, said in (
        (["--optimizer", "adam", "--rates", "0.2:2"], cli.OK, "pass: constant within a factor"),
        (["--optimizer", "muon", "--rates", "0.06:1"], cli.OK, "pass: constant within a factor"),
        (["--optimizer", "adam", "--rates", "0.2:2", *deep], cli.OK, "per doubling of the depth: 2^b"),
        (["--rates", "0.01:0.1"], cli.FAILED, "fail: the best rate is at the edge of the rates at width 32, 128: add"),
        (["--rates", "1e4:1e5"], cli.FAILED, "fail: no rate trained at width 32, 128: choose smaller rates"),
    ):
        code, out, err = run(*base, *options, "--out", str(tmp_path), capsys=capsys)
        assert code == status, out + err
        assert said in out
        record = json.loads((tmp_path / "transfer.json").read_text(encoding="utf-8"))
        assert record["passed"] == (status == cli.OK)
        assert record["report"] in out
        assert np.shape(record["losses"]) == (2, len(record["rates"]), 2)
    assert run(*base, "--rates", "1", "--out", str(tmp_path), capsys=capsys)[0] == cli.USAGE


def test_coordinate_check_takes_exponents_and_a_parametrization_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "table_of_ones_own.py").write_text("import minintk as mn\nmine = mn.NTK()\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    records = []
    for table in ("ntk", "table_of_ones_own:mine", "0,0.5,0.5/0,0,0/0,0,0"):
        run(*SMALL, "--seeds", "2", "--parametrization", table, capsys=capsys)
        records.append(json.loads(Path("minintk-coordinate-check/coordinate-check.json").read_text(encoding="utf-8")))
    assert records[0]["rows"] == records[1]["rows"]
    for row in records[0]["rows"]:
        assert row["fit"]["widths"] == records[0]["widths"] == [64, 128, 256]
        if row["quantity"] in ("h", "dh"):
            assert np.shape(row["curves"]) == (3, 2, 4)  # widths, seeds, steps + 1
            np.testing.assert_array_equal(np.array(row["curves"])[..., -1], row["values"])
            assert (np.array(row["curves"])[..., 0] == 0).all() == (row["quantity"] == "dh")
    assert records[2]["title"].startswith("ABC(a=(0.0, 0.5, 0.5), b=(0.0, 0.0, 0.0), c=(0.0, 0.0, 0.0), rule='sgd')")
    (start,) = (row for row in records[2]["rows"] if (row["quantity"], row["name"]) == ("W", "5.W"))
    assert start["fit"]["interval"][0] > 0.1  # too large at the start
    assert "undecided: " in records[2]["report"]  # with two networks per width


def test_coordinate_check_finds_a_spec_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "import minintk as mn\ndef spec(n):\n    return mn.Sequential(mn.Flatten(), mn.Dense(n), mn.Dense(10))\n"
    (tmp_path / "spec_of_ones_own.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    code, out, _ = run(*SMALL, "--network", "spec_of_ones_own:spec", "--seeds", "2", capsys=capsys)
    assert code in (cli.OK, cli.FAILED)
    assert "2.W" in out
