"""Define the settings of a flow, and two ways to integrate it.

    explicit steps     v <- a v - (1 - a) g,   s <- s + dt v          with dt chosen by `Steps`
    an ODE solver      s' = v,  v' = -(v + g) / tau,   or s' = -g     with SciPy's solvers

A system of `minintk.training.flow_state` defines s and g.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import exp, inf
from typing import Any, Literal

import numpy as np

from minintk.arrays import Array, array_namespace, to_host, to_library
from minintk.training.flow_state import System, WeightSpace
from minintk.training.losses import Loss, check_loss
from minintk.training.train import State, check_state, loss_text
from minintk.validate import check_generator, number, numbers


@dataclass(frozen=True)
class Steps:
    """Explicit steps, with dt adapted so that the largest change of a training output f_n in a step tends to satisfy

        low u < max_n |f_n(t + dt) - f_n(t)| < high u,    u = min(1, max_n(|y_n|, |f_n(0)|))

    A step that changes an output by high u or more is rejected, and dt is halved.  If no output changes by more than
    low u, dt is doubled.  Otherwise, dt is chosen such that the largest change is about 0.8 high u, but dt grows by at
    most 10 % per step.  See Geiger et al. 2020, eq. (18), with u = 1.  For `Centred`, f includes the factor alpha.

    With a small alpha, weights can grow while outputs hardly change.  The first step therefore changes J' y by at most
    a fraction 2 `early`.  Until all moving networks' outputs have changed by 0.1 u in total, the next dt is at most the
    larger of (1 + `early`) dt and `early` t.  Until then, a step at most triples the total change.
    In a test with alpha = 1/4000, the time until the loss halves had an error below 0.6 % (above 6 % with early = 1).

    Each step keeps the gradient g constant and solves for v exactly: v <- a v - (1 - a) g, theta <- theta + dt v.
    Here, `a` is e^(-dt/tau), or (t/(t + dt))^mu if tau = t/mu, or 0 for gradient flow.
    """

    low: float = 1e-4
    high: float = 1e-2
    early: float = 2e-3

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high < inf:
            raise ValueError(f"Steps expects 0 <= low < high, finite, got low={self.low!r}, high={self.high!r}")
        if not 0 < self.early <= 1:
            raise ValueError(f"Steps expects 0 < early <= 1, the share of t in a step, got early={self.early!r}")


@dataclass(frozen=True)
class Solver:
    """SciPy's adaptive Runge-Kutta solvers with a given accuracy, for smooth losses on full batches.

    rtol, atol : the estimated errors of a step, each divided by atol + rtol |value|, have a root mean square below 1.
    States are copied to the host in float64.  For tau = t/mu, stability limits dt to a few t/mu; use `Steps` instead.
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
    """The state of a flow at time t.

    theta : ([E], P), or None in a kernel flow.  f : ([E], N, C) on the training set, or ([E], M, C) on all M points in
    a kernel flow.  loss : () or (E,), on the training set.  steps : the number of steps so far.  dt, batch_size : the
    length of the latest step and its number of examples.  ended : True if the flow has ended because every member's
    loss is exactly zero.  state : the argument of `flow(..., resume=state)`, or None with by=Solver(...).  The state's
    `memory` is v.  kernel : ([E], M, C, M, C), the tangent kernel of a `hierarchy`, or None for other flows.
    """

    t: float
    theta: Array | None
    f: Array
    loss: Array
    steps: int
    dt: float
    batch_size: int
    ended: bool
    state: State | None = None
    kernel: Array | None = None

    def __repr__(self) -> str:
        ended = ", ended" if self.ended else ""
        return f"Moment(t={self.t:g}, {loss_text(self.loss)}, f {tuple(self.f.shape)}, steps={self.steps}{ended})"


@dataclass(frozen=True)
class FlowSettings:
    """The checked arguments of a flow: loss, reported times, equation of motion and integrator."""

    loss: Loss
    times: Any  # tuple[float, ...]
    tau: float | None = None
    mu: float | None = None
    temperature: float = 0.0
    rng: np.random.Generator | None = None
    by: Steps | Solver = Steps()
    resume: State | None = None

    def __post_init__(self) -> None:
        check_loss(self.loss)
        goals, solver = numbers(self.times), isinstance(self.by, Solver)
        if not isinstance(self.by, (Steps, Solver)):
            raise TypeError(f"by expects mn.Steps(...) or mn.Solver(...), got {self.by!r}")
        if not goals or not all(t > 0 for t in goals) or any(b <= a for a, b in pairwise(goals)):
            raise ValueError(f"times expects numbers > 0, increasing, got {self.times!r}")
        if goals[-1] == inf and not self.loss.ends:
            need = "times up to inf need a loss that reaches zero in finite time, mn.hinge"
            raise ValueError(f"{need}, got {self.loss!r}")
        if self.tau is not None and self.mu is not None:
            got = f"got tau={self.tau!r}, mu={self.mu!r}"
            raise ValueError(f"momentum flow expects tau, or mu for tau = t/mu, not both, {got}")
        object.__setattr__(self, "times", goals)
        for name in ("tau", "mu", "temperature"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, number(name, getattr(self, name), zero=name == "temperature"))
        if self.temperature:
            check_generator("rng, of a stochastic flow,", self.rng)
        if self.temperature and solver:
            raise ValueError("a stochastic flow is not smooth, as by=Solver(...) needs: by=Steps(), or temperature=0")
        if self.loss.ends and solver:
            jumps = f"the gradient of {self.loss!r} jumps, where by=Solver(...) stalls"
            raise ValueError(f"{jumps}: use by=Steps(), or a smooth loss, mn.logistic")
        if self.resume is not None and solver:
            raise ValueError("by=Solver(...) keeps no state to resume from: use by=Steps(), or start over")

    @property
    def momentum(self) -> bool:
        """True if the flow has a velocity v."""
        return self.tau is not None or self.mu is not None

    def decay(self, t: float, h: float) -> float:
        """Return `a` in v(t + h) = a v - (1 - a) g for a constant g: exp(-int dt/tau), or 0 for gradient flow."""
        if self.tau is not None:
            return exp(-h / self.tau)
        return (t / (t + h)) ** self.mu if self.mu is not None else 0.0

    def friction(self, t: float) -> float:
        """Return 1/tau.  With tau = t/mu, return 0 at t = 0, where v + grad L = 0."""
        if self.tau is not None:
            return 1 / self.tau
        return self.mu / t if self.mu is not None and t > 0 else 0.0

    def batch(self, h: float, N: int) -> int:
        """Return b >= 1, the batch size with temperature T = h/b (1 - (b-1)/(N-1)), rounded (Geiger et al., eq. 19)."""
        return N if self.temperature == 0 else max(1, round(N / (self.temperature / h * (N - 1) + 1)))


def run_flow(system: System, s: Array, y: Array, settings: FlowSettings) -> Iterator[Moment]:
    """Yield the moments of a flow that starts at s.  Raise an error if `resume` does not fit this flow."""
    if isinstance(settings.by, Solver):
        return _by_solver(system, s, y, settings, settings.by)
    return SteppedFlow(system, s, y, settings, settings.by).moments()


def _value(loss: Loss, f: Array, y: Array, t: float) -> tuple[Array, bool]:
    """Return (loss, True if the loss `ends` and is zero for all members).  Raise FloatingPointError for NaN or inf."""
    xp = array_namespace(f)
    value = loss(f, y)
    if not bool(xp.all(xp.isfinite(value))):
        raise FloatingPointError(f"the loss is not finite at t = {t:g}: check the outputs of the model there")
    return value, loss.ends and not bool(xp.any(value))


MAX_HALVINGS = 200
"""After this many halvings of dt in a row, any remaining change of the outputs must be a rounding error."""
HUGE = 1e60
"""The first step is not doubled once it has this length, even if the outputs do not change."""
TRAVELLED = 0.1
"""Once a network's outputs have moved this far (times u) in total, `low` and `high` suffice to resolve its flow."""


class SteppedFlow:
    """A flow in progress, integrated by `Steps`.

    dt : the next step's length, unless a reported time comes first.  path : () or (E,), each network's largest output
    change, summed over steps.  h, b : length and batch size of the last step.  seen : examples used since `_look`.
    """

    def __init__(self, system: System, s: Array, y: Array, settings: FlowSettings, by: Steps) -> None:
        self.system, self.s, self.y, self.settings, self.by, self.N = system, s, y, settings, by, y.shape[0]
        self.rng = settings.rng if settings.temperature else None
        self.t, self.dt, self.h, self.u, self.b, self.seen, self.steps = 0.0, 1.0, 0.0, 1.0, self.N, 0, 0
        xp = array_namespace(s)
        self.v: Array | float = xp.zeros_like(s) if settings.momentum else 0.0
        self.path = xp.zeros(s.shape[: s.ndim - system.ndims], dtype=s.dtype)
        if settings.resume is not None:
            self._restore(settings.resume)

    def state(self) -> State:
        """Return the state from which the flow can resume."""
        xp = array_namespace(self.s)
        v = None if isinstance(self.v, float) else xp.asarray(self.v, copy=True)
        clock = np.array([self.t, self.dt, self.h, self.u, self.b, self.seen])
        rng = None if self.rng is None else dict(self.rng.bit_generator.state)
        anchors = self.system.model.anchors() if isinstance(self.system, WeightSpace) else {}
        anchors |= {"flow": to_library(clock, xp), "path": xp.asarray(self.path, copy=True)}
        return State(self.steps, xp.asarray(self.s, copy=True), v, rng, anchors)

    def _restore(self, state: State) -> None:
        here, last = self.state(), self.settings.times[-1]
        check_state(state, here.theta, here.memory, here.anchors)
        if (state.rng is None) != (self.rng is None):
            raise ValueError("resume expects the state of a flow at the same temperature, zero or not")
        *clock, b, seen = to_host(state.anchors["flow"]).tolist()
        if clock[0] > last:
            raise ValueError(f"resume is the state at t = {clock[0]:g}, beyond times to {last:g}: ask for later ones")
        xp = array_namespace(self.s, state.theta)
        (self.t, self.dt, self.h, self.u), self.b, self.seen = clock, int(b), int(seen)
        self.path = xp.asarray(state.anchors["path"])
        self.steps, self.s = state.step, xp.asarray(state.theta, copy=True)
        self.v = 0.0 if state.memory is None else state.memory
        if isinstance(self.system, WeightSpace):
            self.system = self.system.on(self.system.model.anchored(state.anchors))
        if self.rng is not None and state.rng is not None:
            self.rng.bit_generator.state = state.rng

    def moments(self) -> Iterator[Moment]:
        """Yield the current moment and those at the later `times`, up to the last time or the end of the flow."""
        self._look()
        if self.steps == 0:
            self.u = min(1.0, max(float(abs(a).max()) for a in (self.f, self.y))) or 1.0
        yield self._moment()
        for goal in self.settings.times:
            while self.t < goal and not self.ended:
                self._step(goal)
                if self.t == goal or self.ended:
                    yield self._moment()

    def _look(self) -> None:
        """Evaluate f and the loss at s on all examples, and g unless the flow is stochastic."""
        self.f: Array
        self.g: Any
        if self.rng is None:
            self.f, self.g = self.system.learn(self.s, None, self.y, self.settings.loss.cotangent)
        else:
            self.f, self.seen = self.system.outputs(self.s, None), 0
        self.value, self.ended = _value(self.settings.loss, self.f, self.y, self.t)

    def _moment(self) -> Moment:
        state = self.state()
        theta, f = (state.theta, self.f) if isinstance(self.system, WeightSpace) else (None, state.theta)
        return Moment(self.t, theta, f, self.value, self.steps, self.h, self.b, self.ended, state)

    def _step(self, goal: float) -> None:
        """Take one step that ends at time `goal` or before."""
        loss, system = self.settings.loss, self.system
        at, v, changes = self._choose(goal)
        self.steps, self.seen, self.path = self.steps + 1, self.seen + self.b, self.path + changes
        if self.h == self.dt:
            self._lengthen(float(array_namespace(v).max(changes)))
        self.t = goal if self.h == goal - self.t else self.t + self.h
        self.v = v if self.settings.momentum else 0.0
        self.system = system.after(self.s)
        if self.rng is None:
            look = self.system is not system
        else:
            done = loss.ends and self.seen >= self.N and not array_namespace(v).any(loss(self.f, self.y[at]))
            look = self.t == goal or done
        if look:
            self._look()
        elif self.rng is None:
            self.value, self.ended = _value(loss, self.f, self.y, self.t)

    def _choose(self, goal: float) -> tuple[Array | None, Array, Array]:
        """Take a step whose length `Steps` accepts, and return (examples, velocity, changes of the outputs)."""
        xp, settings, high = array_namespace(self.s), self.settings, self.by.high * self.u
        order = None if self.rng is None else self.rng.permutation(self.N)
        at, y, halvings, growing, cotangent = None, self.y, 0, self.steps == 0, settings.loss.cotangent
        while True:
            h = min(self.dt, goal - self.t)
            if order is not None:
                self.b = settings.batch(h, self.N)
                at = to_library(order[: self.b], xp)
                y = self.y[at]
                self.f, self.g = self.system.learn(self.s, at, y, cotangent)
            a = settings.decay(self.t, h)
            v = a * self.v - (1 - a) * self.g
            if order is None and settings.loss.ends and self.value.ndim:
                v *= (self.value > 0).reshape((-1, *(1 for _ in v.shape[1:])))  # members with zero loss do not move
            s = self.s + h * v
            f, g = (self.system.outputs(s, at), None) if at is not None else self.system.learn(s, None, y, cotangent)
            changes = xp.max(xp.abs(f - self.f), axis=(-2, -1))
            change = float(xp.max(changes))
            near = not xp.any(self._young() & (changes > 2 * self.path))
            fits = change < high and near and (self.steps > 0 or self._resolved(s, at, y))  # False for NaN
            growing = growing and fits and h == self.dt < HUGE
            if halvings == MAX_HALVINGS or (fits and not growing):
                break
            self.dt, halvings = (2 * h, 0) if growing else (h / 2, halvings + 1)
        if not change < high or (halvings and change == 0):
            never = f"at t = {self.t:g} no step changes the outputs by less than {high:g}, only by more or not at all"
            raise FloatingPointError(f"{never}: this is rounding, take float64 or a larger Steps(high=...)")
        self.s, self.f, self.g, self.h = s, f, g, h
        return at, v, changes

    def _resolved(self, s: Array, at: Array | None, y: Array) -> bool:
        """True if J' y, the gradient of the outputs along y, changes by at most a fraction 2 `early` in a step to s."""
        xp, axes = array_namespace(s), tuple(range(self.value.ndim, s.ndim))
        systems = self.system, self.system.after(s)
        here, there = (one.learn(a, at, y, lambda f, y: 0 * f + y)[1] for one, a in zip(systems, (self.s, s)))
        change, size = (xp.sum(xp.square(a), axis=axes) for a in (there - here, here))
        return bool(xp.all(change <= (2 * self.by.early) ** 2 * size))

    def _young(self) -> Array:
        """Return a mask of the networks whose outputs have moved, but by less than `TRAVELLED`."""
        return (self.path > 0) & (self.path < TRAVELLED * self.u)

    def _lengthen(self, change: float) -> None:
        """Choose the next dt, after a step of full length that changed the outputs by up to `change`."""
        low, high, early = self.by.low * self.u, self.by.high * self.u, float(self.by.early)
        dt = self.dt * (2 if change <= low else min(1.1, 0.8 * high / change))
        if change and array_namespace(self.s).any(self._young()):
            dt = min(dt, max((1 + early) * self.dt, early * self.t))
        self.dt = dt


def _by_solver(system: System, s: Array, y: Array, settings: FlowSettings, by: Solver) -> Iterator[Moment]:
    from scipy import integrate

    xp, shape, size, dtype, loss = array_namespace(s), s.shape, int(np.prod(s.shape)), s.dtype, settings.loss
    momentum = settings.momentum

    def state(z: Any) -> Array:
        return to_library(z[:size].astype(str(dtype)), xp).reshape(shape)

    def motion(t: float, z: Any) -> Any:
        """Return (s', v') concatenated, or s' without momentum."""
        g = to_host(system.learn(state(z), None, y, loss.cotangent)[1]).astype(np.float64).ravel()
        return np.concatenate([z[size:], -settings.friction(t) * (z[size:] + g)]) if momentum else -g

    def moment(t: float, s: Array, f: Array, steps: int, dt: float) -> Moment:
        theta, outputs = (s, f) if isinstance(system, WeightSpace) else (None, s)
        return Moment(t, theta, outputs, _value(loss, f, y, t)[0], steps, dt, len(y), False)

    f, g0 = system.learn(s, None, y, loss.cotangent)
    yield moment(0.0, xp.asarray(s, copy=True), f, 0, 0.0)
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
        yield moment(goal, s, system.outputs(s, None), steps, solver.step_size)
