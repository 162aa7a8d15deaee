"""Train with the hierarchy of tangent kernels, which corrects the frozen kernel at higher orders in 1/width.

    df_a/dt = - sum_b Theta_ab r_b,   dTheta_ab/dt = - sum_c O3_abc r_c,   dO3_abc/dt = - sum_d O4_abcd r_d,   r = dL/df

Each index runs over all outputs of all examples.  Theta = O2 = J S J' with the learning-rate scales S, and O_(k+1) is
the derivative of O_k along S grad f.  O3 and O4 are of order 1/width, O5 and O6 of order 1/width^2.  The error of f and
Theta is O(1/width) with Theta frozen, and O(1/width^2) with O4 frozen (Dyer, Gur-Ari 2020, section 4; Huang, Yau 2020).

For a given r(t), the solution is Theta(t) = Theta - O3.s + O4.A with s_c = int r_c dt, A_cd = int r_c s_d dt.  O3 and
O4 are never formed.  O4_..cd is D^2Theta along S grad f_c and S grad f_d, plus DTheta along the derivative of S grad
f_c in the direction S grad f_d.  O3.s and O4.A are therefore derivatives of Theta along weight displacements:

    d1 = - S J' s,        dd2/dt = - S D^2f[d1, .]' r
    Theta(t) = Theta + DTheta[d1]                                       O3 frozen
    Theta(t) = Theta + DTheta[d1] + 1/2 D^2Theta[d1, d1] + Xi           O4 frozen,  dXi/dt = DTheta[dd2/dt]

Apart from Xi, Theta(t) is a sum of products of Jacobians, which Taylor mode computes (`minintk.models.taylor`):

    T1 = J,   T2 = J + D^2f[d1, .],   T3 = T2 + 1/2 D^3f[d1, d1, .]
    O3 frozen:  T2 S T1' + T1 S T2' - T1 S T1'        O4 frozen:  T2 S T2' + (T3 - T2) S T1' + T1 S (T3 - T2)' + Xi
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any, ClassVar

from minintk.arrays import Array, array_namespace, available_memory, to_library
from minintk.layers.contract import Contraction, Layout, Tensor
from minintk.models.empirical import check_kernel
from minintk.models.jacobian import Jacobian
from minintk.models.model import Model
from minintk.spec.parametrization import Row
from minintk.training.flow_state import Cotangent
from minintk.training.integrators import FlowSettings, Moment, Solver, run_flow
from minintk.training.losses import Loss, check_targets
from minintk.training.train import OnDemand
from minintk.validate import number, whole


def hierarchy(
    net: Model,
    theta0: Array,
    x: Array,
    y: Array,
    *,
    loss: Loss,
    times: float | Sequence[float] | Array,
    order: int = 4,
    by: Solver = Solver(),  # noqa: B008 (frozen)
    memory: int | None = None,
) -> Iterator[Moment]:
    """Integrate gradient flow with the hierarchy of tangent kernels at theta0; yield a `Moment` at 0 and at `times`.

    net : any model with an expansion, e.g. `Network` or `Centred`.   theta0 : ([E], P).   y : (N, C).
    x : (M, *input_shape), all points, starting with the N training points.
    order : 2 freezes Theta, as in `Linearized`; 3 freezes O3; 4 freezes O4.   loss : a smooth loss (not `Hinge`).
    times : t = lr x steps, as for `flow`.   A moment contains the hierarchy's outputs f : ([E], M, C) and tangent
    kernel : ([E], M, C, M, C), which includes the parametrization's learning-rate scales.  Its theta is None.

    Late in training, for narrow networks, the frozen O3 or O4 can make the smallest eigenvalues of the kernel negative.
    The loss then grows.  If it grows without bound, FloatingPointError is raised.  `flow` does not have this problem.

    A time derivative requires one expansion of the network for order 3 and three for order 4, each with C cotangents.
    memory : bytes to use, by default half the free memory.  The required memory grows with (M C)^2 and P.  For ReLU and
    max-pooling, the derivatives are those of the smooth piece of f around theta0.  During training, about sqrt(n) of n
    units cross their kinks.  Each such unit changes the kernel by about 1/n with random sign, so the total change is
    about n^-3/4.  This change exceeds the effect of O3 and O4, so orders 3 and 4 are no more accurate than order 2.

    Raises ValueError or TypeError for invalid arguments, UnsupportedLayer for a model or a layer without an expansion,
    and MemoryError, which gives the required memory, if M C is too large.

    >>> import numpy as np, minintk as mn
    >>> net, x = mn.Network(mn.Sequential(mn.Dense(99), mn.Tanh(), mn.Dense(1)), (2,)), np.eye(2)
    >>> theta0, y = net.init(np.random.default_rng(0)), np.array([[1.0], [-1.0]])
    >>> *_, true = mn.flow(net, theta0, x, y, loss=mn.mse, times=5.0, by=mn.Solver())
    >>> for order in (2, 3, 4):
    ...     *_, end = hierarchy(net, theta0, x, y, loss=mn.mse, times=5.0, order=order)
    ...     print(f"{np.abs(end.f - true.f).max():.0e}")
    6e-04
    1e-04
    9e-07
    """
    check_kernel(net, theta0, x, None)
    order = whole("order", order, 2, 4)
    if not isinstance(by, Solver):
        raise TypeError(f"by expects mn.Solver(...), got {by!r}")
    settings = FlowSettings(loss, times, by=by)
    array_namespace(y)
    N, M = prod(y.shape[:1]), x.shape[0]
    if not 1 <= N <= M:
        raise ValueError(f"x expects the training points of y first, 1 <= N <= M, got N = {N}, M = {M}")
    check_targets(loss, y, (N, net.outputs), theta0)
    _check_memory(net, theta0, M, memory)
    return OnDemand(_moments(Hierarchy(net, theta0, x, N, order), y, settings), "mn.hierarchy(...)")


def _moments(system: Hierarchy, y: Array, settings: FlowSettings) -> Iterator[Moment]:
    try:
        for m in run_flow(system, system.start(), y, settings):
            yield system.moment(m)
    except FloatingPointError as error:
        if system.order == 2:
            raise
        why = f"at order {system.order} a kernel that is no longer positive makes r grow without bound"
        raise FloatingPointError(f"{error}; {why}: take wider networks, earlier times, or order=2") from error


class Hierarchy:
    """The `System` with the state z = (f, s, Xi) : ([E], M C + N C + (M C)^2).   For orders below 4, Xi is omitted."""

    ndims: ClassVar[int] = 1

    def __init__(self, model: Model, theta0: Array, x: Array, N: int, order: int) -> None:
        self.model, self.theta0, self.x, self.N, self.order = model, theta0, x, N, order
        self.xp, S = array_namespace(theta0, x), model.layout.learning_rate_scales()
        self.contraction = Contraction(True, S, model.layout)
        self.S = 1.0 if S is None else to_library(S.astype(str(theta0.dtype)), self.xp)
        (self.f0, *_), self.T1 = model.expand(theta0, self.xp.zeros_like(theta0), x, 1)
        M, C = self.f0.shape[-2:]
        self.size = M * C
        shapes = {"f": (M, C), "s": (N, C)} | ({"xi": (self.size, self.size)} if order == 4 else {})
        self.layout = Layout(tuple(Tensor(name, shape, Row(1.0, 0.0)) for name, shape in shapes.items()))
        self.theta_0 = self.product(self.T1, self.T1)

    def product(self, A: Jacobian, B: Jacobian) -> Array:
        """Return A S B' : ([E], M C, M C)."""
        k = A.gram_by(None if A is B else B, self.contraction)
        return k.reshape((*k.shape[:-4], self.size, self.size))

    def pull(self, J: Jacobian, u: Array) -> Array:
        """Return S J' u : ([E], P), for a cotangent u : ([E], N, C) of the training points."""
        everywhere = self.xp.zeros_like(self.f0)
        everywhere[..., : self.N, :] = u
        return J.vjp(everywhere) * self.S

    def expansion(self, d: Array, order: int) -> Jacobian:
        """Return J + D^2f[d, .] for order 2; for order 3, add 1/2 D^3f[d, d, .]."""
        return self.model.expand(self.theta0, d, self.x, order)[1]

    def along(self, d: Array) -> Array:
        """Return DTheta[d] = D^2f[d, .] S J' + J S D^2f[d, .]', with d rescaled to |theta0| to limit rounding."""
        xp, (size, of) = self.xp, (self.xp.sum(a * a, axis=-1, keepdims=True) ** 0.5 for a in (d, self.theta0))
        some = (size > 0) & (of > 0)
        c = xp.where(some, of, 1 + of) / xp.where(some, size, 1 + of)
        return _symmetric(self.product(self.expansion(c * d, 2), self.T1) - self.theta_0) / c[..., None]

    def kernel(self, z: Array) -> tuple[Array, Jacobian]:
        """Return (Theta(t), T2)."""
        if self.order == 2:
            return self.theta_0, self.T1
        part = self.layout.unpack(z)
        d1 = -self.pull(self.T1, part["s"])
        T1, T2 = self.T1, self.expansion(d1, 2)
        first = self.product(T2, T1)
        if self.order == 3:
            return _symmetric(first) - self.theta_0, T2
        third = self.product(self.expansion(d1, 3), T1) - first
        return self.product(T2, T2) + _symmetric(third) + part["xi"], T2

    def start(self) -> Array:
        """Return the initial state f_0, s = 0, Xi = 0."""
        z = self.xp.zeros((*self.f0.shape[:-2], self.layout.size), dtype=self.f0.dtype)
        self.layout.unpack(z)["f"][...] = self.f0
        return z

    def learn(self, z: Array, at: Array | None, y: Array, cotangent: Cotangent) -> tuple[Array, Array]:
        """Return (f on the training points, -dz/dt)."""
        f = self.outputs(z, at)
        r = cotangent(f, y)
        kernel, T2 = self.kernel(z)
        flat = r.reshape((*r.shape[:-2], -1))
        back = [(kernel[..., : flat.shape[-1]] @ flat[..., None])[..., 0], -flat]
        if self.order == 4:
            minus_d2 = self.pull(T2, r) - self.pull(self.T1, r)
            back.append(self.along(minus_d2).reshape((*flat.shape[:-1], -1)))
        return f, self.xp.concat(back, axis=-1)

    def outputs(self, z: Array, at: Array | None) -> Array:
        return self.layout.unpack(z)["f"][..., : self.N, :]

    def after(self, z: Array) -> Hierarchy:
        return self

    def moment(self, m: Moment) -> Moment:
        """Return the moment with f and the kernel instead of the state z."""
        shape, f = self.f0.shape, self.xp.asarray(self.layout.unpack(m.f)["f"], copy=True)
        return replace(m, f=f, kernel=self.kernel(m.f)[0].reshape((*shape, *shape[-2:])))


def _symmetric(a: Any) -> Any:
    """Return a + a'."""
    return a + a.swapaxes(-1, -2)


def _check_memory(model: Model, theta0: Array, M: int, memory: int | None) -> None:
    """Raise MemoryError if 30 kernels (the solver's stages), the expansions and the displacements do not fit."""
    budget = available_memory(array_namespace(theta0)) // 2 if memory is None else int(number("memory", memory))
    item, m, (layers, widest) = theta0.dtype.itemsize * prod(theta0.shape[:-1]), M * model.outputs, model.footprint
    kernels, rest = 30 * item * m**2, item * (6 * model.size + M * (20 * layers + 8 * model.outputs * widest))
    if kernels + rest > budget:
        need = f"needs {(kernels + rest) / 2**30:.3g} GiB, {kernels / 2**30:.3g} GiB of them for kernels of {m} x {m}"
        bound = f"but the bound is {budget / 2**30:.3g} GiB: pass fewer points, or a larger memory="
        raise MemoryError(f"a hierarchy on {m} outputs (points x C) {need}, {bound}")
