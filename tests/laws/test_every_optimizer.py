"""Test the laws of optimisers for every subclass of `Optimizer`. A new optimiser needs no other test of these laws.

The tests fail for an optimiser with a required argument that `make` does not set. Add such an argument to `make`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minintk as mn
from minintk.training import checkpoints
from minintk.training.optimizers import Optimizer
from tests.kit.every import every, type_of

NET = mn.Network(mn.Sequential(mn.Dense(5, b_std=0.3), mn.Tanh(), mn.Dense(3)), (2,), mn.SpectralMuP())
E, P, K = 3, NET.size, 4
RNG = np.random.default_rng(0)
THETA, TOWARDS = NET.init(RNG, ensemble=E), RNG.standard_normal((E, P))
GRADIENTS, SCALES = RNG.standard_normal((K, E, P)), RNG.uniform(0.5, 2, P)
X, Y = RNG.standard_normal((6, 2)), RNG.standard_normal((6, 3))
LR = 2.0**-5

Array = Any
Make = Callable[..., Optimizer]

# ------------------------------------------------------------------------------------------ how to make one


def options(kind: Any) -> list[str]:
    """Return the names of an optimiser's numerical arguments other than lr."""
    return [f.name for f in fields(kind) if f.init and type_of(f) == "float" and f.name != "lr"]


def make(kind: Any, **settings: Any) -> Optimizer:
    """Return an optimiser with these settings. If required, lr defaults to LR and layout to NET's layout."""
    needed = {f.name for f in fields(kind) if f.init and f.default is MISSING and f.default_factory is MISSING}
    ways = {"lr": LR, "layout": NET.layout}
    assert needed <= set(ways), (
        f"write how to make a {kind.__name__}: {needed - set(ways)} in test_every_optimizer.make"
    )
    found: Optimizer = kind(**{name: ways[name] for name in needed} | settings)
    return found


def plain(kind: Any, **settings: Any) -> Optimizer:
    """Return an optimiser whose momentum and weight decay are 0 unless `settings` contains them."""
    return make(kind, **{name: 0.0 for name in ("momentum", "weight_decay") if name in options(kind)} | settings)


def settings(kind: Any) -> list[dict[str, Any]]:
    """Return settings: none, momentum and weight decay, and, if `pulls`, momentum and weight decay towards TOWARDS."""
    more = {name: value for name, value in {"momentum": 0.7, "weight_decay": 0.1}.items() if name in options(kind)}
    return [{}, more, more | {"towards": TOWARDS}] if pulls(kind) else [{}, more]


def pulls(kind: Any) -> bool:
    """True if weight decay can pull towards a point other than 0."""
    return any(f.name == "towards" for f in fields(kind))


def walk(
    optimizer: Optimizer, theta: Array, gradients: Any = GRADIENTS, scales: Array | None = SCALES
) -> tuple[Array, Any]:
    """Return (theta, memory) after one step per gradient, in the order of the gradients."""
    theta = theta.copy()
    memory = optimizer.init(theta)
    for i, g in enumerate(gradients):
        optimizer.at(i).step(theta, g.astype(theta.dtype), memory, scales)
    return theta, memory


# ------------------------------------------------------------------------------------------------- the laws


def members(kind: Any) -> None:
    """Check that a member's steps are bitwise the same whether it is stepped alone, with some members, or with all."""
    for how in settings(kind):
        together, memory = walk(make(kind, **how), THETA)
        for e in range(E):
            mine = how | ({"towards": TOWARDS[e]} if "towards" in how else {})
            alone, own = walk(make(kind, **mine), THETA[e], GRADIENTS[:, e])
            assert np.array_equal(together[e], alone), f"member {e} moves with the others"
            assert memory is None or np.array_equal(memory[e], own), f"member {e} shares its memory"
        part = slice(1, 3)
        some, _ = walk(make(kind, **how).members(part), THETA[part], GRADIENTS[:, part])
        assert np.array_equal(together[part], some), "members(part) is another optimiser"


def resumes(kind: Any, folder: Path) -> None:
    """Check that K steps, a checkpoint, and K steps by a new or unpickled optimiser give the same bits as 2 K steps."""

    def end(optimizer: Optimizer, steps: int, theta: Array, batch: int | None, resume: Any = None) -> Any:
        *_, last = mn.train(
            NET, theta, X, Y, loss=mn.mse, optimizer=optimizer, steps=steps, batch_size=batch, resume=resume,
            rng=np.random.default_rng(1),
        )  # fmt: skip
        return last

    for batch, theta in ((None, THETA), (2, THETA[0])):
        for how in settings(kind)[: 3 if theta.ndim == 2 else 2]:
            whole, half = (end(make(kind, **how), steps, theta, batch) for steps in (2 * K, K))
            checkpoints.save(folder / "run.npz", half.state)
            for again in (make(kind, **how), pickle.loads(pickle.dumps(make(kind, **how)))):  # noqa: S301
                state, _ = checkpoints.load(folder / "run.npz")
                assert np.array_equal(end(again, 2 * K, theta, batch, state).theta, whole.theta), "resumed differently"
            assert not np.array_equal(half.theta, whole.theta)


def linear_in_lr(kind: Any) -> None:
    """Check that the first step is linear in lr: doubling lr doubles the change of theta."""
    for how in settings(kind):
        if "towards" in how:
            how = how | {"towards": TOWARDS[0]}
        one, two = (walk(make(kind, **how, lr=lr), THETA[0], GRADIENTS[:1, 0])[0] - THETA[0] for lr in (LR, 2 * LR))
        assert np.abs(one).max() > 0, "theta does not move"
        np.testing.assert_allclose(two, 2 * one, rtol=0, atol=1e-14, err_msg="a step is not linear in lr")


def downhill(kind: Any) -> None:
    """Check that the first step descends, that theta is constant if g = 0, and that |theta|^2 falls if g = theta."""
    moved = walk(plain(kind), THETA, GRADIENTS[:1])[0] - THETA
    assert ((moved * GRADIENTS[0]).sum(-1) < 0).all(), "the first step goes uphill"
    for how in settings(kind)[:1]:
        still, _ = walk(make(kind, **how), THETA, np.zeros_like(GRADIENTS))
        assert np.array_equal(still, THETA), "theta moves where the gradient is 0"
    optimizer, theta = make(kind, lr=1e-3), THETA.copy()
    memory = optimizer.init(theta)
    for i in range(40):
        optimizer.at(i).step(theta, theta.copy(), memory, None)
    assert ((theta**2).sum(-1) < (THETA**2).sum(-1)).all(), "descent on a quadratic climbs"


def decays(kind: Any) -> None:
    """Check that a step with g = 0 subtracts lr weight_decay (theta - towards) for any scale s > 0.

    If s = 0, the step subtracts nothing.
    """
    if "weight_decay" not in options(kind):
        return
    s = np.where(np.arange(P) % 2, SCALES, 0)
    for how in ({}, {"towards": TOWARDS})[: 1 + pulls(kind)]:
        optimizer, u = plain(kind, weight_decay=0.1, **how), THETA - how.get("towards", 0.0)
        found, _ = walk(optimizer, THETA, np.zeros((1, E, P)), s)
        np.testing.assert_allclose(
            found, THETA - LR * 0.1 * (s > 0) * u, rtol=0, atol=1e-15, err_msg="the decay is off"
        )
    with pytest.raises(ValueError, match="multiplies the weights by"):
        make(kind, lr=2.0, weight_decay=0.5)


def scales_tell(kind: Any) -> None:
    """Check that each scale multiplies its parameter's step, and that `train` uses the optimiser's rule.

    The rule "sgd" is for steps that are linear in the gradient. Other rules are for steps that do not depend on the
    gradient's size.
    """
    s = np.where(np.arange(P) % 5, SCALES, 0)
    for how in ({}, *({"momentum": 0.7} for name in options(kind) if name == "momentum")):
        moved, scaled = (walk(plain(kind, **how), 0 * THETA, scales=s)[0] for s in (np.ones(P), s))
        np.testing.assert_allclose(scaled, s * moved, rtol=1e-12, atol=1e-15, err_msg="a step forgets its scales")
    small, large = (walk(plain(kind), 0 * THETA, c * GRADIENTS[:1])[0] for c in (1.0, 1024.0))
    factor = 1024.0 if make(kind).rule == "sgd" else 1.0
    np.testing.assert_allclose(large, factor * small, rtol=1e-5, err_msg=f"not a step of rule {make(kind).rule!r}")
    gradient = NET.linearize(THETA, X)[1].vjp(mn.mse.cotangent(NET(THETA, X), Y))
    *_, last = mn.train(NET, THETA, X, Y, loss=mn.mse, optimizer=make(kind), steps=1)
    own = NET.layout.learning_rate_scales(None, make(kind).rule)
    np.testing.assert_allclose(last.theta, walk(make(kind), THETA, gradient[None], own)[0], rtol=0, atol=1e-12)


def precise(kind: Any) -> None:
    """Check that float32 steps stay float32 and near float64, and that settings as NumPy scalars give the same bits."""
    for how in settings(kind):
        small: dict[str, Any] = how | ({"towards": TOWARDS.astype(np.float32)} if "towards" in how else {})
        numpy = {name: np.float64(value) for name, value in small.items() if name != "towards"}
        theta, memory = walk(make(kind, **small), THETA.astype(np.float32), scales=SCALES.astype(np.float32))
        other, _ = walk(
            make(kind, **small | numpy, lr=np.float64(LR)), THETA.astype(np.float32), scales=SCALES.astype(np.float32)
        )
        double, _ = walk(make(kind, **how), THETA)
        assert theta.dtype == np.float32
        assert np.array_equal(theta, other), "NumPy's numbers compute in float64"
        assert memory is None or memory.dtype == np.float32, f"the memory of float32 is {memory.dtype}"
        np.testing.assert_allclose(theta, double, rtol=0, atol=1e-3 * LR * K, err_msg="float32 is not float64")


def own_arrays(kind: Any) -> None:
    """Check that a step does not change the scales, and that no reference to the gradient or to `towards` is kept."""
    for how in settings(kind):
        mine = {name: a.copy() if isinstance(a, np.ndarray) else a for name, a in how.items()}
        optimizer, theta, scales, g = make(kind, **mine), THETA.copy(), SCALES.copy(), GRADIENTS[0].copy()
        memory = optimizer.init(theta)
        assert memory is None or not np.shares_memory(memory, theta), "the memory is theta"
        assert np.array_equal(theta, THETA), "init changes theta"
        if "towards" in mine:
            mine["towards"][...] = np.nan
        optimizer.at(0).step(theta, g, memory, scales)
        g[...] = np.nan  # overwrite g, as the caller does with the next gradient
        optimizer.at(1).step(theta, GRADIENTS[1].copy(), memory, scales)
        assert np.array_equal(scales, SCALES), "a step changes the scales"
        want = walk(make(kind, **how), THETA, GRADIENTS[:2])[0]
        assert np.array_equal(theta, want), "a step keeps the caller's array"


def scheduled(kind: Any) -> None:
    """Check that a step with a schedule equals a step at the schedule's rate."""
    lr = mn.StepDecay(LR, every=2, factor=0.5)
    for how in settings(kind):
        theta, other = THETA.copy(), THETA.copy()
        memory, second = (make(kind, **how).init(theta) for _ in range(2))
        for i, g in enumerate(GRADIENTS):
            make(kind, **how, lr=lr).at(i).step(theta, g.copy(), memory, None)
            make(kind, **how, lr=lr(i)).at(i).step(other, g.copy(), second, None)
        assert np.array_equal(theta, other), "a schedule is not its rates"
    theta = THETA.copy()  # the last rate of a cosine is 0
    make(kind, lr=mn.Cosine(LR, 3)).at(3).step(theta, GRADIENTS[0].copy(), make(kind).init(theta), None)
    assert np.array_equal(theta, THETA), "a rate of 0 moves the weights"
    with pytest.raises(TypeError, match="depends on the step"):
        make(kind, lr=lr).step(THETA.copy(), GRADIENTS[0].copy(), make(kind).init(THETA), None)


def refuses(kind: Any) -> None:
    """Check that settings out of range raise an error that names the class and the argument."""
    bad: dict[str, list[Any]] = {name: [-0.1, np.nan, np.inf] for name in ["lr", *options(kind)]}
    bad["lr"] += [0.0, None]
    for name in {"momentum", "b1", "b2"} & set(bad):
        bad[name] += [1.0, [0.5]]
    for name, values in bad.items():
        for value in values:
            try:
                make(kind, **{name: value})
            except (ValueError, TypeError) as error:
                assert f"{kind.__name__}({name}=...) expects" in str(error), f"{name}={value!r}: {error}"  # noqa: PT017
            else:
                raise AssertionError(f"{kind.__name__} takes {name}={value!r}")


def settings_tell(kind: Any) -> None:
    """Check that every numerical setting except lr affects theta, and that steps change every entry of the memory."""
    most = settings(kind)[-1]
    for name in options(kind):
        ends = [walk(make(kind, **most | {name: value}), THETA)[0] for value in (0.25, 0.97)]
        assert not np.array_equal(*ends), f"{kind.__name__}({name}=...) changes nothing"
    memory, start = walk(make(kind, **most), THETA)[1], make(kind, **most).init(THETA)
    assert memory is None or (memory != start).all(), "a step leaves some of the memory as it was"


LAWS = [members, linear_in_lr, downhill, decays, scales_tell, precise, own_arrays, scheduled, refuses, settings_tell]


@pytest.mark.parametrize("kind", every(Optimizer), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law(law: Callable[[Any], None], kind: Any) -> None:
    law(kind)


@pytest.mark.parametrize("kind", every(Optimizer), ids=lambda kind: kind.__name__)
def test_every_optimizer_resumes(kind: Any, tmp_path: Path) -> None:
    resumes(kind, tmp_path)


# ---------------------------------------------------------------- negative controls, on which a law must fail


@dataclass(frozen=True)
class Right(mn.SGD):
    """A correct optimiser: gradient descent under another name."""


class Shared(Right):
    """An optimiser that divides the gradient by its norm over all members."""

    def step(self, theta: Array, gradient: Array, memory: Any, scales: Array | None) -> None:
        super().step(theta, gradient / np.linalg.norm(gradient), memory, scales)


class Twice(Right):
    """An optimiser that multiplies the gradient by lr twice, once before the step and once in it."""

    def step(self, theta: Array, gradient: Array, memory: Any, scales: Array | None) -> None:
        super().step(theta, self.rate * gradient, memory, scales)


class Uphill(Right):
    def step(self, theta: Array, gradient: Array, memory: Any, scales: Array | None) -> None:
        super().step(theta, -gradient, memory, scales)


@dataclass(frozen=True)
class Remembers(Right):
    """An optimiser that stores the last gradient in a list, which checkpoints do not contain."""

    before: list[Any] = field(default_factory=lambda: [0.0], repr=False, compare=False)

    def step(self, theta: Array, gradient: Array, memory: Any, scales: Array | None) -> None:
        now = gradient.copy()
        super().step(theta, gradient + self.before[0], memory, scales)
        self.before[0] = now


class Scaled(Right):
    """An optimiser that also multiplies the weight decay by the scales."""

    def scale_and_decay(self, g: Any, theta: Any, scales: Any, at: slice, lr: float = 1.0) -> None:
        super().scale_and_decay(g, theta, None, at, lr)
        g *= 1.0 if scales is None else scales[at]


class Unscaled(Right):
    def step(self, theta: Array, gradient: Array, memory: Any, scales: Array | None) -> None:
        super().step(theta, gradient, memory, None)


class Signs(Right):
    """An optimiser that uses only the signs of the gradient, but the learning-rate scales of gradient descent."""

    def step(self, theta: Array, gradient: Array, memory: Any, scales: Array | None) -> None:
        super().step(theta, np.sign(gradient), memory, scales)


class Double(Right):
    def init(self, theta: Array) -> Any:
        return np.zeros(theta.shape)


class Keeps(Right):
    """An optimiser that doubles the caller's scales."""

    def step(self, theta: Array, gradient: Array, memory: Any, scales: Array | None) -> None:
        super().step(theta, gradient, memory, scales)
        if scales is not None:
            scales *= 2


class Forgets(Right):
    """An optimiser that writes the velocity into a copy of the memory, which is then discarded."""

    def step(self, theta: Array, gradient: Array, memory: Any, scales: Array | None) -> None:
        super().step(theta, gradient, None if memory is None else memory.copy(), scales)


class Half(mn.Adam):
    """An Adam optimiser that discards the new running mean of the gradient."""

    def step(self, theta: Array, gradient: Array, memory: Any, scales: Array | None) -> None:
        mine = memory.copy()
        super().step(theta, gradient, mine, scales)
        memory[..., 1, :] = mine[..., 1, :]


class Late(Right):
    """An optimiser that uses the first rate of a schedule at every step."""

    def at(self, step: int) -> Any:
        return super().at(0)


class Careless(Right):
    def __post_init__(self) -> None:
        pass


WRONG = [
    (members, Shared), (linear_in_lr, Twice), (downhill, Uphill), (decays, Scaled), (scales_tell, Unscaled),
    (scales_tell, Signs), (precise, Double), (own_arrays, Keeps), (scheduled, Late), (refuses, Careless),
    (settings_tell, Forgets), (settings_tell, Half),
]  # fmt: skip


@pytest.mark.parametrize(("law", "kind"), WRONG, ids=[kind.__name__ for _, kind in WRONG])
def test_a_wrong_one_is_refused(law: Callable[[Any], None], kind: Any) -> None:
    law(Right)
    with pytest.raises(AssertionError):
        law(kind)
    assert kind not in every(Optimizer)


def test_state_outside_the_checkpoint_is_refused(tmp_path: Path) -> None:
    resumes(Right, tmp_path)
    with pytest.raises(AssertionError, match="resumed differently"):
        resumes(Remembers, tmp_path)


def test_an_argument_nobody_can_guess_is_refused() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Other(mn.SGD):
        temperature: float

    with pytest.raises(AssertionError, match="write how to make a Other"):
        make(Other)
