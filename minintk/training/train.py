"""Train any model, or the members of an ensemble in parallel, and yield snapshots.

One step computes f and its Jacobian J at theta, and updates theta <- optimiser(theta, J' dL/df).
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, TypeVar

import numpy as np

from minintk.arrays import Array, array_namespace, on_host, own, to_host, to_library
from minintk.cores import cores
from minintk.diagnostics.weight_norms import fixed_start, largest_singular_value
from minintk.layers.contract import Params
from minintk.memory import keep_freed_memory
from minintk.models.model import Model
from minintk.threads import parallel, single_threaded_blas
from minintk.thresholds import THRESHOLDS
from minintk.training.batches import Batches, Shift
from minintk.training.losses import Loss, check_problem
from minintk.training.optimizers import Optimizer
from minintk.training.schedules import rate
from minintk.validate import whole

GROWN = 1000.0
"""`train` warns of divergence if the loss exceeds both its first value and its value at f = 0 by this factor."""


@dataclass(frozen=True, eq=False, repr=False)
class State:
    """The state of training before step `step`.  A run resumed from it has the same bits as an uninterrupted run.

    theta : ([E], P).  memory : see `Optimizer.init`.  anchors : `Model.anchors`.
    rng : the state of the generator at the start of the current epoch (in a flow, before the next step).
    """

    step: int
    theta: Array
    memory: Array | None = None
    rng: dict[str, Any] | None = None
    anchors: dict[str, Array] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"State(step={self.step}, theta {tuple(self.theta.shape)})"


@dataclass(frozen=True, eq=False, repr=False)
class Snapshot:
    """The state and the results of a run after `step` steps.

    t : lr x steps, or the sum of the rates so far if lr is a schedule.  theta : ([E], P), not changed by later steps.
    loss : () or (E,), and f : ([E], B, C), both on the next batch of B examples (on all examples without batch_size).
    model : the model, with its current anchor if the anchor changes.  state : for `train(..., resume=state)`.
    """

    step: int
    t: float
    theta: Array
    loss: Array
    f: Array
    model: Model
    state: State

    def __repr__(self) -> str:
        return f"Snapshot(step={self.step}, t={self.t:g}, {loss_text(self.loss)}, theta {tuple(self.theta.shape)})"


def loss_text(loss: Array) -> str:
    """Return text for a loss, () or (E,): its value, or its range over the members."""
    host = to_host(loss)
    return f"loss={float(host):.4g}" if host.ndim == 0 else f"loss={host.min():.4g} to {host.max():.4g}"


def train(
    model: Model,
    theta: Array,
    x: Array,
    y: Array,
    *,
    loss: Loss,
    optimizer: Optimizer,
    steps: int,
    batch_size: int | None = None,
    rng: np.random.Generator | None = None,
    every: int = 1,
    lr_scales: Mapping[str, float] | None = None,
    augment: Shift | None = None,
    resume: State | None = None,
    params: Params = None,
) -> Iterator[Snapshot]:
    """Train a model, and yield a snapshot at step 0, then every `every` steps, and at the last step.

    theta : (P,) or (E, P), which is not modified.  x : (N, *input_shape), y : (N, C).  x and y are read during
    the run and not copied, as they can be large or a `numpy.memmap`.  Do not change x or y until the run is over.
    batch_size : the number of examples per step, N by default.  `rng` shuffles the examples for every epoch.  An epoch
    has floor(N / batch_size) steps, and omits the last N mod batch_size examples of the shuffled order.
    lr_scales : {tensor name: scale}, which replaces the parametrization's scales of these tensors.  0 freezes a tensor.
    params : the trained parameters, as for `ntk`.  augment : random shifts, by up to 7 pixels for `Shift(7)`.
    resume : the state of a snapshot of the same run.  `rng` is restored, and later snapshots have the same bits as
    those of an uninterrupted run.  `minintk.training.checkpoints` saves states.  `fit` saves and resumes automatically.

    Warns if a squared loss cannot converge at this learning rate (`warn_if_unstable`), if a loss exceeds 1000 times
    both its initial value and its value at f = 0, or if no snapshot is requested.  Raises FloatingPointError if the
    loss is not finite.  Raises ValueError or TypeError for invalid arguments before training starts.

    >>> import numpy as np, minintk as mn
    >>> net = mn.Network(mn.Sequential(mn.Dense(64), mn.Tanh(), mn.Dense(1)), (2,))
    >>> theta0 = net.init(np.random.default_rng(0))
    >>> x, y = np.eye(2), np.array([[1.0], [-1.0]])
    >>> run = train(net, theta0, x, y, loss=mn.mse, optimizer=mn.SGD(lr=1.0), steps=50)
    >>> losses = [float(snap.loss) for snap in run]
    >>> len(losses), losses[-1] < 1e-3 * losses[0]
    (51, True)
    """
    run = Descent(model, theta, x, y, loss, optimizer, steps, batch_size, rng, lr_scales, augment, params)
    return OnDemand(snapshots(run, steps, every, resume), "mn.train(...)")


Result = TypeVar("Result")


class OnDemand(Iterator[Result]):
    """An iterator that warns if it is deleted before its first use.  call : the text of the call, for the warning."""

    def __init__(self, results: Iterator[Result], call: str) -> None:
        self._results = results
        said = (
            f"{call} computes each result when it is asked for, and none was: nothing was trained. Write "
            f"`for snapshot in {call}: ...`, or `*_, end = {call}` for the last one alone"
        )
        self._forgotten = weakref.finalize(self, warnings.warn, said, RuntimeWarning, 2)  # warns where it is deleted
        self._forgotten.atexit = False

    def __next__(self) -> Result:
        self._forgotten.detach()
        return next(self._results)


def snapshots(run: Descent, steps: int, every: int, resume: State | None) -> Iterator[Snapshot]:
    """Return an iterator over the snapshots of a run.  Raise ValueError if `resume` is already past `steps`."""
    every = whole("every", every)
    if resume is not None:
        run.restore(resume)
    if run.step > steps:
        raise ValueError(f"resume is the state at step {run.step}, beyond steps={steps}: ask for more steps")
    return _train(run, steps, every)


def _train(run: Descent, steps: int, every: int) -> Iterator[Snapshot]:
    run.limit = None
    if run.step == 0:
        warn_if_unstable(run, stacklevel=4)  # points to the caller's loop
    while True:
        step, model = run.step, run.model
        shown, last = step % every == 0 or step == steps, step == steps
        state = run.state(copy=not last) if shown else None  # no later step overwrites the last state
        f, value = run.advance(learn=not last, check=shown)
        if state is not None:
            yield Snapshot(step, run.optimizer.t(step), state.theta, value, f, model, state)
        if last:
            return


class Descent:
    """A training run.  `advance` changes theta and memory in place.  y contains the targets of the latest batch."""

    def __init__(
        self, model: Model, theta: Array, x: Array, y: Array, loss: Loss, optimizer: Optimizer, steps: int,
        batch_size: int | None = None, rng: np.random.Generator | None = None,
        lr_scales: Mapping[str, float] | None = None, augment: Shift | None = None, params: Params = None,
    ) -> None:  # fmt: skip
        check_problem(model, theta, x, y, loss)
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"optimizer expects an optimiser such as mn.SGD(lr=0.1), got {optimizer!r}")
        optimizer.check(theta, whole("steps", steps, 0))
        xp = array_namespace(theta, x, y)
        self.scales = model.layout.learning_rate_scales(lr_scales, optimizer.rule, like=theta, params=params)
        self.model, self.loss, self.optimizer = model, loss, optimizer
        self.batches = Batches(x, y, batch_size, rng, augment)
        self.step, self.theta = 0, own(theta)
        keep_freed_memory(self.theta)
        self.memory = optimizer.init(self.theta)
        self.gradient, self.y = xp.full_like(self.theta, float("nan")), y
        self.written = False  # True once a backward sweep has filled the gradient
        self.limit: float | None = inf  # the loss above which we warn; None until the next loss sets it
        self.parts = member_slices(model, self.theta, self.batches.size)
        self._check_every = 1 if on_host(xp) else 50  # reading the loss waits for the GPU

    def state(self, copy: bool = False) -> State:
        """Return the current state.  Without `copy`, `advance` will overwrite the state's arrays."""
        theta, memory = (own(a) if copy and a is not None else a for a in (self.theta, self.memory))
        return State(self.step, theta, memory, self.batches.state(self.step), self.model.anchors())

    def restore(self, state: State) -> None:
        """Continue from `state`.  Raise TypeError or ValueError unless the state fits this run (see `check_state`)."""
        check_state(state, self.theta, self.memory, self.model.anchors())
        xp = array_namespace(self.theta, state.theta)
        self.step, self.theta = state.step, xp.asarray(state.theta, copy=True)
        self.memory = None if state.memory is None else xp.asarray(state.memory, copy=True)
        self.model = self.model.anchored(state.anchors)
        self.batches.restore(state.rng)

    def advance(self, *, learn: bool = True, check: bool = False) -> tuple[Array, Array]:
        """Return f : ([E], B, C) and the loss : () or (E,) on the next batch of B examples.  Take one step if `learn`.

        Raises FloatingPointError if the loss is not finite.  On a GPU, the loss is read every 50 steps, or if `check`.
        """
        xp = array_namespace(self.theta)
        xb, yb = self.batches(self.step)
        self.y = yb
        optimizer = self.optimizer.at(self.step)
        models = [self.model] if len(self.parts) == 1 else [self.model.members(part) for part in self.parts]

        def work(i: int) -> tuple[Array, Array]:
            part = self.parts[i]
            with np.errstate(over="ignore", invalid="ignore"):  # divergence is reported once, as an error
                f, J = models[i].forward(self.theta[part], xb)
                value = self.loss(f, yb)
                if learn:
                    J.pull(self.loss.cotangent(f, yb), self.gradient[part])
                    if not self.written:
                        self._check_written(self.gradient[part], value)
                    memory = None if self.memory is None else self.memory[part]
                    optimizer.members(part).step(self.theta[part], self.gradient[part], memory, self.scales)
            return f, value

        with single_threaded_blas():  # the step itself splits its work over the cores
            results = parallel(work, range(len(self.parts)))
        f, value = results[0] if len(results) == 1 else (xp.concat(list(column)) for column in zip(*results))
        if check or self.step % self._check_every == 0:
            if not bool(xp.all(xp.isfinite(value))):
                raise FloatingPointError(_diverged(self.step, value, optimizer))
            largest = float(xp.max(value))
            if self.limit is None:
                self.limit = GROWN * largest
            elif largest > self.limit and largest > GROWN * float(self.loss(xp.zeros_like(f), yb).max()):
                warnings.warn(
                    f"the loss has grown {GROWN:g}-fold, to {largest:.3g} at step {self.step}: training"
                    f" diverges; choose a learning rate below {optimizer.lr:g}",
                    RuntimeWarning,
                    stacklevel=4,  # points to the caller's loop
                )
                self.limit = inf
        if learn:
            self.written = True
            self.model = self.model.advance(self.theta)
            self.step += 1
        return f, value

    def _check_written(self, gradient: Array, value: Array) -> None:
        """Raise TypeError if the loss, `value`, is finite but an entry of `gradient` is NaN: no layer wrote it."""
        xp, layout = array_namespace(gradient), self.model.layout
        for t in layout.tensors if bool(xp.all(xp.isfinite(value))) else ():
            if bool(xp.any(xp.isnan(gradient[..., layout.slices[t.name]]))):
                raise TypeError(f"no layer wrote the gradient of {t.name}: vjp(u, dw) must fill dw[{t.name!r}], with =")


def check_state(state: State, theta: Array, memory: Array | None, anchors: Mapping[str, Array]) -> None:
    """Raise TypeError unless `state` is a State, and ValueError unless its shapes and theta's dtype fit the run."""
    if not isinstance(state, State):
        raise TypeError(f"resume expects the state of a snapshot or a moment, snap.state, got {state!r}")
    expected = _form(theta, memory, anchors)
    if (given := _form(state.theta, state.memory, state.anchors)) != expected:
        raise ValueError(f"resume expects a state of this run, {expected}, got {given}")


def _form(theta: Array, memory: Array | None, anchors: Mapping[str, Array]) -> str:
    """Return the shapes of a state's arrays and theta's dtype as text.  Omit the optional axis E of anchors."""
    momentum = "no momentum" if memory is None else f"momentum {tuple(memory.shape)}"
    others = {name: tuple(a.shape[a.shape[:1] == theta.shape[:-1] :]) for name, a in sorted(anchors.items())}
    return f"theta {tuple(theta.shape)} {theta.dtype} and {momentum}" + (f", anchors {others}" if others else "")


def member_slices(model: Model, theta: Array, N: int) -> list[slice]:
    """Return slices of the ensemble that fit a core's cache if possible, or one slice on a GPU or without axis E."""
    if theta.ndim == 1 or not on_host(array_namespace(theta)):
        return [slice(None)]
    E, P = theta.shape
    member = theta.dtype.itemsize * (2 * N * model.footprint[0] + 3 * P)
    limit = THRESHOLDS.ensemble_bytes
    size = max(1, E if E * member <= limit else min(-(-E // cores()), limit // member))
    return [slice(i, min(i + size, E)) for i in range(0, E, size)]


def warn_if_unstable(run: Descent, stacklevel: int = 3) -> None:
    """Warn if a squared loss cannot converge at the initial learning rate, given the tangent kernel at the start.

    Full-batch descent diverges for lr > reach N / (c lambda_max).  lambda_max is the largest eigenvalue of J S J',
    `reach` is 2 (1 + momentum) for heavy ball, and c is `loss.curvature` (1 for mn.mse).  In a direction in which the
    curvature has mean lambda, and variance lambda s over batches of b examples, descent is stable in mean square up to

        1 / lr = c (lambda / reach + s / (2 (1 - momentum))),    s = (k - lambda) (1/b - 1/N),    k = mean |J_n|^2

    at the worst lambda from 0 to lambda_max / N.  J_n is the Jacobian at example n.  We estimate lambda_max on a batch
    by 3 Lanczos steps (more if lr exceeds half the bound), and k on up to 4 examples.  For b < N, we warn above 1.5
    times the bound, because linearised networks diverged at .8 to 1.5 times it (b = 2 to 32, momentum 0 and .9).
    """
    curvature, batches, reach = run.loss.curvature, run.batches, run.optimizer.reach
    full, lr = batches.size == batches.x.shape[0], rate(run.optimizer.lr, 0)
    if curvature is None or reach == inf or lr == 0 or batches.augment or (run.model.coupled and not full):
        return
    bound = 1 / max(curvature * _inverse_rate(run, reach, 0.5 / (lr * curvature)), 1e-300)
    if lr > (bound if full else 1.5 * bound):
        run.limit = inf  # avoids a second warning
        at = f"{reach / curvature:.3g} N / lambda_max" if full else f"that of mini-batches of {batches.size}, from one"
        warnings.warn(
            f"learning rate {lr:g} is above the stability bound {bound:.4g}: {at}"
            " of the tangent kernel at the start: the linearised network diverges; choose a smaller lr",
            RuntimeWarning,
            stacklevel=stacklevel,
        )


def _inverse_rate(run: Descent, reach: float, clear: float) -> float:
    """Return the largest 1 / (c lr) of `warn_if_unstable` over members and lambda, less accurately if below `clear`."""
    b, N, m = run.batches.size, run.batches.x.shape[0], float(getattr(run.optimizer, "momentum", 0.0))
    x = run.batches.x if b == N else run.batches.x[to_library(np.arange(b) * N // b, array_namespace(run.theta))]

    def work(part: slice) -> float:
        model, theta = run.model.members(part), run.theta[part]
        top = _largest_eigenvalue(model, theta, x, run.scales, clear * reach * b)
        if b == N:
            return top / N / reach
        ks = [_largest_eigenvalue(model, theta, x[i : i + 1], run.scales, inf) for i in range(min(b, 4))]
        k = sum(ks) / len(ks)
        mean = max(0.0, top - k) / max(b - 1, 1)
        return max(at / reach + (k - at) * (1 / b - 1 / N) / (2 * (1 - m)) for at in (0.0, mean))

    return max(parallel(work, run.parts))


def _largest_eigenvalue(model: Model, theta: Array, x: Array, scales: Array | None, clear: float) -> float:
    """Return a lower bound on lambda_max of J S J' by three Lanczos steps (more above `clear`), or 0 if not finite."""
    with np.errstate(over="ignore", invalid="ignore"), suppress(ValueError):  # eigvalsh and cotangents can raise it
        f, J = model.forward(theta, x)

        def back(u: Array) -> Array:
            g = J.vjp(u)
            return g if scales is None else g * scales

        norms = largest_singular_value(back, J.push, fixed_start(f, f.shape[-2:]), 2, inf, clear**0.5)
        if isfinite(size := float(array_namespace(f).max(norms))):
            return size**2
    return 0.0  # the first step of training will raise an error


def _diverged(step: int, value: Array, optimizer: Optimizer) -> str:
    """Return the message for a loss that has become infinite or NaN."""
    bad = np.flatnonzero(~np.isfinite(to_host(value)))
    who = f" (member {', '.join(map(str, bad[:8]))}{' ...' if len(bad) > 8 else ''})" if value.ndim else ""
    remedy = f"choose a learning rate below {optimizer.lr:g}"
    return f"training diverged: the loss{who} is no longer finite at step {step}; {remedy}"
