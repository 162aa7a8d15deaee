"""The whole experiment: draw, train and measure networks of every width, judge every claim."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minintk.arrays import device_namespace
from minintk.kernels import ntk as empirical_ntk
from minintk.network import Network
from minintk.spec import Sequential
from minintk.verify import theory
from minintk.verify.claims import CLAIMS, Row, Test, Verdict, critical_z, judge
from minintk.verify.networks import Trajectory, errors, hidden_part, linearised_training_error, networks
from minintk.verify.problem import ACTIVATIONS, N_TEST, N_TRAIN, Problem, network_spec, problem
from minintk.verify.scores import covariance_z, mean_z, scale_z

Array = np.ndarray[Any, Any]

WIDTHS = (32, 64, 128, 256, 512, 1024, 2048)
STEPS, EVERY = 64, 8
TIMES = (0, 8, 24, 64)
"""Steps after which the ensemble is compared with eqs. (14), (15)."""
TESTS = 2 * len(TIMES)
"""z-scores of an activation: the kernel at the start, the covariance at every time, the mean at all but the start."""
LR = 0.4
"""The learning rate, as a fraction of the analytic kernel's largest stable one."""
SCORED = 8
"""Test images whose joint distribution is compared."""
ROUNDING = 1e-9
"""What training the linearised network and its closed form may differ by, in float64."""


def members(width: int) -> int:
    """Networks drawn at a width unless told, fewer where they cost more.

    >>> [members(width) for width in WIDTHS]
    [48, 48, 48, 48, 24, 12, 6]
    """
    return max(6, min(48, 12288 // width))


def ensemble_size(widths: Sequence[int]) -> tuple[int, int]:
    """(width, members) of the ensemble for the z-scores: half as many members as units, of at most 256 units.

    What a width-n network misses, O(1/n), then stays a small part, O(n^-1/2), of the sample's standard error.

    >>> ensemble_size(WIDTHS), ensemble_size((16, 32, 64))
    ((256, 128), (64, 32))
    """
    width = max([n for n in widths if n <= 256], default=min(widths))
    return width, max(2 * SCORED, min(width // 2, 128))


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Many trained networks of one width, for the figures.

    f : (T, E, A) after steps : (T,).  mean, sd : (T, A), eqs. (14), (15).  last_layer : (T, A), the mean if only that trained.
    """

    width: int
    steps: Array
    f: Array
    mean: Array
    sd: Array
    last_layer: Array


@dataclass(frozen=True, eq=False)
class Result:
    """What `run` found.  rows : fitted exponents.  tests : z-scores.  linearised : {activation: relative difference}."""

    settings: dict[str, Any]
    problem: Problem
    rows: list[Row]
    tests: list[Test]
    linearised: dict[str, float]
    ensembles: dict[str, Ensemble] = field(repr=False)
    lr: dict[str, float]
    seconds: float

    @property
    def verdicts(self) -> list[Verdict]:
        """One for each row, then each test, then each comparison of the linearised network."""
        exact: list[Verdict] = ["pass" if error <= ROUNDING else "fail" for error in self.linearised.values()]
        return [row.verdict for row in self.rows] + [test.verdict for test in self.tests] + exact

    @property
    def verdict(self) -> Verdict:
        """fail where anything fails, else undecided where anything is, else pass."""
        found = set(self.verdicts)
        return "fail" if "fail" in found else "undecided" if "undecided" in found else "pass"


def run(
    *,
    widths: Sequence[int] = WIDTHS,
    depth: int = 2,
    activations: Sequence[str] = ("relu", "erf"),
    data: str | Path = "digits",
    seeds: int | None = None,
    device: str = "cpu",
    seed: int = 0,
    progress: Callable[[float, str], None] = lambda fraction, doing: None,
) -> Result:
    """Train real networks of growing width and compare them with infinite-width theory, claim by claim.

    widths : of the hidden layers, at least two.  depth : number of hidden layers.  activations : names in ACTIVATIONS.
    data : "digits", "mnist", "cifar10", or a folder with MNIST's or CIFAR-10's files.
    seeds : networks at every width, at least two; `members(width)` unless given.
    device : "cpu" or "gpu".  seed : of everything random.
    progress : called with the fraction done and what is being done.

    About 40 s on two cores with the defaults.  ValueError, FileNotFoundError for settings that make no experiment, before
    it begins.

    >>> result = run(widths=(8, 16, 32), depth=1, activations=["erf"], seeds=4)
    >>> [row.claim.key for row in result.rows][:2], len(result.rows)
    (['ntk', 'nngp'], 9)
    """
    started = time.perf_counter()
    widths = check(widths, depth, activations, seeds, seed)
    xp = device_namespace(device)
    given = problem(data, np.random.default_rng(seed))
    count = {n: members(n) if seeds is None else seeds for n in widths}
    clock = _Clock(progress, widths, depth, activations, count, given.x.shape[1])
    claims = [claim for claim in CLAIMS if depth > 1 or claim.key != "hidden weights"]
    critical = critical_z(len(activations) * (len(claims) + TESTS))

    rows: list[Row] = []
    tests: list[Test] = []
    lr: dict[str, float] = {}
    linearised: dict[str, float] = {}
    ensembles: dict[str, Ensemble] = {}
    for activation in activations:
        draw = _Draws(seed, activation)
        spec = network_spec(activation, widths[0], depth)
        nngp, ntk = theory.kernels(spec, given.points)
        hidden_nngp, _ = theory.kernels(hidden_part(Network(spec, given.x.shape[1:])).spec, given.points)
        expected = theory.Theory(nngp, ntk, given.y, _learning_rate(spec, given, ntk, draw(widths[0], 0), count[widths[0]]))
        lr[activation] = expected.lr

        def trained(width: int, members: int, activation: str = activation, lr: float = expected.lr, draw: _Draws = draw,
                    role: int = 0) -> Trajectory:  # fmt: skip
            net = Network(network_spec(activation, width, depth), given.x.shape[1:])
            report = clock.stage(f"{activation}, width {width}: {members} networks", width, members)
            return networks(net, given, xp, members, draw(width, role), lr=lr, steps=STEPS, every=EVERY, report=report)

        found = [errors(trained(n, count[n]), expected, hidden_nngp, N_TEST) for n in widths]
        rows += [judge(activation, c, widths, [values[c.key] for values in found], critical) for c in claims]

        width, E = ensemble_size(widths)
        members_of_one = trained(width, E, role=1)
        ensembles[activation] = _ensemble(width, members_of_one, expected)
        tests += score(activation, members_of_one, expected, critical)

        small = Network(network_spec(activation, min(widths[-1], 128), depth), given.x.shape[1:])
        linearised[activation] = linearised_training_error(
            small, given, xp, draw(0, 2), lr=expected.lr, steps=STEPS, every=EVERY
        )
    settings = {
        "widths": list(widths), "depth": depth, "activations": list(activations), "data": str(data), "seeds": seeds,
        "device": device, "seed": seed, "networks": {str(n): count[n] for n in widths}, "steps": STEPS,
    }  # fmt: skip
    return Result(settings, given, rows, tests, linearised, ensembles, lr, time.perf_counter() - started)


def check(widths: Sequence[int], depth: int, activations: Sequence[str], seeds: int | None, seed: int) -> tuple[int, ...]:
    """The widths in order, or ValueError for settings that make no experiment."""
    if len(set(widths)) < 2 or min(widths) < 1:
        raise ValueError(f"widths expects two or more different widths >= 1, got {list(widths)}: a power needs two points")
    if depth < 1:
        raise ValueError(f"depth expects a number of hidden layers >= 1, got {depth}")
    if unknown := [name for name in activations if name not in ACTIVATIONS]:
        raise ValueError(f"activation expects names among {', '.join(ACTIVATIONS)}, got {', '.join(unknown)}")
    if not activations or len(set(activations)) < len(activations):
        raise ValueError(f"activation expects one or more different names, got {list(activations)}")
    if seeds is not None and seeds < 2:
        raise ValueError(f"seeds expects 2 or more networks at each width, got {seeds}: an interval needs two")
    if seed < 0:
        raise ValueError(f"seed expects a whole number >= 0, got {seed}")
    return tuple(sorted(set(widths)))


def score(activation: str, run: Trajectory, expected: theory.Theory, critical: float) -> list[Test]:
    """The z-scores of one ensemble, and of two theories that are wrong on purpose, on the first SCORED test images."""
    points = slice(N_TRAIN, N_TRAIN + SCORED)
    at = [int(np.flatnonzero(run.steps == t)[0]) for t in TIMES]
    f = run.f[at][:, :, points]

    def moments(mean_cov: tuple[Array, Array]) -> tuple[Array, Array]:
        mean, cov = mean_cov
        return mean[:, points], cov[:, points, points]

    seen = slice(N_TRAIN + N_TEST)
    tests = [Test(activation, "mean of Θ̂₀ is Θ", 0, scale_z(run.ntk0[:, seen, seen], expected.ntk[seen, seen]), critical)]
    mean, cov = moments(expected.moments(np.array(TIMES)))
    for i, t in enumerate(TIMES):
        if t:
            tests.append(Test(activation, "mean of f_t, eq. (14)", t, mean_z(f[i], mean[i], cov[i]), critical))
        tests.append(Test(activation, "covariance of f_t, eq. (15)", t, covariance_z(f[i], cov[i]), critical))
    wrong = {
        "only the last layer trains": moments(expected.moments_of_last_layer(np.array(TIMES))),
        "the clock runs at half speed": moments(expected.moments(np.array(TIMES) // 2)),
    }
    for name, (mean, cov) in wrong.items():
        found = [(max(mean_z(f[i], mean[i], cov[i]), covariance_z(f[i], cov[i])), t) for i, t in enumerate(TIMES) if t]
        z, t = max(found)
        tests.append(Test(activation, f"wrong on purpose: {name}", t, z, critical, control=True))
    return tests


def _ensemble(width: int, run: Trajectory, expected: theory.Theory) -> Ensemble:
    """What the figures need."""
    mean, cov = expected.moments(run.steps)
    sd = np.sqrt(np.maximum(np.diagonal(cov, axis1=1, axis2=2), 0.0))
    return Ensemble(width, run.steps, run.f, mean, sd, expected.moments_of_last_layer(run.steps)[0])


def _learning_rate(spec: Sequential, given: Problem, ntk: Array, rng: np.random.Generator, members: int) -> float:
    """LR of the analytic kernel's bound, and at most 0.8 of the bound of any network of the smallest width.

    The narrowest networks' kernels scatter the most; without the second part one in a few thousand could diverge.
    """
    net = Network(spec, given.x.shape[1:])
    narrow = empirical_ntk(net, net.init(rng, ensemble=members), given.x)
    own = min(theory.max_learning_rate(k) for k in narrow)
    return min(LR * theory.max_learning_rate(ntk[:N_TRAIN, :N_TRAIN]), 0.8 * own)


@dataclass(frozen=True)
class _Draws:
    """Independent generators: for one activation, by width and by what the networks are for."""

    seed: int
    activation: str

    def __call__(self, width: int, role: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, list(ACTIVATIONS).index(self.activation), width, role])


class _Clock:
    """Turns the stages' own progress into a fraction of the whole, by their estimated arithmetic."""

    def __init__(
        self, progress: Callable[[float, str], None], widths: Sequence[int], depth: int, activations: Sequence[str],
        count: dict[int, int], d: int,
    ) -> None:  # fmt: skip
        self.progress, self.depth, self.d, self.done = progress, depth, d, 0.0
        width, E = ensemble_size(widths)
        each = sum(self.work(n, count[n]) for n in widths) + self.work(width, E)
        self.total = len(activations) * each

    def work(self, width: int, members: int) -> float:
        """Multiplications a step, and the overhead of many small ones."""
        return members * (width * (self.d + (self.depth - 1) * width) + 100 * width + 2000)

    def stage(self, doing: str, width: int, members: int) -> Callable[[float], None]:
        """Begin a stage; the result is called with the fraction of it that is done."""
        start, work = self.done, self.work(width, members)
        self.done += work
        self.progress(start / self.total, doing)
        return lambda fraction: self.progress((start + fraction * work) / self.total, doing)
