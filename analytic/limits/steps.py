"""Take steps of SGD (with momentum) or Adam for a group of neurons whose square weight matrices are never drawn.

Let g, a tensor's direction, be its negative gradient in units of 1 / (gamma0 n), and let rate = lr gamma0:

    SGD     v <- momentum v + g                                             W <- W + rate v
    Adam    m <- b1 m + (1 - b1) g,    r <- b2 r + (1 - b2) g^2             W <- W + rate s m^ / sqrt(r^)

m^ and r^ are the bias-corrected m and r, which start at 0.  s is 1/sqrt(fan-in) for the weights into hidden layers, and
1 otherwise, as in `mn.MeanField()`.  Gradients shrink with width, so eps = 0, and 0/0 counts as 0.

The velocity of square weights is a sum of u v' over steps, so momentum multiplies the factors u.  Adam's quotient acts
entrywise and has full rank, but it is a function of known vectors.  Hence W = W(0) + D.  Products with W(0) are
conditioned on earlier products, as for SGD, and the n^2 entries of D are stored.  As n -> infinity, a row of D v is a
mean over the layer below, given the row's own history (Yang and Littwin 2023, nonlinear outer products).
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from minintk.arrays import Array, array_namespace
from minintk.training.optimizers import SGD, Adam
from minintk.training.schedules import Schedule
from minintk.validate import number


class Steps:
    """One group's optimiser and its state for every tensor.   k : the number of steps so far."""

    def __init__(self, optimizer: SGD | Adam) -> None:
        self.optimizer, self.k, self.memory = optimizer, 0, dict[str, tuple[Any, Any]]()

    def entries(self, name: str, g: Array, rate: float, fan_in: int = 1) -> Array:
        """Return the change of a tensor, given its direction g of the same shape."""
        before, by = self.memory.get(name, (0 * g, 0 * g)), self.optimizer
        if isinstance(by, SGD):
            self.memory[name] = v, _ = by.momentum * before[0] + g, None
            return rate * v
        self.memory[name] = m, r = by.b1 * before[0] + (1 - by.b1) * g, by.b2 * before[1] + (1 - by.b2) * g * g
        xp, scale = array_namespace(g), sqrt(1 - by.b2**self.k) / (1 - by.b1**self.k)
        return rate / sqrt(fan_in) * scale * m / xp.sqrt(xp.where(r > 0, r, 1.0))

    def factors(self, name: str, u: Array, v: Array) -> tuple[Array, Array]:
        """Return the factors of the square weights' velocity, given the factors u and v of their direction u v'."""
        momentum = getattr(self.optimizer, "momentum", 0.0)
        if momentum and name in self.memory:
            xp, (before, past) = array_namespace(u), self.memory[name]
            u, v = xp.concat([momentum * before, u], axis=1), xp.concat([past, v], axis=1)
        self.memory[name] = u, v
        return u, v


def check_optimizer(lr: float | SGD | Adam) -> SGD | Adam:
    """Return the optimiser (SGD for a number); raise TypeError or ValueError if the limit does not support it."""
    if not hasattr(lr, "step"):
        return SGD(lr=number("lr", lr))
    if not isinstance(lr, SGD | Adam) or type(lr) not in {SGD, Adam}:
        raise TypeError(f"lr expects a number, mn.SGD(...) or mn.Adam(...), got {lr!r}: momentum is mn.SGD's")
    if lr.weight_decay or isinstance(lr.lr, Schedule):
        raise ValueError(f"lr expects a constant rate and no weight decay, got {lr!r}: leave them out")
    return lr
