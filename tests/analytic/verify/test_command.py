"""Test `minintk verify`: its statistics are calibrated, its theory is correct, and it fails if the theory is wrong."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic import verify
from analytic.kernels import Both, Kernel
from analytic.training.gp import Ensemble, ensemble
from analytic.verify import command, experiment, networks
from analytic.verify.claims import CLAIMS, Score, critical_z, judge
from analytic.verify.problem import ACTIVATIONS, N_TEST, N_TRAIN, network_spec, problem
from analytic.verify.report import html
from minintk.arrays import device_namespace, to_host
from minintk.diagnostics import kernel_movement, power_law, relative_distance, weight_movement
from tests.kit.arrays_under_test import namespace

Array = np.ndarray[Any, Any]

QUICK: dict[str, Any] = {"widths": (32, 64, 128, 256), "depth": 1, "activations": ("erf",), "seeds": 16}
LESS = QUICK | {"widths": (32, 64, 128), "seeds": 8}
"""Settings that suffice to detect large errors."""


# ------------------------------------------------------------------------------------------ diagnostics


def test_a_linearised_network_has_a_kernel_that_does_not_move() -> None:
    net = mn.Network(mn.Sequential(mn.Dense(8), mn.Tanh(), mn.Dense(1)), (3,))
    rng = np.random.default_rng(0)
    theta0, theta = net.init(rng, ensemble=2), net.init(rng, ensemble=2)
    x = rng.standard_normal((4, 3))
    assert np.array_equal(kernel_movement(mn.Linearized(net, theta0), theta0, theta, x), [0.0, 0.0])
    assert kernel_movement(net, theta0, theta, x).shape == (2,)
    k0, k = mn.ntk(net, theta0, x), mn.ntk(net, theta, x)
    expected = np.linalg.norm(k - k0, axis=(1, 2)) / np.linalg.norm(k0, axis=(1, 2))
    np.testing.assert_allclose(kernel_movement(net, theta0, theta, x), expected, rtol=1e-12)


def test_weight_movement_of_tensors_that_start_at_zero() -> None:
    net = mn.Network(
        mn.Sequential(mn.Dense(2, b_std=1.0, b_init="zeros"), mn.Dense(1, b_std=1.0, b_init="zeros")), (3,)
    )
    theta0 = net.init(np.random.default_rng(0))
    theta = theta0.copy()
    net.layout.unpack(theta)["0.b"][...] = 1.0
    moved = weight_movement(net, theta0, theta)
    assert (float(moved["0.W"]), float(moved["0.b"]), float(moved["1.b"])) == (0.0, np.inf, 0.0)


def test_movement_of_kernels_at_the_edges() -> None:
    """Distances are right for zero kernels and squares beyond float32's range. NaN and wrong shapes raise errors."""
    one, zero = np.ones((2, 3, 3)), np.zeros((3, 3))
    assert relative_distance(one, zero).tolist() == [np.inf] * 2
    assert relative_distance(zero, zero) == 0
    for size in (1e-30, 1e30):
        a, b = (np.full((3, 3), c * size, np.float32) for c in (3.0, 2.0))
        assert float(relative_distance(a, b)) == pytest.approx(0.5)
    with pytest.raises(ValueError, match=r"of one \(N, M\), got \(2, 3, 3\), \(1, 3\)"):
        relative_distance(one, one[0, :1])
    with pytest.raises(ValueError, match="a holds 9 values that are NaN"):
        relative_distance(zero * np.nan, one)
    net = mn.Network(mn.Dense(2), (3,))
    with pytest.raises(ValueError, match=r"theta expects shape \(6,\) or \(E, 6\), got \(7,\)"):
        weight_movement(net, np.ones(6), np.ones(7))


def samples(exponent: float, rng: np.random.Generator, counts: tuple[int, ...] = (12, 8, 4, 2)) -> Any:
    widths = [64 * 2**i for i in range(len(counts))]
    return widths, [n**exponent * np.exp(0.3 * rng.standard_normal(S)) for n, S in zip(widths, counts)]


def test_the_power_laws_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    fits = [power_law(*samples(-0.5, rng), resamples=500) for _ in range(400)]
    covered = sum(fit.interval[0] <= -0.5 <= fit.interval[1] for fit in fits)
    assert 0.92 * 400 <= covered <= 0.98 * 400
    z = np.array([(fit.exponent + 0.5) / fit.error for fit in fits])
    assert abs(z.mean()) < 4 / 20
    assert 0.9 < z.std() < 1.15


@pytest.mark.parametrize("counts", [(2, 2), (2, 2, 2), (3, 3, 3), (1, 1, 1, 4)])
def test_the_interval_covers_with_few_seeds_too(counts: tuple[int, ...]) -> None:
    """The coverage is 95 % (|z| < 4.9). Without Student's t, it would be 80 to 86 % for two seeds per width."""
    rng, trials = np.random.default_rng(1), 600
    fits = [power_law(*samples(-0.5, rng, counts), resamples=400) for _ in range(trials)]
    z = np.sqrt(trials / (0.95 * 0.05)) * (np.mean([f.interval[0] <= -0.5 <= f.interval[1] for f in fits]) - 0.95)
    assert abs(z) < 4.9, z


def test_the_power_laws_band_contains_its_line() -> None:
    fit = power_law(*samples(-1.0, np.random.default_rng(0)))
    low, high = fit.band([64, 200, 512])
    assert np.all((low < fit([64, 200, 512])) & (fit([64, 200, 512]) < high))


@pytest.mark.parametrize(
    ("widths", "values", "says"),
    [
        ([64], [np.ones(3)], "two or more widths"),
        ([64, 64], [np.ones(3), np.ones(3)], "two or more widths"),
        ([64, 128], [np.ones(3)], "two or more widths"),
        ([64, 128], [np.ones(3), np.zeros(3)], "positive finite values"),
        ([64, 128], [np.ones(3), np.array([np.nan])], "positive finite values"),
        ([64, 128], [np.ones(1), np.ones(1)], "two or more seeds"),
    ],
)
def test_power_law_refuses(widths: Any, values: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        power_law(widths, values)
    with pytest.raises(ValueError, match="resamples expects"):
        power_law([64, 128], [np.arange(1.0, 4.0)] * 2, resamples=0)
    for confidence in (0.0, 1.0, 95):
        with pytest.raises(ValueError, match="confidence expects a number between 0 and 1"):
            power_law([64, 128], [np.arange(1.0, 4.0)] * 2, confidence=confidence)


# ----------------------------------------------------------------------------------------------- theory


@pytest.fixture(scope="module")
def given() -> Any:
    return problem("digits", np.random.default_rng(0))


def test_the_rate_stays_below_the_bound_of_every_narrow_network(given: Any) -> None:
    """Networks of width 4 lower the rate to a fraction of their smallest bound. Networks of width 256 do not."""
    bench = experiment._Bench("relu", 1, given, np, 0, lambda part: None)
    ntk = an.kernel(network_spec("relu", 4, 1)).ntk(given.x)
    limit = experiment.LR * an.max_learning_rate(ntk[:N_TRAIN, :N_TRAIN])
    assert experiment._learning_rate(bench, ntk, [(256, 4, 0)]) == limit
    own = mn.ntk(net := bench.net(4), net.init(bench.rng(4), ensemble=16), given.x)
    lowest = 0.8 * min(an.max_learning_rate(k) for k in own)
    assert experiment._learning_rate(bench, ntk, [(256, 4, 0), (4, 16, 0)]) == lowest < limit


def trained(K: Array, Theta: Array, y: Array, lr: float) -> Ensemble:
    """Return an ensemble of infinitely wide networks with the kernels K and Theta, trained by gradient descent."""
    return ensemble((K, Theta), np.arange(N_TRAIN), y, lr=lr, by="descent")


def test_moments_are_those_of_gradient_descent_step_by_step(given: Any) -> None:
    """Compare moments of Lee et al.'s equations (14) and (15) with 20 steps f <- f - lr/N Theta (f - y).

    The steps are composed into one affine map of f_0.
    """
    K, Theta = an.kernel(network_spec("erf", 8, 2)).both(given.points)
    N, lr = N_TRAIN, 0.3
    update = np.eye(len(K))  # f_t = B f_0 + b: one affine map per step
    update[:, :N] -= lr / N * Theta[:, :N]
    B, b = np.eye(len(K)), np.zeros((len(K), 1))
    for _ in range(20):
        B, b = update @ B, update @ b + lr / N * Theta[:, :N] @ given.y
    mean, cov = trained(K, Theta, given.y, lr).predict(np.arange(len(K)), np.array([0, 20]), cov=True)
    np.testing.assert_allclose(mean[1], b, atol=1e-12)
    np.testing.assert_allclose(cov[1], B @ K @ B.T, atol=1e-12)
    np.testing.assert_allclose(cov[0], K, atol=1e-12)


def test_moments_of_the_last_layer_alone(given: Any) -> None:
    """Compare the mean and the covariance with steps in which K replaces Theta, for training the last layer only."""
    K, Theta = an.kernel(network_spec("erf", 8, 2)).both(given.points)
    N, lr = N_TRAIN, 0.3
    update = np.eye(len(K))
    update[:, :N] -= lr / N * K[:, :N]
    B = np.linalg.matrix_power(update, 20)
    how: Any = {"kind": "nngp", "cov": True}
    mean, cov = trained(K, Theta, given.y, lr).predict(np.arange(len(K)), np.array([20]), **how)
    np.testing.assert_allclose(cov[0], B @ K @ B.T, atol=1e-12)
    want = np.zeros((len(K), 1))
    for _ in range(20):
        want -= lr / N * K[:, :N] @ (want[:N] - given.y)
    np.testing.assert_allclose(mean, want[None], atol=1e-12)


def test_moments_of_small_steps_are_those_of_the_flow(given: Any) -> None:
    """Extrapolate two learning rates to 0, and compare with analytic.ensemble (gradient flow)."""
    spec = network_spec("relu", 8, 2)
    K, Theta = an.kernel(spec).both(given.points)
    t, lr = 8.0, 0.01
    coarse, fine = (
        trained(K, Theta, given.y, lr / i).predict(np.arange(len(K)), i * int(t / lr), cov=True) for i in (1, 2)
    )
    mean, cov = ensemble(an.kernel(spec), given.x, given.y).predict(given.points, t=t, cov=True)
    np.testing.assert_allclose(2 * fine[0] - coarse[0], mean, atol=1e-4)
    np.testing.assert_allclose(2 * fine[1] - coarse[1], cov, atol=1e-4)
    assert np.abs(coarse[0] - mean).max() > 1e-4  # the step size has an effect


# --------------------------------------------------------------------------------------------- networks


def test_a_trained_linearised_network_is_its_closed_form(given: Any) -> None:
    net = mn.Network(network_spec("relu", 32, 2), (64,))
    error = networks.linearised_training_error(
        net, given, device_namespace("cpu"), np.random.default_rng(0), lr=0.2, steps=40, every=8
    )
    assert error < 1e-12


def test_networks_train_alike_on_every_array_library(given: Any) -> None:
    net = mn.Network(network_spec("erf", 16, 2), (64,))
    arguments: Any = {"lr": 0.2, "steps": 6, "every": 3}
    here, there = (
        networks.trained_networks(net, given, xp, 3, np.random.default_rng(0), **arguments)
        for xp in (namespace("numpy"), namespace("standin"))
    )
    for name in ("f", "ntk0", "ntk", "nngp0"):
        a, b = getattr(here, name), getattr(there, name)
        assert isinstance(b, np.ndarray)
        assert a.dtype == np.float64
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)


def test_members_trained_in_pieces_are_the_same_members(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    net = mn.Network(network_spec("erf", 16, 1), (64,))

    def trained() -> networks.Trajectory:
        return networks.trained_networks(
            net,
            given,
            device_namespace("cpu"),
            5,
            np.random.default_rng(0),
            lr=0.2,
            steps=4,
            every=2,
            advance=seen.append,
        )

    seen: list[float] = []
    whole = trained()
    monkeypatch.setattr("minintk.lab.experiments.layer_sizes.ENSEMBLE_BYTES", 8 * 4 * net.size * 2)
    pieces = trained()
    np.testing.assert_allclose(whole.f, pieces.f, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(whole.movement["0.W"], pieces.movement["0.W"], rtol=1e-4)
    assert list(pieces.steps) == [0, 2, 4]
    assert sum(seen) == pytest.approx(2.0)  # progress adds up to 1 in each of two calls


def test_float32_networks_measure_what_float64_networks_do(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    K, Theta = an.kernel(network_spec("erf", 8, 2)).both(given.points)
    net = mn.Network(network_spec("erf", 256, 2), (64,))
    hidden = an.kernel(networks.hidden_part(net).spec).nngp(given.points)
    expected = trained(K, Theta, given.y, 0.5)

    def measured() -> dict[str, Array]:
        run = networks.trained_networks(
            net, given, device_namespace("cpu"), 2, np.random.default_rng(0), lr=0.5, steps=48, every=8
        )
        return networks.errors(run, expected, hidden, N_TEST)

    single = measured()
    monkeypatch.setattr(networks, "DTYPE", np.float64)
    double = measured()
    assert set(single) == {claim.key for claim in CLAIMS}
    for key in single:
        np.testing.assert_allclose(single[key], double[key], rtol=1e-3)


# ---------------------------------------------------------------------------------------------- verdicts


@pytest.mark.parametrize(
    ("activation", "key", "exponent", "verdict"),
    [
        ("relu", "ntk", -0.5, "pass"),
        ("relu", "ntk", -0.8, "fail"),
        ("relu", "ntk", -0.2, "fail"),
        ("relu", "kernel movement", -0.7, "pass"),  # a bound
        ("relu", "kernel movement", -0.2, "fail"),
        ("erf", "kernel movement", -1.0, "pass"),
        ("erf", "kernel movement", -0.7, "fail"),  # a value instead of a bound, because erf is smooth
    ],
)
def test_verdicts(activation: str, key: str, exponent: float, verdict: str) -> None:
    claim = next(claim for claim in CLAIMS if claim.key == key)
    rng = np.random.default_rng(0)
    widths = [64, 128, 256, 512, 1024, 2048]
    values = [n**exponent * np.exp(0.2 * rng.standard_normal(24)) for n in widths]
    found = judge(activation, claim, widths, values, critical_z(40))
    assert found.verdict == verdict
    assert found.cells[0].startswith("≤") == (activation == "relu" and key == "kernel movement")
    few = [value[:2] for value in values]
    if verdict == "pass":
        assert judge(activation, claim, widths, few, critical_z(40)).verdict == "undecided"


def test_two_seeds_fail_a_true_claim_no_more_often_than_a_family_wise_error() -> None:
    """Check 2000 fits of the true exponent: 3 % would fail with a normal quantile instead of that of Student's t."""
    rng, widths, claim = np.random.default_rng(0), [64, 128, 256, 512, 1024, 2048], CLAIMS[0]
    found = [judge("relu", claim, widths, [n**-0.5 * np.exp(rng.standard_normal(2)) for n in widths], critical_z(40))
             for _ in range(2000)]  # fmt: skip
    assert sum(row.verdict == "fail" for row in found) <= 2
    normal = [abs(row.fit.exponent + 0.5) > critical_z(40) * row.fit.error + 0.05 for row in found]
    assert np.mean(normal) > 0.01


def test_a_control_that_is_not_rejected_decides_nothing() -> None:
    assert Score("wrong on purpose", 8, 5.0, 3.6, control=True).verdict == "pass"
    assert Score("wrong on purpose", 8, 3.0, 3.6, control=True).verdict == "undecided"
    assert Score("mean", 8, 5.0, 3.6).verdict == "fail"


# -------------------------------------------------------------------------------------- the experiment


@pytest.fixture(scope="module")
def result() -> verify.Result:
    return verify.run(**QUICK)


def test_a_run_finds_nothing_against_the_theory(result: verify.Result) -> None:
    assert "fail" not in result.verdicts
    assert {test.verdict for test in result.studies["erf"].tests} == {"pass"}
    assert len(result.studies["erf"].rows) == len(CLAIMS) - 1  # no hidden weights at depth 1
    assert len(result.studies["erf"].tests) == experiment.Z_SCORES + 2


def test_every_check_is_printed(result: verify.Result, capsys: pytest.CaptureFixture[str]) -> None:
    """The terminal shows one row for each check. If only the linearised network fails, its row says "fail"."""
    command._show(result)
    rows = re.findall(r"(pass|undecided) *$", capsys.readouterr().out, re.MULTILINE)
    assert len(rows) == len(result.verdicts)
    command._show(replace(result, studies={name: replace(s, linearised=1e-3) for name, s in result.studies.items()}))
    assert len(re.findall(r"closed form.* 1e-03 .* fail", capsys.readouterr().out)) == len(result.studies)


def test_a_run_is_determined_by_its_seed() -> None:
    def exponents(seed: int) -> list[float]:
        found = verify.run(widths=(8, 16), depth=2, activations=("relu",), seeds=3, seed=seed)
        return [row.fit.exponent for row in found.studies["relu"].rows]

    assert exponents(1) == exponents(1) != exponents(2)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_every_activation_runs(activation: str) -> None:
    """`widths` may be a NumPy array. The settings contain plain numbers, which JSON can store."""
    found = verify.run(widths=2 ** np.arange(3, 5), depth=1, activations=(activation,), seeds=2)  # type: ignore[arg-type]
    assert found.studies[activation].linearised < 1e-9
    assert json.loads(json.dumps(found.settings))["widths"] == [8, 16]


def wrong_kernel(self: Kernel, x: Array) -> Both:
    """Return K, and Theta multiplied by 1.3."""
    K, Theta = right_kernels(self, x)
    return Both(K, 1.3 * Theta)


def wrong_dynamics(ntk: Array, y: Array, f0: Array, steps: Array, lr: float) -> Array:
    """Halve the learning rate, as a wrong factor in the loss would."""
    return right_descend(ntk, y, f0, steps, lr / 2)


def wrong_covariance(self: Any, points: Array, steps: Array, **how: Any) -> Any:
    """Return equation (15) without the transposed last term."""
    found = right_moments(self, points, steps, **how)
    if not how.get("cov"):
        return found
    A = an.gradient_descent(self.block("ntk"), np.eye(N_TRAIN), lr=self.lr).predict(
        steps, self.of("ntk")(points, self.x)
    )
    K, k = self.block("nngp"), self.of("nngp")(self.x, points)
    return found[0], self.of("nngp")(points) + A @ K @ A.swapaxes(-1, -2) - A @ k


right_kernels, right_descend, right_moments = Kernel.both, networks.descend, Ensemble.predict


@pytest.mark.parametrize(
    ("where", "name", "plant"),
    [
        (Kernel, "both", wrong_kernel),
        (networks, "descend", wrong_dynamics),
        (Ensemble, "predict", wrong_covariance),
    ],
    ids=["kernel", "dynamics", "covariance"],
)
def test_a_wrong_theory_fails(
    where: Any, name: str, plant: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, plant)
    assert verify.run(**LESS).verdict == "fail"


def test_networks_of_another_parametrization_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """In PyTorch's parametrization, a spec gives networks that differ from those that the kernels describe."""

    def naive(spec: Any, input_shape: Any) -> mn.Network:
        return mn.Network(spec, input_shape, mn.PyTorch())

    monkeypatch.setattr(experiment, "Network", naive)
    monkeypatch.setattr(experiment, "LR", 0.001)  # PyTorch's kernel grows with the width
    assert verify.run(**LESS).verdict == "fail"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"widths": (64,)}, "two or more different widths"),
        ({"widths": (0, 64)}, "widths >= 1"),
        ({"depth": 0}, "depth expects"),
        ({"activations": ("swish",)}, "relu, .*, got swish"),
        ({"activations": ()}, "one or more"),
        ({"activations": ("erf", "erf")}, "different names"),
        ({"seeds": 1}, "seeds expects a whole number >= 2"),
        ({"seed": -1}, "seed expects"),
        ({"device": "tpu"}, "device expects"),
    ],
)
def test_settings_that_make_no_experiment(settings: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        verify.run(**settings)


def test_data_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="'digits', 'mnist', 'cifar10' or a folder"):
        verify.run(data="nowhere")
    with pytest.raises(FileNotFoundError, match="holds neither MNIST's nor CIFAR-10's files"):
        verify.run(data=tmp_path)


# -------------------------------------------------------------------------------------------- the report


def test_the_report(result: verify.Result, tmp_path: Path) -> None:
    out = tmp_path / "a" / "report"
    path = verify.write(result, out, command="minintk verify --depth 1")
    names = {"report.html", "results.json", "exponents-erf.png", "ensemble-erf.png"}
    assert {file.name for file in out.iterdir()} == names
    assert [folder.name for folder in out.parent.iterdir()] == ["report"]  # nothing left beside it
    page = path.read_text(encoding="utf-8")
    assert not re.findall(r"(?:src|href)=.(?!data:)", page)  # no external resources
    assert page.count("data:image/png;base64,") == 2
    assert "minintk verify --depth 1" in page
    assert "$" not in re.sub(r"base64,[^\"]*", "", page)
    for row in result.studies["erf"].rows:
        assert row.claim.title in page
    found = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert found["verdict"] == result.verdict
    values = found["activations"]["erf"]["rows"][0]["values"]["256"]
    np.testing.assert_array_equal(values, result.studies["erf"].rows[0].values[-1])
    assert (out / "ensemble-erf.png").read_bytes().startswith(b"\x89PNG")


def test_the_report_escapes_what_it_is_told(result: verify.Result) -> None:
    assert "<script>" not in html(result, [(f"{n}-erf.png", "", b"") for n in ("exponents", "ensemble")], "<script>")


def test_an_interrupted_report_leaves_the_old_one(
    result: verify.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "results.json").write_text("old")

    def interrupt(*_: Any) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("analytic.verify.report.html", interrupt)
    with pytest.raises(KeyboardInterrupt):
        verify.write(result, tmp_path / "out")
    assert [file.name for file in tmp_path.rglob("*")] == ["out", "results.json"]
    assert (tmp_path / "out" / "results.json").read_text() == "old"


def test_to_host_is_what_the_report_gets() -> None:
    assert isinstance(to_host(namespace("standin").ones(3)), np.ndarray)
