"""Define the exercises of assignment 4.  The correct results use the kernels and closed forms of `analytic`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

import hw4_experiment as data  # type: ignore[import-not-found]  # beside this file
import numpy as np

import analytic as an
import minintk as mn
from analytic.training.gp import Ensemble, Kind
from minintk.grade import Assignment, Exercise, Law, Submission, SubmissionError, Values, hard_inputs, with_experiment
from minintk.grade.exercise import Case

Array = Any
Variant = Mapping[str, Any]

KERNEL = an.kernel(mn.Sequential(mn.Dense(1, b_std=0.5), mn.ReLU(), mn.Dense(1, b_std=0.5)))
"""The kernel of one-hidden-layer networks, positive definite unless two inputs are equal."""

WEIGHTS = tuple(k / 100 for k in range(30, 301) if abs(k - 100) > 9)
"""Weights that multiply the loss. Each student's weight is drawn from these; the authors' weight 1 is not included."""

TIMES = (0.0, 0.3, 4.0, 100.0)
"""Times from the start until little is left to learn, in units of the time scale of the fastest eigenvector."""

PLAIN = 1e-7
"""Tolerance for an angle that is the arccos of a rounded cosine."""

LONG = 1e-6
"""Tolerance if widely different rates leave few correct digits, as with 10^8 steps or t = inf."""

# --------------------------------------------------------------------------------------------- the right answers


@dataclass(frozen=True)
class Known:
    """Kernels whose inputs are indices (n, 1) into the kernel matrices of all inputs."""

    K: Array
    Theta: Array

    def nngp(self, x1: Array, x2: Array | None = None) -> Array:
        return part(self.K, x1, x2)

    def ntk(self, x1: Array, x2: Array | None = None) -> Array:
        return part(self.Theta, x1, x2)

    def both(self, x1: Array, x2: Array | None = None) -> tuple[Array, Array]:
        return self.nngp(x1, x2), self.ntk(x1, x2)


def part(k: Array, x1: Array, x2: Array | None) -> Array:
    """Return the rows and columns of k with these indices."""
    return np.asarray(k[np.ix_(x1[:, 0].astype(int), (x1 if x2 is None else x2)[:, 0].astype(int))])


def divisor(N: int, variant: Variant) -> float:
    """Return the divisor of the loss for N examples."""
    return (N if variant["loss"] == "mean" else 1) / float(variant["weight"])


@dataclass(frozen=True)
class Problem:
    """Training and test inputs (as indices), their kernels, the targets, and the initial outputs."""

    variant: Variant
    kernel: Known
    y: Array
    f0: Array
    f0_test: Array

    @property
    def N(self) -> int:
        return len(self.y)

    @property
    def x(self) -> Array:
        return np.arange(float(self.N))[:, None]

    @property
    def x_test(self) -> Array:
        return np.arange(float(self.N), len(self.kernel.K))[:, None]

    @property
    def K(self) -> Array:
        return self.kernel.nngp(self.x)

    @property
    def Theta(self) -> Array:
        return self.kernel.ntk(self.x)

    @property
    def prior(self) -> Array:
        return self.kernel.nngp(self.x_test)

    def laid(self, kind: str) -> Array:
        """Return the kernel between test and training inputs, in the variant's layout."""
        found = getattr(self.kernel, kind)(self.x_test, self.x)
        return found if self.variant["layout"] == "test_first" else found.T.copy()

    @property
    def per(self) -> float:
        """Return the divisor of the loss."""
        return divisor(self.N, self.variant)

    def time(self, t: float) -> float:
        """Convert t from units of the fastest eigenvector's time scale, per / lambda_max, to the variant's t."""
        return float(t * self.per / np.linalg.eigvalsh(self.Theta)[-1])

    def units(self, t: float) -> float:
        """Convert the variant's t to the t of analytic, which uses the mean loss."""
        return t * self.N / self.per

    @cached_property
    def trained(self) -> Ensemble:
        return an.ensemble(self.kernel, self.x, self.y)

    def flow(self, t: float, f0: Array | float, test: bool = False) -> Array:
        """Return the outputs at the variant's t on the training inputs or, if `test`, on the test inputs."""
        if not test:
            return self.trained.dynamics().predict(self.units(t), f0=f0)
        k, start = self.kernel.ntk(self.x_test, self.x), 0.0 if np.ndim(f0) == 0 else self.f0_test
        return self.trained.dynamics().predict(self.units(t), k, f0=f0, f0_test=start)

    def ensemble(self, t: float, layers: str = "") -> tuple[Array, Array]:
        """Return (mean, covariance) at the variant's t.

        layers : "all" or "last".  Defaults to the layers that the variant trains.
        """
        kind: Kind = "ntk" if (layers or self.variant["trained"]) == "all" else "nngp"
        mean, cov = self.trained.predict(self.x_test, self.units(t), kind=kind, cov=True)
        return mean, cov

    def taken(self, t: float) -> Array:
        """Return A_t (M, N), for the layers that the variant trains."""
        kind = "ntk" if self.variant["trained"] == "all" else "nngp"
        each = getattr(self.kernel, kind)
        return an.gradient_flow(each(self.x), np.eye(self.N)).predict(self.units(t), each(self.x_test, self.x))


def problem(rng: np.random.Generator, variant: Variant, N: int, M: int, C: int, x: Array | None = None) -> Problem:
    """Draw random inputs (or use `x`), targets, and initial outputs."""
    x = rng.standard_normal((N, 3)) if x is None else x
    kernel = Known(*KERNEL.both(np.concatenate([x, rng.standard_normal((M, x.shape[1]))])))
    return Problem(variant, kernel, *(rng.standard_normal((n, C)) for n in (len(x), len(x), M)))


SIZES = (("several outputs", 5, 4, 2), ("one output", 4, 3, 1), ("all sizes equal", 3, 3, 3))

# -------------------------------------------------------------------------------------------------- training


def step(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, N, M, C in SIZES:
        p = problem(rng, variant, N, M, C)
        c = variant["weight"]
        with_mean, with_sum, without = (p.f0 - 0.1 / n * p.Theta @ (p.f0 - p.y) for n in (N / c, 1 / c, p.per * c))
        suspects = {
            "the gradient of the sum, where your handout asks for the mean": with_sum,
            "the gradient of the mean, where your handout asks for the sum": with_mean,
            "the loss's weight is forgotten: see the top of your handout": without,
            "uphill: the sign of the step": 2 * p.f0 - (with_mean if variant["loss"] == "mean" else with_sum),
        }
        want = with_mean if variant["loss"] == "mean" else with_sum
        yield Values("step", (p.Theta, p.f0, p.y, 0.1), want, title=title, suspects=suspects)


def flow(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, N, M, C in SIZES:
        p = problem(rng, variant, N, M, C)
        for t in map(p.time, TIMES):
            suspects = {
                "the loss's 1/N: your handout says whether it is there": p.flow(t / N, p.f0),
                "the loss's 1/N, the other way round": p.flow(t * N, p.f0),
                "f0 is taken for 0": p.flow(t, 0.0),
                "the exponential of each entry, and not of the matrix": p.y
                + np.exp(-p.Theta * t / p.per) @ (p.f0 - p.y),
            }
            yield Values(
                "flow", (p.Theta, p.y, t, p.f0), p.flow(t, p.f0), title=f"{title}, t = {t:.3g}", suspects=suspects
            )
        yield Values("flow", (p.Theta, p.y, inf, p.f0), p.y, title=f"{title}, t = inf", rtol=LONG)


def stability(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for N in (5, 3, 1):
        p = problem(rng, variant, N, 1, 1)
        want = an.max_learning_rate(p.Theta) * p.per / N
        suspects = {
            "half of it: from there on outputs swing to and fro, but do not diverge before twice that": want / 2,
            "the loss's 1/N": want * N if variant["loss"] == "sum" else want / N,
        }
        yield Values(
            "max_learning_rate", (p.Theta,), want, title=f"N = {N}", suspects=suspects if N > 1 else {}, dtype=False
        )


def descent(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, N, M, C in SIZES:
        p = problem(rng, variant, N, M, C)
        largest = an.max_learning_rate(p.Theta)
        for part, steps in ((0.4, 1), (0.4, 7), (0.95, 40), (0.6, 0)):
            right = an.gradient_descent(p.Theta, p.y, lr=part * largest).predict(steps, f0=p.f0)
            lr = part * largest * p.per / N
            suspects = {
                "exp(-lr Theta steps), which belongs to gradient flow": p.flow(lr * steps, p.f0),
                "one step too many": right - lr / p.per * p.Theta @ (right - p.y),
            }
            args = (p.Theta, p.y, lr, steps, p.f0)
            yield Values("descent", args, right, title=f"{title}, {steps} steps", suspects=suspects if steps else {})


def many_steps(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    """Yield cases in which some directions have not converged after a hundred million steps."""
    Q = np.linalg.qr(rng.standard_normal((10, 10)))[0]
    K, p = (Q * np.logspace(-9, 0, 10)) @ Q.T, problem(rng, variant, 10, 1, 2)
    K = (K + K.T) / 2
    lr = 0.9 * an.max_learning_rate(K)
    for steps in (10**4, 10**8):
        right = an.gradient_descent(K, p.y, lr=lr).predict(steps, f0=p.f0)
        args = (K, p.y, lr * p.per / p.N, steps, p.f0)
        yield Values("descent", args, right, title=f"{steps} steps", rtol=LONG)


def unstable(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    p = problem(rng, variant, 4, 1, 1)
    largest = an.max_learning_rate(p.Theta) * p.per / p.N

    def asked(part: float, steps: int) -> Any:
        def check(student: Submission) -> str:
            try:
                student.call("descent", p.Theta, p.y, part * largest, steps, p.f0)
            except SubmissionError as error:
                if part < 1:
                    return f"refused, but this learning rate is {part:g} of the largest: {error}"
                return "" if str(error).startswith("ValueError") else f"expected a ValueError, got {error}"
            return "" if part < 1 else f"expected a ValueError: the learning rate is {part:g} times the largest"

        return check

    for part, steps in ((1.05, 3), (3.0, 1000), (0.95, 1000)):
        yield Law(f"{part:g} of the largest rate, {steps} steps", asked(part, steps))


# ----------------------------------------------------------------------------------------------- predictions


def predict(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, N, M, C in SIZES:
        p = problem(rng, variant, N, M, C)
        for t in (*map(p.time, TIMES), inf):
            right = p.flow(t, p.f0, test=True)
            suspects = {
                "f0 on the test inputs is forgotten": right - p.f0_test,
                "the residual is y, where y - f0 belongs": p.flow(t, 0.0, test=True) + p.f0_test,
                "the end of training, whatever t is": p.flow(inf, p.f0, test=True),
                "the loss's 1/N: your handout says whether it is there": p.flow(t / N, p.f0, test=True),
                "the loss's 1/N, the other way round": p.flow(t * N, p.f0, test=True),
            }
            args = (p.Theta, p.laid("ntk"), p.y, t, p.f0, p.f0_test)
            rtol = LONG if t == inf else None
            yield Values("predict", args, right, title=f"{title}, t = {t:.3g}", suspects=suspects, rtol=rtol)


def singular(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    x = rng.standard_normal((4, 3))
    p = problem(rng, variant, 6, 3, 2, np.concatenate([x, x[:2]]))
    for t in (p.time(4.0), p.time(100.0), inf):
        here, there = p.flow(t, p.f0), p.flow(t, p.f0, test=True)
        title = f"equal inputs with unequal targets, t = {t:.3g}"
        yield Values("flow", (p.Theta, p.y, t, p.f0), here, title=title, rtol=LONG)
        args = (p.Theta, p.laid("ntk"), p.y, t, p.f0, p.f0_test)
        yield Values("predict", args, there, title=title, rtol=LONG)


def hard(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, x in hard_inputs(rng, (3,)):
        p = problem(rng, variant, len(x), 3, 1, x)
        for t in (p.time(0.5), p.time(5.0)):
            args = (p.Theta, p.laid("ntk"), p.y, t, p.f0, p.f0_test)
            right = p.flow(t, p.f0, test=True)
            yield Values("predict", args, right, title=f"{title}, t = {t:.3g}", rtol=LONG)


def moved(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for size, N, P in (
        ("more weights than examples", 4, 7),
        ("as many", 4, 4),
        ("fewer", 6, 3),
        ("one example", 1, 3),
    ):
        U, _, V = np.linalg.svd(rng.standard_normal((N, P)), full_matrices=False)
        J, y, f0 = (U * rng.uniform(0.5, 2, min(N, P))) @ V, rng.standard_normal(N), rng.standard_normal(N)
        per = divisor(N, variant)
        best = np.linalg.lstsq(J, y - f0)[0]  # the best fit of minimum norm
        for scaled in (0.7, 20.0, inf):
            t = scaled * per / float(np.linalg.norm(J, 2) ** 2)
            a = an.gradient_flow(J @ J.T, y[:, None]).coefficients(t * N / per, f0=f0[:, None])[:, 0]
            suspects = {
                "the end of training, whatever t is": best,
                "the first gradient all the way: the residual shrinks meanwhile": J.T @ (y - f0) * min(t, 1e9) / per,
            }
            want = best if t == inf else J.T @ a
            title = f"{size}, t = {t:.3g}"
            yield Values("weights", (J, y, t, f0), want, title=title, rtol=LONG, suspects=suspects)


# ------------------------------------------------------------------------------------------------- ensembles


def posterior(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, N, M, C in SIZES:
        p = problem(rng, variant, N, M, C)
        mean, cov = an.posterior(p.kernel, p.x, p.y).predict(p.x_test, cov=True)
        suspects = {"the prior alone": (mean, p.prior), "what the data take away, and not what is left": (
            mean, p.prior - cov
        )}  # fmt: skip
        args = (p.K, p.laid("nngp"), p.prior, p.y)
        yield Values("posterior", args, (mean, cov), title=title, rtol=LONG, suspects=suspects)


WORDS = {"all": "all layers are trained", "last": "the last layer alone is trained"}


def ensemble_mean(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, N, M, C in SIZES:
        p = problem(rng, variant, N, M, C)
        for t in (*map(p.time, TIMES), inf):
            want = p.ensemble(t)[0]
            other = "last" if variant["trained"] == "all" else "all"
            suspects = {f"this is the mean where {WORDS[other]}: look up your variant": p.ensemble(t, other)[0]}
            args = (p.K, p.laid("nngp"), p.Theta, p.laid("ntk"), p.y, t)
            rtol = LONG if t == inf else None
            yield Values("ensemble_mean", args, want, title=f"{title}, t = {t:.3g}", suspects=suspects, rtol=rtol)


def ensemble_cov(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    for title, N, M, C in SIZES:
        p = problem(rng, variant, N, M, C)
        for t in (*map(p.time, TIMES), inf):
            want, A = p.ensemble(t)[1], p.taken(t)
            there = p.kernel.nngp(p.x_test, p.x)
            cross, kept = A @ there.T, A @ p.K @ A.T
            other = "last" if variant["trained"] == "all" else "all"
            suspects = {
                f"this is the covariance where {WORDS[other]}: look up your variant": p.ensemble(t, other)[1],
                "the posterior's covariance, which does not depend on t": p.ensemble(inf, "last")[1],
                "the terms between test and training inputs are missing": p.prior + kept,
                "the term between test and training inputs is there once, and not twice": p.prior + kept - cross,
                "Theta, where the covariance K of the start belongs": want - kept + A @ p.Theta @ A.T,
                "a formula that holds at t = inf alone": p.prior - cross,
            }
            args = (p.K, p.laid("nngp"), p.prior, p.Theta, p.laid("ntk"), t)
            rtol = LONG if t == inf else None
            yield Values("ensemble_cov", args, want, title=f"{title}, t = {t:.3g}", suspects=suspects, rtol=rtol)


# ----------------------------------------------------------------------------------------------- experiment


def measurement(rng: np.random.Generator, variant: Variant) -> Iterator[Case]:
    kernel = an.kernel(mn.Sequential(mn.Dense(1, w_std=2**0.5), mn.ReLU(), mn.Dense(1, w_std=2**0.5)))
    for title in ("a seed of the grader's", "another one"):
        seed, sizes, draws = int(rng.integers(10**6)), (10, 40), 2
        x, y, *_ = data.problem(seed)
        x, y = x[:150], y[:150]
        nngp, ntk = (np.asarray(k) for k in kernel.both(x))
        suspects = {"this is the NNGP": nngp, "the part of the last layer is missing": ntk - nngp}
        yield Values("own_kernel", (x,), ntk, title=title, suspects=suspects, rtol=PLAIN)
        found, trained = [], []
        for N in sizes:
            for s in range(draws):
                order = np.random.default_rng([seed, N, s]).permutation(len(x))
                at, test = order[:N], order[N:]
                f = np.asarray(an.gradient_flow(ntk[np.ix_(at, at)], y[at]).predict(inf, ntk[:, at]))
                each = np.sum((f - y) ** 2, axis=1), f.argmax(axis=1) != y.argmax(axis=1)
                found.append([np.mean(v[test]) for v in each])
                trained.append([np.mean(v) for v in each])
        right, everywhere = (np.reshape(v, (2, draws, 2)).transpose(2, 0, 1) for v in (found, trained))
        suspects = {
            "the digits that were trained on are tested too": everywhere,
            "the two rows are exchanged": right[::-1],
        }
        args = (x, y, sizes, draws, seed)
        yield Values("learning_curve", args, right, title=title, suspects=suspects, rtol=LONG)


assignment = Assignment(
    "hw4_dynamics",
    (
        Exercise("step", 5, step, hint="the gradient of which loss? see the top of your handout"),
        Exercise("flow", 14, flow, hint="turn to the eigenvectors of Theta: each direction learns by itself"),
        Exercise("stability", 6, stability, hint="which factor does one step put before each eigenvector?"),
        Exercise("descent", 10, descent, hint="one step times itself, and not an exponential"),
        Exercise("many steps", 5, many_steps, hidden=True, hint="a power of a number costs no loop"),
        Exercise("unstable", 5, unstable, hidden=True),
        Exercise("predict", 14, predict, hint="what does the formula give at t = 0?"),
        Exercise("singular", 8, singular, hidden=True, hint="what of (1 - exp(-lam t)) / lam as lam goes to 0?"),
        Exercise("hard inputs", 5, hard, hidden=True, hint="eigenvalues of 0 come out as +-1e-17"),
        Exercise("weights", 8, moved, hint="theta_t - theta_0 is J' times something that `predict` has too"),
        Exercise("posterior", 6, posterior),
        Exercise("ensemble mean", 6, ensemble_mean, hint="which layers does your variant train?"),
        Exercise("ensemble covariance", 8, ensemble_cov, hint="f0 is random too: f_t = f0 + A (y - f0)"),
    ),
    variants={
        "loss": ("mean", "sum"),
        "layout": ("test_first", "train_first"),
        "trained": ("all", "last"),
        "weight": WEIGHTS,
    },
    authors={"weight": (1.0,)},
    tells=False,
    allowed=("scipy",),
    seconds=3.0,
)
assignment = with_experiment(
    assignment,
    measurement,
    hint="train on the first N of the permutation, test on all others, and divide by their number",
)
