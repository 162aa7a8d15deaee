"""Integrators of flows: the systems that flow, the settings of a flow, and two ways to integrate it.

    explicit steps     s <- s + dt v,   v <- a v - (1 - a) g          dt as `Steps` says
    an ODE solver      s' = v,  v' = -(v + g) / tau,   or s' = -g     SciPy's

s is theta and g = grad L, or s is f on all points and g = K dL/df.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import exp, inf
from typing import Any, Literal

import numpy as np

from minintk.arrays import Array, array_namespace, to_host, to_library
from minintk.fast.threads import parallel
from minintk.models.network import Model
from minintk.training.losses import Loss
from minintk.training.train import loss_text, member_slices
from minintk.validate import number, numbers

# ------------------------------------------------------------------------------------------- integrators


@dataclass(frozen=True)
class Steps:
    """Explicit steps dt that change no training output by more than `high`:

        low < max_n |f_n(t + dt) - f_n(t)| < high

    A step that changes an output by more is rejected and dt halved.  If all change by less than `low`, dt doubles;
    otherwise it is steered towards changes of 0.8 high, growing by at most a tenth per step.  With `Centred`, f already
    includes alpha.  (Geiger et al. 2020, eq. (18).)

    One step of length dt holds the gradient g at its initial value and solves for v exactly:
    v <- a v - (1 - a) g,  theta <- theta + dt v;  a = e^(-dt/tau), (t/(t + dt))^mu if tau = t/mu, 0 for gradient flow.
    """

    low: float = 1e-4
    high: float = 1e-2

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high < inf:
            raise ValueError(f"Steps expects 0 <= low < high, finite, got low={self.low!r}, high={self.high!r}")


@dataclass(frozen=True)
class Solver:
    """SciPy's adaptive Runge-Kutta solvers, to a given accuracy; for smooth losses on full batches.

    rtol, atol : the error tolerance of a step, in every parameter and velocity, |error| < atol + rtol |value|.
    The state passes through host memory in float64.  With tau = t/mu, stability limits the steps to about 3 t/mu, and
    `Steps` is many times faster.
    """

    rtol: float = 1e-8
    atol: float = 1e-10
    method: Literal["RK45", "DOP853"] = "DOP853"

    def __post_init__(self) -> None:
        if self.method not in ("RK45", "DOP853"):
            raise ValueError(f"Solver(method=...) expects 'RK45' or 'DOP853', got {self.method!r}")
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            number(f"Solver({name}=...)", value)


@dataclass(frozen=True, eq=False, repr=False)
class Moment:
    """The flow at time t.

    theta : ([E], P), None in a kernel flow.  f : ([E], N, C) on the training set; in a kernel flow ([E], M, C) on all
    points.  loss : () or (E,), on the training set.  steps : taken so far.  dt : the latest step; batch_size : its
    number of examples.  ended : whether every member's loss is exactly zero, so that the flow is over.
    """

    t: float
    theta: Array | None
    f: Array
    loss: Array
    steps: int
    dt: float
    batch_size: int
    ended: bool

    def __repr__(self) -> str:
        ended = ", ended" if self.ended else ""
        return f"Moment(t={self.t:g}, {loss_text(self.loss)}, f {tuple(self.f.shape)}, steps={self.steps}{ended})"


# --------------------------------------------------------------------------------------------- systems


class WeightSpace:
    """s = theta, g = S J' dL/df with the scales S; the members of an ensemble are divided among the cores.

    whole : whether every step uses all of x.
    """

    def __init__(self, model: Model, x: Array, scales: Array | None, theta: Array, whole: bool) -> None:
        self.model, self.x, self.scales, self.whole = model, x, scales, whole
        self.parts = member_slices(model, theta, x.shape[0])
        self.models = self._share()

    def _share(self) -> list[Model]:
        """The model of each part of the ensemble."""
        if not self.whole:
            return [self.model.members(at) for at in self.parts]
        return parallel(lambda at: self.model.members(at).fixed(self.x), self.parts)

    def learn(self, s: Array, at: Array | None, y: Array, loss: Loss) -> tuple[Array, Array]:
        """(f, g) for the training examples `at` (None: all), whose targets are y."""
        xp, x = array_namespace(s), self.x if at is None else self.x[at]
        g = xp.empty_like(s)

        def work(i: int) -> Array:
            with np.errstate(over="ignore", invalid="ignore"):  # a step that is too long gets rejected
                f, J = self.models[i].forward(s[self.parts[i]], x)
                J.pull(loss.cotangent(f, y), g[self.parts[i]])
            return f

        fs = parallel(work, range(len(self.parts)))
        if self.scales is not None:
            g *= self.scales
        return fs[0] if len(fs) == 1 else xp.concat(fs), g

    def outputs(self, s: Array, at: Array | None) -> Array:
        """f alone."""
        x = self.x if at is None else self.x[at]
        N, step = x.shape[0], x.shape[0] if self.model.coupled else 1000
        with np.errstate(over="ignore", invalid="ignore"):
            parts = [self.model.forward(s, x[i : i + step])[0] for i in range(0, N, step)]
        return array_namespace(s).concat(parts, axis=-2)

    def advance(self, s: Array) -> bool:
        """Notify the system of a step to s; returns whether that changed the system."""
        before, self.model = self.model, self.model.advance(s)
        if self.model is not before:
            self.models = self._share()
        return self.model is not before

    def moment(self, s: Array, f: Array) -> tuple[Array | None, Array]:
        """(theta, f) for a `Moment`."""
        return array_namespace(s).asarray(s, copy=True), f


class FrozenKernel:
    """s = f on all points : ([E], M, C), g = K dL/df; the first N points are the training set.

    Methods as in `WeightSpace`; the kernel never changes.
    """

    def __init__(self, kernel: Array, full: bool, N: int) -> None:
        self.kernel, self.full, self.N = kernel, full, N

    def learn(self, s: Array, at: Array | None, y: Array, loss: Loss) -> tuple[Array, Array]:
        f, K = self.outputs(s, at), self.kernel
        with np.errstate(over="ignore", invalid="ignore"):
            u = loss.cotangent(f, y)
            if not self.full:
                return f, (K if at is None else K[..., at]) @ u
            K = K if at is None else K[..., at, :]
            M, C, b, _ = K.shape[-4:]
            g = K.reshape((*K.shape[:-4], M * C, b * C)) @ u.reshape((*u.shape[:-2], b * C, 1))
        return f, g.reshape(s.shape)

    def outputs(self, s: Array, at: Array | None) -> Array:
        f = s[..., : self.N, :]
        return f if at is None else f[..., at, :]

    def advance(self, s: Array) -> bool:
        return False

    def moment(self, s: Array, f: Array) -> tuple[Array | None, Array]:
        return None, array_namespace(s).asarray(s, copy=True)


System = WeightSpace | FrozenKernel

# ---------------------------------------------------------------------------------------------- settings


@dataclass(frozen=True)
class FlowSettings:
    """The loss, the times to report, the equation of motion and the integrator."""

    loss: Loss
    times: tuple[float, ...]
    tau: float | None
    mu: float | None
    temperature: float
    rng: np.random.Generator | None
    by: Steps | Solver

    @classmethod
    def checked(cls, loss: Any, times: Any, tau: Any, mu: Any, temperature: Any, rng: Any, by: Any) -> FlowSettings:
        """The settings; ValueError or TypeError for invalid ones."""
        if not isinstance(loss, Loss):
            raise TypeError(f"loss expects a loss such as mn.mse or mn.hinge, got {loss!r}")
        if not isinstance(by, (Steps, Solver)):
            raise TypeError(f"by expects mn.Steps(...) or mn.Solver(...), got {by!r}")
        goals = numbers(times)
        if not goals or not all(t > 0 for t in goals) or any(b <= a for a, b in pairwise(goals)):
            raise ValueError(f"times expects numbers > 0, increasing, got {times!r}")
        if goals[-1] == inf and not loss.ends:
            raise ValueError(f"times up to inf need a loss that reaches zero in finite time, mn.hinge, got {loss!r}")
        if tau is not None and mu is not None:
            raise ValueError(f"momentum flow expects tau, or mu for tau = t/mu, not both, got tau={tau!r}, mu={mu!r}")
        tau, mu = (None if a is None else number(name, a) for name, a in (("tau", tau), ("mu", mu)))
        temperature = number("temperature", temperature, zero=True)
        if temperature and not isinstance(rng, np.random.Generator):
            raise TypeError(f"stochastic flow draws its batches with rng=numpy.random.default_rng(seed), got {rng!r}")
        if temperature and isinstance(by, Solver):
            raise ValueError("a stochastic flow is not smooth, as by=Solver(...) needs: by=Steps(), or temperature=0")
        if loss.ends and isinstance(by, Solver):
            jumps = f"the gradient of {loss!r} jumps, where by=Solver(...) stalls"
            raise ValueError(f"{jumps}: use by=Steps(), or a smooth loss, mn.logistic")
        return cls(loss, goals, tau, mu, temperature, rng, by)

    def decay(self, t: float, h: float) -> float:
        """a with v(t + h) = a v - (1 - a) g for a constant g, a = exp(-int dt/tau); 0 for gradient flow."""
        if self.tau is not None:
            return exp(-h / self.tau)
        return (t / (t + h)) ** self.mu if self.mu is not None else 0.0

    def friction(self, t: float) -> float:
        """1/tau; with tau = t/mu it is 0 at t = 0, where v = -grad L already."""
        if self.tau is not None:
            return 1 / self.tau
        return self.mu / t if self.mu is not None and t > 0 else 0.0

    def batch(self, h: float, N: int) -> int:
        """b with T = h/b (1 - (b-1)/(N-1)); Geiger et al. 2020, eq. (19)."""
        return N if self.temperature == 0 else max(1, round(N / (self.temperature / h * (N - 1) + 1)))


# ------------------------------------------------------------------------------------------- integration


def run_flow(system: System, s: Array, y: Array, settings: FlowSettings) -> Iterator[Moment]:
    """The moments of a flow that starts at s; s may be overwritten."""
    by = settings.by
    return _by_steps(system, s, y, settings, by) if isinstance(by, Steps) else _by_solver(system, s, y, settings, by)


def _value(loss: Loss, f: Array, y: Array, t: float) -> tuple[Array, bool]:
    """(loss, whether it is exactly zero for every member); FloatingPointError if it is not finite."""
    xp = array_namespace(f)
    value = loss(f, y)
    if not bool(xp.all(xp.isfinite(value))):
        raise FloatingPointError(f"the loss is not finite at t = {t:g}: check the outputs of the model there")
    return value, loss.ends and not bool(xp.any(value))


def _moving(value: Array, like: Array) -> Array:
    """1 for the members whose loss is not yet exactly zero, else 0, broadcastable to `like`."""
    xp = array_namespace(value)
    return xp.reshape((value > 0).astype(like.dtype), (*value.shape, *(1 for _ in like.shape[value.ndim :])))


MAX_HALVINGS = 200
"""After this many halvings of dt in a row, the change of the outputs must be rounding."""


def _by_steps(system: System, s: Array, y: Array, settings: FlowSettings, by: Steps) -> Iterator[Moment]:
    xp, N, loss, rng = array_namespace(s), y.shape[0], settings.loss, settings.rng if settings.temperature else None
    t, dt, h, steps, b, seen = 0.0, 1.0, 0.0, 0, N, 0
    low, high = float(by.low), float(by.high)
    v: Array | float = 0.0
    at, target = None, y
    g: Any
    f, g = system.learn(s, None, y, loss) if rng is None else (system.outputs(s, None), None)
    value, ended = _value(loss, f, y, t)
    yield Moment(t, *system.moment(s, f), value, steps, h, b, ended)
    for goal in settings.times:
        while t < goal and not ended:
            order = None if rng is None else rng.permutation(N)
            halvings = 0
            while True:
                h = min(dt, goal - t)
                if order is not None:
                    b = settings.batch(h, N)
                    at = to_library(order[:b], xp)
                    target = y[at]
                    f, g = system.learn(s, at, target, loss)
                a = settings.decay(t, h)
                v_new = a * v - (1 - a) * g
                if rng is None and loss.ends and value.ndim:
                    v_new *= _moving(value, v_new)
                s_new = s + h * v_new
                f_new, g_new = system.learn(s_new, None, y, loss) if rng is None else (system.outputs(s_new, at), None)
                change = float(xp.max(xp.abs(f_new - f)))
                if change < high or halvings == MAX_HALVINGS:  # NaN < high is False
                    break
                dt, halvings = h / 2, halvings + 1
            if not change < high or (halvings and change == 0):
                never = f"at t = {t:g} no step changes the outputs by less than {high:g}, only by more or not at all"
                raise FloatingPointError(f"{never}: this is rounding, take float64 or a larger Steps(high=...)")
            if h == dt:
                dt *= 2 if change <= low else min(1.1, 0.8 * high / change)
            t, steps, seen = goal if h == goal - t else t + h, steps + 1, seen + b
            s, v, f, g = s_new, v_new, f_new, g_new
            moved = system.advance(s)
            if rng is None:
                if moved:
                    f, g = system.learn(s, None, y, loss)
                value, ended = _value(loss, f, y, t)
            elif t == goal or (loss.ends and seen >= N and not bool(xp.any(loss(f, target)))):
                f, seen = system.outputs(s, None), 0
                value, ended = _value(loss, f, y, t)
        yield Moment(t, *system.moment(s, f), value, steps, h, b, ended)
        if ended:
            return


def _by_solver(system: System, s: Array, y: Array, settings: FlowSettings, by: Solver) -> Iterator[Moment]:
    from scipy import integrate

    xp, shape, size, dtype, loss = array_namespace(s), s.shape, int(np.prod(s.shape)), s.dtype, settings.loss
    momentum = settings.tau is not None or settings.mu is not None

    def state(z: Any) -> Array:
        return to_library(z[:size].astype(str(dtype)), xp).reshape(shape)

    def motion(t: float, z: Any) -> Any:
        """(s', v') concatenated, or s' alone."""
        g = to_host(system.learn(state(z), None, y, loss)[1]).astype(np.float64).ravel()
        return np.concatenate([z[size:], -settings.friction(t) * (z[size:] + g)]) if momentum else -g

    f, g0 = system.learn(s, None, y, loss)
    yield Moment(0.0, *system.moment(s, f), _value(loss, f, y, 0.0)[0], 0, 0.0, len(y), False)
    start = to_host(s).astype(np.float64).ravel()
    if momentum:
        g = to_host(g0).astype(np.float64).ravel()
        start = np.concatenate([start, -g if settings.mu is not None else np.zeros(size)])
    solver = getattr(integrate, by.method)(motion, 0.0, start, settings.times[-1], rtol=by.rtol, atol=by.atol)
    steps = 0
    for goal in settings.times:
        while solver.t < goal:
            with np.errstate(over="ignore", invalid="ignore"):
                message = solver.step()
            steps += 1
            if solver.status == "failed":
                raise FloatingPointError(f"the solver gave up at t = {solver.t:g}: {message}")
        s = state(solver.y if goal == solver.t else solver.dense_output()(goal))
        f = system.outputs(s, None)
        yield Moment(goal, *system.moment(s, f), _value(loss, f, y, goal)[0], steps, solver.step_size, len(y), False)
