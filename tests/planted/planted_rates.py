"""Plant errors in the learning-rate scales S of kernels, kappa, infinite networks, the stable rate and weight decay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from minintk.layers.contract import Contraction, Layout
from minintk.spec.parametrization import Parametrization, Role, Row
from minintk.training import train as training
from tests.kit.laws import Patch, infinite
from tests.kit.learning_rates import (
    decay_with_the_rate,
    decays_alike,
    limit_of_rates,
    one_step,
    same_kappa,
    shrinks,
    stable_rate,
)
from tests.planted.planting import planted

POWERS = {"forgotten": 0.0, "twice": 2.0, "S^(1/2) for S": 0.5}


def contraction(power: float) -> Callable[[Patch], None]:
    """Plant J S^power J' in place of J S J'."""
    right = Contraction.scale
    return lambda patch: patch.setattr(Contraction, "scale", lambda self, t: right(self, t) ** power)


def lengths(power: float) -> Callable[[Patch], None]:
    """Plant S^power in place of S in kappa."""
    right = Layout.learning_rate_scales

    def plant(patch: Patch) -> None:
        def scales(self: Layout, *arguments: Any, **options: Any) -> Any:
            S = right(self, *arguments, **options)
            return S if S is None or "scales" not in arguments else S**power

        patch.setattr(Layout, "learning_rate_scales", scales)

    return plant


@dataclass(frozen=True)
class Powers(Parametrization):
    """A parametrization whose learning rates for SGD are those of the parametrization `of`, raised to a power."""

    of: Parametrization
    power: float

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        row = self.of.row(role, fan_in, fan_out, sigma)
        return replace(row, lr=row.rate("sgd") ** self.power)


def recursion(power: float) -> Callable[[Patch], None]:
    """Plant S^power in the recursion of the infinite network, and skip the check that the limit exists."""

    def plant(patch: Patch) -> None:
        def program(spec: Any, of: Parametrization, shape: Any) -> Any:
            return infinite._program.__wrapped__(spec, Powers(of, power), shape, ())

        patch.setattr(infinite, "program", program)
        patch.setattr(infinite, "check_rates", lambda *arguments: None)

    return plant


for how, power in POWERS.items():
    planted(f"tangent kernel: rates {how}", one_step)(contraction(power))
    planted(f"kappa: rates {how}", same_kappa)(lengths(power))
    planted(f"infinite tangent kernel: rates {how}", limit_of_rates)(recursion(power))


@planted("train: stability bound of J J', without rates", stable_rate)
def _(patch: Patch) -> None:
    right = training._largest_eigenvalue
    wrong = lambda model, theta, x, scales, clear: right(model, theta, x, None, clear)  # noqa: E731
    patch.setattr(training, "_largest_eigenvalue", wrong)


planted("weight decay scaled with the rate", shrinks)(decay_with_the_rate)
planted("weight decay scaled with the rate, seen from an equivalent parametrization", decays_alike)(decay_with_the_rate)
