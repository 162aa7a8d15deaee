"""Train in continuous time, with any model and any loss, or with a frozen kernel.

    gradient flow      theta' = -grad L
    momentum flow      theta' = v,   v' = -(v + grad L) / tau        with tau constant, or tau = t / mu
    stochastic flow    gradient or momentum flow, with gradients on batches of b examples.  For each step dt, b is
                       chosen so that the temperature T = dt/b (1 - (b - 1)/(N - 1)) is constant
    frozen kernel      f' = -K dL/df instead of theta' = -grad L, on training and test points together

Gradient descent approximates gradient flow at time t = lr x steps.  Gradient flow is the limit tau -> 0 of momentum
flow.  At T = 0, each step uses all N examples.  See Geiger et al. 2020, eq. (6) and appendices A and C.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from minintk.arrays import Array, own
from minintk.layers.dropout import KEYS
from minintk.models.model import Model
from minintk.training.flow_state import FrozenKernel, WeightSpace
from minintk.training.integrators import FlowSettings, Moment, Solver, Steps, run_flow
from minintk.training.kernel_descent import check_frozen
from minintk.training.losses import Loss, check_problem, check_targets
from minintk.training.train import OnDemand, State


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
    by: Steps | Solver = Steps(),  # noqa: B008 (frozen)
    lr_scales: Mapping[str, float] | None = None,
    resume: State | None = None,
) -> Iterator[Moment]:
    """Integrate the flow of a model's parameters, and yield a `Moment` at t = 0, at each of `times`, and at the end.

    theta : (P,) or (E, P), which is not modified.  All members of an ensemble use the same dt.
    x : (N, *input_shape), y : (N, C).  Both are read during the run and not copied.
    times : the times to report, increasing.  The last time can be inf if the loss can reach zero (`Hinge`).  Such a
    flow ends when the loss of every member is exactly zero.  A member whose loss reaches zero earlier stops, except in
    a stochastic flow with momentum.  If no theta has zero loss, a flow to t = inf stops only if the gradient vanishes.
    The last moment then has t = inf, and `ended` is False.  tau or mu : momentum flow with this tau, or with
    tau = t/mu.  The default is gradient flow.  At t = 0, v = 0 with tau, and v = -grad L with mu.
    temperature : T of the stochastic flow.  `rng` draws batches of b = N / (T/dt (N - 1) + 1) examples (rounded, at
    least 1) without replacement.  All members use the same batches.  If dt < T, then b = 1 and the temperature is dt.
    by : `Steps(low, high)` or `Solver(rtol, atol)`.  lr_scales : as for `train`; theta' = -S grad L with scales S.
    resume : the state of a moment of the same flow, with the same `times`.  The flow restores the state of `rng`, and
    yields that moment and all later ones, with the same bits as before.  `minintk.training.checkpoints` saves states.

    Raises ValueError or TypeError for invalid arguments; FloatingPointError for infinite losses or no accepted step.

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
    settings = FlowSettings(loss, times, tau, mu, temperature, rng, by, resume)
    check_problem(model, theta, x, y, loss)
    moves = model.advance(theta) is not model
    if moves and any(name.endswith(KEYS) for name in model.anchors()):
        raise ValueError("flow expects one function of theta, masks change with every step: leave with_dropout out")
    if isinstance(by, Solver) and moves:
        raise ValueError(f"by=Solver(...) knows no steps at which {model!r} could re-anchor: use by=Steps()")
    scales = model.layout.learning_rate_scales(lr_scales, like=theta)
    system = WeightSpace(model, x, scales, theta, whole=temperature == 0)
    return OnDemand(run_flow(system, own(theta), y, settings), "mn.flow(...)")


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
    by: Steps | Solver = Steps(),  # noqa: B008 (frozen)
    resume: State | None = None,
) -> Iterator[Moment]:
    """Integrate a flow with a frozen kernel: f' = -K dL/df, or f' = v, v' = -(v + K dL/df) / tau.

    kernel : ([E], M, N), the same for every output, or ([E], M, C, N, C).  It has rows for M points, beginning with
    the N training points, and columns for the training points.  f0 : ([E], M, C), the outputs at t = 0.
    y : (N, C).  `kernel` and `y` are read during the run and not copied.  The other arguments are those of `flow`.

    The kernel can be analytic or `minintk.ntk_full(net, theta, all_points, x)`.  See Geiger et al. 2020, eq. (26).

    >>> import numpy as np, minintk as mn
    >>> K, y = np.diag([1.0, 3.0]), np.ones((2, 1))
    >>> *_, end = kernel_flow(K, np.zeros((2, 1)), y, loss=mn.mse, times=2.0, by=mn.Solver())
    >>> bool(np.allclose(end.f[:, 0], 1 - np.exp([-1.0, -3.0])))     # 1 - e^(-K t / N)
    True
    """
    N, full = check_frozen(kernel, f0, y)
    settings = FlowSettings(loss, times, tau, mu, temperature, rng, by, resume)
    check_targets(loss, y, (N, f0.shape[-1]), kernel)
    return OnDemand(run_flow(FrozenKernel(kernel, full, N), own(f0), y, settings), "mn.kernel_flow(...)")
