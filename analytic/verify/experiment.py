"""Run the whole experiment: draw, train and measure networks of every width, and judge every claim."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analytic.kernels import kernel
from analytic.training.dynamics import max_learning_rate
from analytic.training.gp import Ensemble, Kind, ensemble
from analytic.verify.claims import CLAIMS, LINEARISED_TOLERANCE, Claim, JudgedClaim, Score, critical_z, judge, overall
from analytic.verify.networks import Trajectory, errors, hidden_part, linearised_training_error, trained_networks
from analytic.verify.problem import ACTIVATIONS, N_TEST, N_TRAIN, Problem, network_spec, problem
from analytic.verify.scores import covariance_z, mean_z, scale_z
from minintk.arrays import Host, device_namespace
from minintk.diagnostics.power_laws import Outcome
from minintk.models.empirical import ntk as empirical_ntk
from minintk.models.network import Network
from minintk.progress import progress_of
from minintk.validate import whole

WIDTHS = (32, 64, 128, 256, 512, 1024, 2048)
STEPS, EVERY = 48, 8
LR = 0.5
"""Learning rate, as a fraction of the largest stable rate for the analytic kernel."""
TIMES = (0, 8, 24, 48)
"""Steps at which the ensemble is compared with eqs. (14) and (15)."""
Z_SCORES = 2 * len(TIMES)
"""Number of z-scores per activation, without controls: the initial kernel, covariances at all TIMES, means after 0."""
SCORED_IMAGES = 8
"""Number of test images whose joint distribution is tested."""


def default_members(width: int) -> int:
    """Return the default number of networks at a width: 48 up to width 256, then fewer, and at least 6.

    >>> [default_members(width) for width in WIDTHS]
    [48, 48, 48, 48, 24, 12, 6]
    """
    return max(6, min(48, 12288 // width))


def ensemble_size(widths: Sequence[int]) -> tuple[int, int]:
    """Return (width, members) of the ensemble for z-scores: the largest width <= 256, or else the smallest width.

    With n/2 members (16 to 128), the finite-width error O(1/n) is only a fraction O(n^-1/2) of the standard error.

    >>> ensemble_size(WIDTHS), ensemble_size((16, 32, 64))
    ((256, 128), (64, 32))
    """
    width = max([n for n in widths if n <= 256], default=min(widths))
    return width, max(2 * SCORED_IMAGES, min(width // 2, 128))


@dataclass(frozen=True, eq=False, repr=False)
class Trained:
    """Many trained networks of one width, for the figures.

    f : (T, E, A), outputs after steps : (T,).  mean, sd : (STEPS + 1, A), from eqs. (14) and (15), after 0 ... STEPS
    steps.   last_layer : the mean if only the last layer is trained.
    """

    width: int
    steps: Host
    f: Host
    mean: Host
    sd: Host
    last_layer: Host


@dataclass(frozen=True, eq=False, repr=False)
class Study:
    """One activation's results.  linearised : relative distance of a linearised network from its closed form."""

    rows: list[JudgedClaim]
    tests: list[Score]
    linearised: float
    ensemble: Trained
    lr: float

    @property
    def verdicts(self) -> list[Outcome]:
        """Return one verdict per claim, one per z-score, and one for the linearised network."""
        exact: Outcome = "pass" if self.linearised <= LINEARISED_TOLERANCE else "fail"
        return [row.verdict for row in self.rows] + [test.verdict for test in self.tests] + [exact]


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """Result of `run`: a study for each activation, and the settings."""

    settings: dict[str, Any]
    problem: Problem
    studies: dict[str, Study]
    critical: float
    seconds: float

    def __repr__(self) -> str:
        passed = sum(verdict == "pass" for verdict in self.verdicts)
        return f"Result({self.verdict}, {passed} of {len(self.verdicts)} checks pass, {', '.join(self.studies)})"

    @property
    def verdicts(self) -> list[Outcome]:
        """Return one verdict per check."""
        return [verdict for study in self.studies.values() for verdict in study.verdicts]

    @property
    def verdict(self) -> Outcome:
        """Return "fail" if any check fails, otherwise "undecided" if any check is undecided, otherwise "pass"."""
        return overall(self.verdicts)


def run(
    *,
    widths: Sequence[int] = WIDTHS,
    depth: int = 2,
    activations: Sequence[str] = ("relu", "erf"),
    data: str | Path = "digits",
    seeds: int | None = None,
    device: str = "cpu",
    seed: int = 0,
    progress: bool = False,
) -> Result:
    """Train real networks of growing width and compare them with infinite-width theory, claim by claim.

    widths, depth : widths (at least two) and number of hidden layers.  activations : names in ACTIVATIONS.
    data : "digits", "mnist", "cifar10", or a folder with the files of MNIST or CIFAR-10.
    seeds : number of networks at every width, at least two; by default `default_members(width)`.
    device : "cpu" or "gpu".  seed : the seed of all random numbers.
    progress : show a progress bar with the remaining time on stderr.

    With the defaults, the run takes about half a minute on two cores.  Raises ValueError, FileNotFoundError or
    RuntimeError (no GPU) for invalid settings, before any computation.

    >>> result = run(widths=(8, 16, 32), depth=1, activations=["erf"], seeds=4)
    >>> [row.claim.key for row in result.studies["erf"].rows][:3]
    ['ntk', 'nngp', 'kernel movement']
    """
    started = time.perf_counter()
    widths = check_settings(widths, depth, activations, seeds, seed)
    xp = device_namespace(device)
    given = problem(data, np.random.default_rng(seed))
    count = {n: default_members(n) if seeds is None else seeds for n in widths}
    claims = [claim for claim in CLAIMS if depth > 1 or claim.key != "hidden weights"]
    critical = critical_z(len(activations) * (len(claims) + Z_SCORES))
    work = len(activations) * sum(_work(n, E) for n, E in [*count.items(), ensemble_size(widths)])
    with progress_of("networks", work, progress) as advance:
        benches = {a: _Bench(a, depth, given, xp, seed, advance) for a in activations}
        studies = {a: _study(bench, count, claims, critical) for a, bench in benches.items()}
    settings = {
        "widths": widths, "depth": depth, "activations": list(activations), "data": str(data), "seeds": seeds,
        "device": device, "seed": seed, "networks": {str(n): E for n, E in count.items()}, "steps": STEPS,
    }  # fmt: skip
    return Result(settings, given, studies, critical, time.perf_counter() - started)


def check_settings(
    widths: Sequence[int], depth: int, activations: Sequence[str], seeds: int | None, seed: int
) -> list[int]:
    """Return the widths in increasing order; raise ValueError for invalid settings."""
    if len(set(widths)) < 2 or min(widths) < 1:
        raise ValueError(f"widths expects two or more different widths >= 1, got {list(widths)}")
    whole("depth", depth)
    if unknown := [name for name in activations if name not in ACTIVATIONS]:
        raise ValueError(f"activation expects names among {', '.join(ACTIVATIONS)}, got {', '.join(unknown)}")
    if not activations or len(set(activations)) < len(activations):
        raise ValueError(f"activation expects one or more different names, got {list(activations)}")
    if seeds is not None:
        whole("seeds", seeds, 2)
    whole("seed", seed, 0)
    return sorted({whole("widths", n) for n in widths})


def _study(bench: _Bench, count: dict[int, int], claims: Sequence[Claim], critical: float) -> Study:
    """Judge the claims on networks of all widths with one activation, and score an ensemble."""
    given, widths = bench.given, list(count)
    narrowest = bench.net(widths[0])
    both = kernel(narrowest.spec).both(given.points)
    hidden_nngp = kernel(hidden_part(narrowest).spec).nngp(given.points)
    width, E = ensemble_size(widths)
    few = min(widths[-1], 128)
    lr = _learning_rate(bench, both.ntk, [*((n, S, 0) for n, S in count.items()), (width, E, 1), (few, 1, 2)])
    expected = ensemble(both, np.arange(N_TRAIN), given.y, lr=lr, by="descent")

    found = [errors(bench.trained(n, count[n], lr), expected, hidden_nngp, N_TEST) for n in widths]
    rows = [judge(bench.activation, c, widths, [at[c.key] for at in found], critical) for c in claims]
    many = bench.trained(width, E, lr, role=1)
    net, rng = bench.net(few), bench.rng(few, 2)
    linearised = linearised_training_error(net, given, bench.xp, rng, lr=lr, steps=STEPS, every=EVERY)
    tests = score(many, expected, critical)
    all_points = np.arange(len(given.points))
    mean, sd = expected.predict(all_points, np.arange(STEPS + 1), std=True)
    last_layer = expected.predict(all_points, np.arange(STEPS + 1), kind="nngp")
    shown = Trained(width, many.steps, many.f, mean[..., 0], sd, last_layer[..., 0])
    return Study(rows, tests, linearised, shown, lr)


def _learning_rate(bench: _Bench, ntk: Host, stages: Sequence[tuple[int, int, int]]) -> float:
    """Return LR times the analytic kernel's stability bound, or 0.8 times narrow networks' smallest bound if lower.

    stages : (width, members, role) of all networks.  Some networks of width <= 128 would diverge at the former rate.
    """
    own = []
    for width, members, role in stages:
        if width <= 128:
            net = bench.net(width)
            theta0 = net.init(bench.rng(width, role), ensemble=members)
            own += [max_learning_rate(k) for k in empirical_ntk(net, theta0, bench.given.x)]
    return min([LR * max_learning_rate(ntk[:N_TRAIN, :N_TRAIN])] + [0.8 * bound for bound in own])


def score(run: Trajectory, expected: Ensemble, critical: float) -> list[Score]:
    """Return z-scores of the initial kernel, of f on SCORED_IMAGES test images, and of f under two wrong theories."""
    points, seen, times = N_TRAIN + np.arange(SCORED_IMAGES), np.arange(N_TRAIN + N_TEST), np.array(TIMES)
    f = run.f[np.searchsorted(run.steps, times)][:, :, points]

    def scores(steps: Host, kind: Kind = "ntk") -> list[tuple[float, float]]:
        mean, cov = expected.predict(points, steps, kind=kind, cov=True)
        return [(mean_z(f[i], mean[i, :, 0], cov[i]), covariance_z(f[i], cov[i])) for i in range(len(times))]

    z = scale_z(run.ntk0[:, : len(seen), : len(seen)], expected.of("ntk")(seen))
    tests = [Score("mean of Θ̂₀ is Θ", 0, z, critical)]
    for t, (z_mean, z_cov) in zip(TIMES, scores(times), strict=True):
        if t:
            tests.append(Score("mean of f_t, eq. (14)", t, z_mean, critical))
        tests.append(Score("covariance of f_t, eq. (15)", t, z_cov, critical))
    for name, wrong in {"last layer alone": scores(times, "nngp"), "clock 4 times slow": scores(times // 4)}.items():
        z, t = max((max(pair), t) for t, pair in zip(TIMES, wrong, strict=True) if t)
        tests.append(Score(f"refuses a wrong theory: {name}", t, z, critical, control=True))
    return tests


@dataclass(frozen=True, eq=False)
class _Bench:
    """Create and train networks with one activation.   advance : a function called with the amount of work done."""

    activation: str
    depth: int
    given: Problem
    xp: Any
    seed: int
    advance: Callable[[float], None]

    def net(self, width: int) -> Network:
        return Network(network_spec(self.activation, width, self.depth), self.given.x.shape[1:])

    def rng(self, width: int, role: int = 0) -> np.random.Generator:
        """Return an independent generator for each activation, width and role."""
        return np.random.default_rng([self.seed, list(ACTIVATIONS).index(self.activation), width, role])

    def trained(self, width: int, members: int, lr: float, role: int = 0) -> Trajectory:
        net, rng, work = self.net(width), self.rng(width, role), _work(width, members)
        how: dict[str, Any] = {"steps": STEPS, "every": EVERY, "advance": lambda part: self.advance(part * work)}
        return trained_networks(net, self.given, self.xp, members, rng, lr=lr, **how)


def _work(width: int, members: int) -> float:
    """Estimate the time to train networks of depth 2, in arbitrary units; other depths scale similarly."""
    return members * width * (width + 400.0)
