"""Flows: training in continuous time, for any model and any loss, and the same for a kernel that stays as it is.

    gradient flow      theta' = -grad L
    momentum flow      theta' = v,   v' = -(v + grad L) / tau        tau a constant, or tau = t / mu
    stochastic flow    either, with the gradient of b examples and steps dt so that the temperature
                       T = dt/b (1 - (b - 1)/(N - 1)) stays constant
    frozen kernel      f' = -K dL/df in place of theta' = -grad L, for train and test points together

t is the time of the theory: gradient flow is what steps of descent with t = lr x steps approximate.  tau -> 0 is
gradient flow, T = 0 is b = N.  (Geiger et al. 2020, eq. (6) and appendices A and C.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, inf, isfinite
from typing import Any, Literal, Protocol

import numpy as np

from minintk.arrays import Array, array_namespace, check_finite, check_floating, to_host, to_library
from minintk.losses import Loss
from minintk.network import Model
from minintk.threads import parallel
from minintk.training import _parts

# ------------------------------------------------------------------------------------ ways through time


@dataclass(frozen=True)
class Steps:
    """Explicit steps dt that change no training output by more than `high`:

        low < max_n |f_n(t + dt) - f_n(t)| < high

    A step that changes one by more is taken back, and dt halved; dt doubles where all change by less than `low`, and
    grows by a tenth otherwise.  With `Centred` f holds the factor alpha already.  (Geiger et al. 2020, eq. (18).)

    One step of length dt, with the gradient g held at its start and v solved exactly:
    v <- a v - (1 - a) g,  theta <- theta + dt v,  a = e^(-dt/tau), or (t/(t + dt))^mu where tau = t/mu; 0 without v.
    """

    low: float = 1e-4
    high: float = 1e-2

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high < inf:
            raise ValueError(f"Steps expects 0 <= low < high, finite, got low={self.low!r}, high={self.high!r}")


@dataclass(frozen=True)
class Solver:
    """SciPy's adaptive Runge-Kutta solvers, to the accuracy asked for; for smooth losses on full batches.

    rtol, atol : the tolerated error of a step, in every parameter and velocity, |error| < atol + rtol |value|.
    The state passes through the host's memory in float64.  With tau = t/mu the steps can be no longer than about
    3 t/mu, and `Steps` is many times faster.
    """

    rtol: float = 1e-8
    atol: float = 1e-10
    method: Literal["RK45", "DOP853"] = "DOP853"

    def __post_init__(self) -> None:
        if self.method not in ("RK45", "DOP853"):
            raise ValueError(f"Solver(method=...) expects 'RK45' or 'DOP853', got {self.method!r}")
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            if not 0 < value < inf:
                raise ValueError(f"Solver({name}=...) expects a finite number > 0, got {value!r}")


@dataclass(frozen=True, eq=False)
class Moment:
    """The flow at time t.

    theta : ([E], P), None in a kernel's flow.  f : ([E], N, C) on the training set; ([E], M, C), all points, in a
    kernel's flow.  loss : () or (E,), of the training set.  steps : taken so far.  dt : the latest step; batch_size :
    its examples.  ended : whether every member's loss is exactly zero, and the flow over.
    """

    t: float
    theta: Array | None
    f: Array
    loss: Array
    steps: int
    dt: float
    batch_size: int
    ended: bool


# ------------------------------------------------------------------------------------------- the two flows


def flow(
    model: Model,
    theta: Array,
    x: Array,
    y: Array,
    *,
    loss: Loss,
    times: float | Sequence[float] | Array,
    tau: float | None = None,
    mu: float | None = None,
    temperature: float = 0.0,
    rng: np.random.Generator | None = None,
    by: Steps | Solver = Steps(),
    lr_scales: Mapping[str, float] | None = None,
) -> Iterator[Moment]:
    """The flow of a model's parameters; yields a `Moment` at t = 0, at each of `times`, and where it ends.

    theta : (P,) or (E, P), left as it is; the members of an ensemble take the same steps.  x : (N, *input_shape),
    y : (N, C).  times : increasing; the last may be inf with a loss that reaches zero, `Hinge`.  A flow ends when the
    loss of every member is exactly zero; a member that is there stands still meanwhile.
    tau or mu : momentum flow with tau, or with tau = t/mu; gradient flow where neither is given.  v = 0 at t = 0, and
    v = -grad L with mu.
    temperature : T of the stochastic flow, its batches of b = N / (T/dt (N - 1) + 1) examples, rounded, at least 1,
    drawn with `rng` without replacement, one draw for all members; where dt < T the temperature of b = 1, dt, is lower.
    by : `Steps(low, high)` or `Solver(rtol, atol)`.  lr_scales : as for `train`: theta' = -S grad L with the scales S.

    ValueError or TypeError for what does not fit; FloatingPointError where no step is small enough, or f not finite.

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(64), mn.Tanh(), mn.Dense(1)), (2,))
    >>> theta0 = net.init(np.random.default_rng(0))
    >>> x, y = np.eye(2), np.array([[1.0], [-1.0]])
    >>> alpha = 0.1
    >>> model = mn.Centred(net, theta0, alpha)
    >>> *_, end = flow(model, theta0, x, y, loss=mn.Hinge(alpha), times=np.inf)
    >>> end.ended, bool(np.all(y * end.f >= 1))
    (True, True)
    """
    if not isinstance(model, Model):
        raise TypeError(f"flow expects a model such as mn.Network(...), got {model!r}")
    model.check(theta, x)
    if x.shape[0] == 0:
        raise ValueError("x expects at least one example, got none")
    check_finite("theta", theta)
    xp = array_namespace(theta, x, y)
    rules = _Rules.checked(loss, times, tau, mu, temperature, rng, by)
    _check_targets(loss, y, (x.shape[0], model.outputs), theta)
    if isinstance(by, Solver) and model.advance(theta) is not model:
        raise ValueError(f"by=Solver(...) knows no steps at which {model!r} could re-anchor: use by=Steps()")
    scales = model.layout.learning_rate_scales(lr_scales)
    scales = None if scales is None else to_library(scales.astype(str(theta.dtype)), xp)
    return _run(_Weights(model, x, scales, theta), xp.asarray(theta, copy=True), y, rules)


def kernel_flow(
    kernel: Array,
    f0: Array,
    y: Array,
    *,
    loss: Loss,
    times: float | Sequence[float] | Array,
    tau: float | None = None,
    mu: float | None = None,
    temperature: float = 0.0,
    rng: np.random.Generator | None = None,
    by: Steps | Solver = Steps(),
) -> Iterator[Moment]:
    """The same flows for a frozen kernel, in function space: f' = -K dL/df, or f' = v, v' = -(v + K dL/df) / tau.

    kernel : ([E], M, N), the same for every output, or ([E], M, C, N, C): rows for all M points, the N training points
    first, columns for these.  f0 : ([E], M, C), the outputs at t = 0.  y : (N, C).  Everything else as in `flow`.

    From initialisation, or from any trained theta_1, `minintk.ntk_full(net, theta_1, all_points, x)` is the kernel; an
    analytic one serves as well.  (Geiger et al. 2020, eq. (26).)

    >>> import numpy as np, minintk as mn
    >>> K, y = np.diag([1.0, 3.0]), np.ones((2, 1))
    >>> *_, end = kernel_flow(K, np.zeros((2, 1)), y, loss=mn.mse, times=2.0, by=Solver())
    >>> bool(np.allclose(end.f[:, 0], 1 - np.exp([-1.0, -3.0])))     # 1 - e^(-K t / N)
    True
    """
    xp = array_namespace(kernel, f0, y)
    for name, a in (("kernel", kernel), ("f0", f0)):
        check_floating(name, a)
        check_finite(name, a)
        if a.dtype != kernel.dtype:
            raise TypeError(f"{name} must have the dtype of the kernel, {kernel.dtype}, got {a.dtype}")
    if f0.ndim not in (2, 3) or y.ndim != 2:
        raise ValueError(f"f0 expects shape ([E], M, C) and y (N, C), got {tuple(f0.shape)} and {tuple(y.shape)}")
    (M, C), N, lead = f0.shape[-2:], y.shape[0], tuple(f0.shape[:-2])
    if tuple(kernel.shape) not in {(*e, *k) for e in ((), lead) for k in ((M, N), (M, C, N, C))}:
        raise ValueError(
            f"kernel expects shape ([E], {M}, {N}), or ([E], {M}, {C}, {N}, {C}), rows for every point of f0, "
            f"columns for those of y, got {tuple(kernel.shape)}"
        )
    if not 1 <= N <= M:
        raise ValueError(f"y expects at least 1 and at most the {M} points of f0, training points first, got {N}")
    rules = _Rules.checked(loss, times, tau, mu, temperature, rng, by)
    _check_targets(loss, y, (N, C), kernel)
    full = tuple(kernel.shape[-4:]) == (M, C, N, C) and kernel.ndim >= 4
    return _run(_Kernel(kernel, full, N), xp.asarray(f0, copy=True), y, rules)


# ------------------------------------------------------------------------------------- what flows: the state

Pull = Callable[[Array], Array]


class _System(Protocol):
    """What has outputs f at a state s, and a derivative in s."""

    def look(self, s: Array, at: Array | None) -> tuple[Array, Pull]:
        """(f, pull): the outputs of the training examples `at`, all for None, and dL/df -> the gradient in s."""

    def outputs(self, s: Array) -> Array:
        """f on all training examples, without what a gradient would need."""

    def advance(self, s: Array) -> bool:
        """Tell the system of a step to s; whether that changed it."""

    def moment(self, s: Array, f: Array) -> tuple[Array | None, Array]:
        """(theta, f) to be shown."""


class _Weights:
    """s = theta, the gradient J' dL/df; members of an ensemble shared out over the cores."""

    def __init__(self, model: Model, x: Array, scales: Array | None, theta: Array) -> None:
        self.model, self.x, self.scales = model, x, scales
        self.parts = _parts(model, theta, x.shape[0])

    def look(self, s: Array, at: Array | None) -> tuple[Array, Pull]:
        x = self.x if at is None else self.x[at]
        models = [self.model] if len(self.parts) == 1 else [self.model.members(part) for part in self.parts]
        count = range(len(self.parts))

        def linearize(i: int) -> tuple[Array, Any]:
            with np.errstate(over="ignore", invalid="ignore"):  # a step too long is taken back
                return models[i]._linearize(s[self.parts[i]], x)

        looks = parallel(linearize, count)
        xp = array_namespace(s)
        f = looks[0][0] if len(looks) == 1 else xp.concat([f for f, _ in looks])

        def pull(u: Array) -> Array:
            g = xp.empty_like(s)
            parallel(lambda i: looks[i][1]._vjp(u[self.parts[i]], g[self.parts[i]]), count)
            if self.scales is not None:
                g *= self.scales
            return g

        return f, pull

    def outputs(self, s: Array) -> Array:
        N, step = self.x.shape[0], self.x.shape[0] if self.model.coupled else 1000
        parts = [self.model._linearize(s, self.x[i : i + step])[0] for i in range(0, N, step)]
        return array_namespace(s).concat(parts, axis=-2)

    def advance(self, s: Array) -> bool:
        before, self.model = self.model, self.model.advance(s)
        return self.model is not before

    def moment(self, s: Array, f: Array) -> tuple[Array | None, Array]:
        return array_namespace(s).asarray(s, copy=True), f


class _Kernel:
    """s = f on all points : ([E], M, C), the "gradient" K dL/df."""

    def __init__(self, kernel: Array, full: bool, N: int) -> None:
        self.kernel, self.full, self.N = kernel, full, N

    def look(self, s: Array, at: Array | None) -> tuple[Array, Pull]:
        K, full = self.kernel, self.full
        f = s[..., : self.N, :]
        if at is not None:
            f, K = f[..., at, :], K[..., at, :] if full else K[..., at]
        if full:
            M, C, b, _ = K.shape[-4:]
            K = K.reshape((*K.shape[:-4], M * C, b * C))

        def pull(u: Array) -> Array:
            return (K @ u.reshape((*u.shape[:-2], -1, 1))).reshape(s.shape) if full else K @ u

        return f, pull

    def outputs(self, s: Array) -> Array:
        return s[..., : self.N, :]

    def advance(self, s: Array) -> bool:
        return False

    def moment(self, s: Array, f: Array) -> tuple[Array | None, Array]:
        return None, array_namespace(s).asarray(s, copy=True)


# --------------------------------------------------------------------------------------- how it flows: the rules


@dataclass(frozen=True)
class _Rules:
    """The loss, the times to report, and the law of motion."""

    loss: Loss
    times: tuple[float, ...]
    tau: float | None
    mu: float | None
    temperature: float
    rng: np.random.Generator | None
    by: Steps | Solver

    @classmethod
    def checked(cls, loss: Any, times: Any, tau: Any, mu: Any, temperature: Any, rng: Any, by: Any) -> _Rules:
        """Raise for rules that make no flow."""
        if not isinstance(loss, Loss):
            raise TypeError(f"loss expects a loss such as mn.mse or mn.hinge, got {loss!r}")
        if not isinstance(by, (Steps, Solver)):
            raise TypeError(f"by expects mn.Steps(...) or mn.Solver(...), got {by!r}")
        goals = tuple(float(t) for t in np.atleast_1d(to_host(times)).ravel())
        if not goals or not all(t > 0 for t in goals) or any(b <= a for a, b in pairwise(goals)):
            raise ValueError(f"times expects numbers > 0, increasing, got {times!r}")
        if goals[-1] == inf and not loss.ends:
            raise ValueError(f"times up to inf need a loss that reaches zero in finite time, mn.hinge, got {loss!r}")
        if tau is not None and mu is not None:
            raise ValueError(f"momentum flow expects tau, or mu for tau = t/mu, not both, got tau={tau!r}, mu={mu!r}")
        for name, value in (("tau", tau), ("mu", mu)):
            if value is not None and not 0 < value < inf:
                raise ValueError(f"{name} expects a finite number > 0, or None, got {value!r}")
        if not (isfinite(temperature) and temperature >= 0):
            raise ValueError(f"temperature expects a finite number >= 0, got {temperature!r}")
        if temperature and not isinstance(rng, np.random.Generator):
            raise TypeError(f"stochastic flow draws its batches with rng=numpy.random.default_rng(seed), got {rng!r}")
        if temperature and isinstance(by, Solver):
            raise ValueError("a stochastic flow has no smooth path for by=Solver(...): by=Steps(), or temperature=0")
        if loss.ends and isinstance(by, Solver):
            raise ValueError(
                f"the gradient of {loss!r} jumps, and a flow can stay on the jump, where by=Solver(...) would stop "
                "moving: use by=Steps(), or a smooth loss, mn.logistic"
            )
        return cls(loss, goals, tau, mu, float(temperature), rng, by)

    @property
    def momentum(self) -> bool:
        return self.tau is not None or self.mu is not None

    def decay(self, t: float, h: float) -> float:
        """a with v(t + h) = a v - (1 - a) g for a constant g: exp of -int dt/tau; 0 for gradient flow."""
        if self.tau is not None:
            return exp(-h / self.tau)
        return (t / (t + h)) ** self.mu if self.mu is not None else 0.0

    def friction(self, t: float) -> float:
        """1/tau; 0 at t = 0 where tau = t/mu: v = -grad L there, and rests on it."""
        if self.tau is not None:
            return 1 / self.tau
        return self.mu / t if self.mu is not None and t > 0 else 0.0

    def batch(self, h: float, N: int) -> int:
        """b with T = h/b (1 - (b-1)/(N-1)); Geiger et al. 2020, eq. (19)."""
        return N if self.temperature == 0 else max(1, round(N / (self.temperature / h * (N - 1) + 1)))


def _check_targets(loss: Loss, y: Array, outputs: tuple[int, int], like: Array) -> None:
    loss.check(y, outputs)
    if y.dtype != like.dtype:
        raise TypeError(f"y must have the dtype of the outputs, {like.dtype}, got {y.dtype}: y.astype({like.dtype})")


def _run(system: _System, s: Array, y: Array, rules: _Rules) -> Iterator[Moment]:
    by = rules.by
    return _by_steps(system, s, y, rules, by) if isinstance(by, Steps) else _by_solver(system, s, y, rules, by)


def _value(rules: _Rules, f: Array, y: Array, t: float) -> tuple[Array, bool]:
    """(loss, whether all of it is exactly zero); FloatingPointError where it is not finite."""
    xp = array_namespace(f)
    value = rules.loss(f, y)
    if not bool(xp.all(xp.isfinite(value))):
        raise FloatingPointError(f"the loss is not finite at t = {t:g}: check the outputs of the model there")
    return value, rules.loss.ends and not bool(xp.any(value))


def _moving(value: Array, like: Array) -> Array:
    """1 for the members whose loss is not yet exactly zero, 0 for the others, with the axes of `like`."""
    xp = array_namespace(value)
    return xp.reshape((value > 0).astype(like.dtype), (*value.shape, *(1 for _ in like.shape[value.ndim :])))


HALVINGS = 200
"""Halvings of dt in a row after which rounding, not the step, must be what changes the outputs."""


def _by_steps(system: _System, s: Array, y: Array, rules: _Rules, by: Steps) -> Iterator[Moment]:
    xp, N, rng = array_namespace(s), y.shape[0], rules.rng if rules.temperature else None
    t, dt, h, steps, b, seen = 0.0, 1.0, 0.0, 0, N, 0
    v: Array | float = 0.0
    at, target = None, y
    pull: Any = None
    if rng is None:
        f, pull = system.look(s, None)
    else:
        f = system.outputs(s)
    value, ended = _value(rules, f, y, t)
    yield Moment(t, *system.moment(s, f), value, steps, h, b, ended)
    for goal in rules.times:
        while t < goal and not ended:
            order = None if rng is None else rng.permutation(N)
            g: Any = None if rng is not None else pull(rules.loss.cotangent(f, y))
            halvings = 0
            while True:
                h = min(dt, goal - t)
                if order is not None:
                    b = rules.batch(h, N)
                    at = to_library(order[:b], xp)
                    target = y[at]
                    f, pull = system.look(s, at)
                    g = pull(rules.loss.cotangent(f, target))
                a = rules.decay(t, h)
                v_new = a * v - (1 - a) * g
                if rng is None and rules.loss.ends and value.ndim:
                    v_new *= _moving(value, v_new)
                s_new = s + h * v_new
                f_new, pull_new = system.look(s_new, at)
                change = float(xp.max(xp.abs(f_new - f)))
                if change < by.high or halvings == HALVINGS:  # the first not for a NaN
                    break
                dt, halvings = h / 2, halvings + 1
            if not change < by.high or (halvings and change == 0):  # all or nothing
                raise FloatingPointError(
                    f"at t = {t:g} no step changes the outputs by less than {by.high:g}, only by more or not at all: "
                    "this is rounding, take float64 or a larger Steps(high=...)"
                )
            if h == dt:
                dt *= 2 if change <= by.low else 1.1
            t, steps, seen = goal if h == goal - t else t + h, steps + 1, seen + b
            s, v, f, pull = s_new, v_new, f_new, pull_new
            moved = system.advance(s)
            if rng is None:
                f, pull = system.look(s, None) if moved else (f, pull)
                value, ended = _value(rules, f, y, t)
            elif t == goal or (rules.loss.ends and seen >= N and not bool(xp.any(rules.loss(f, target)))):
                f, seen = system.outputs(s), 0
                value, ended = _value(rules, f, y, t)
        yield Moment(t, *system.moment(s, f), value, steps, h, b, ended)
        if ended:
            return


def _by_solver(system: _System, s: Array, y: Array, rules: _Rules, by: Solver) -> Iterator[Moment]:
    from scipy import integrate

    xp, shape, size, dtype = array_namespace(s), s.shape, int(np.prod(s.shape)), s.dtype

    def state(z: Any) -> Array:
        return to_library(z[:size].astype(str(dtype)), xp).reshape(shape)

    def motion(t: float, z: Any) -> Any:
        """(s', v'), or s' alone."""
        f, pull = system.look(state(z), None)
        g = to_host(pull(rules.loss.cotangent(f, y))).astype(np.float64)
        if not rules.momentum:
            return -g.ravel()
        return np.concatenate([z[size:], -rules.friction(t) * (z[size:] + g.ravel())])

    f, pull = system.look(s, None)
    yield Moment(0.0, *system.moment(s, f), _value(rules, f, y, 0.0)[0], 0, 0.0, len(y), False)
    start = to_host(s).astype(np.float64).ravel()
    if rules.momentum:
        g = to_host(pull(rules.loss.cotangent(f, y))).astype(np.float64).ravel()
        start = np.concatenate([start, -g if rules.mu is not None else np.zeros(size)])
    solver = getattr(integrate, by.method)(motion, 0.0, start, rules.times[-1], rtol=by.rtol, atol=by.atol)
    steps = 0
    for goal in rules.times:
        while solver.t < goal:
            with np.errstate(over="ignore", invalid="ignore"):
                message = solver.step()
            steps += 1
            if solver.status == "failed":
                raise FloatingPointError(f"the solver gave up at t = {solver.t:g}: {message}")
        s = state(solver.y if goal == solver.t else solver.dense_output()(goal))
        f, _ = system.look(s, None)
        yield Moment(goal, *system.moment(s, f), _value(rules, f, y, goal)[0], steps, solver.step_size, len(y), False)
