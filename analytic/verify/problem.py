"""Define the problem for networks of all widths: real images, labels +-1, and the spec for a given width.

Images are standardised and scaled to the sphere |x|^2 = d, so that the input kernel x x' / d has a unit diagonal.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minintk import datasets
from minintk import spec as s
from minintk.arrays import Host
from minintk.lab.experiments.named import images
from minintk.spec import zoo

N_TRAIN, N_TEST, N_LINE = 32, 16, 25
B_STD = 0.1

ACTIVATIONS: dict[str, tuple[s.Activation, float]] = {
    "relu": (s.ReLU(), 2**0.5),
    "leaky_relu": (s.LeakyReLU(0.1), 2**0.5),
    "abs": (s.Abs(), 1.0),
    "erf": (s.Erf(), 1.5**0.5),
    "tanh": (s.Tanh(), 1.5**0.5),
    "sin": (s.Sin(), 1.5**0.5),
    "gelu": (s.GELU(), 2**0.5),
    "softplus": (s.Softplus(5.0, 1.404383), 1.0),
}
"""{name on the command line: (activation, w_std)}.

w_std^2 : 2 for ReLU and its like (He et al. 2015), 1.5 if phi is bounded (Lee et al. 2019, figure 2), 1 if E phi^2 = 1.
"""

KINKED = (s.ReLU, s.LeakyReLU, s.Abs)
"""Activations whose phi' jumps.  Their kernel movement and linearisation error may fall as n^-1/2, not as n^-1."""


def network_spec(activation: str, width: int, depth: int) -> s.Sequential:
    """Return the spec of a network with `depth` hidden layers of `width` units and one output."""
    phi, w_std = ACTIVATIONS[activation]
    return zoo.mlp(depth, width, 1, activation=phi, w_std=w_std, b_std=B_STD)


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """Training set x : (N, d), y : (N, 1); test inputs x_test : (M, d); line : (N_LINE, d), an arc between two of them.

    name, labels, attribution : descriptions of the data for the report.
    """

    x: Host
    y: Host
    x_test: Host
    line: Host
    name: str
    labels: str
    attribution: str

    @property
    def points(self) -> Host:
        """Return all inputs: the training set, the test set and the line."""
        return np.concatenate([self.x, self.x_test, self.line])


def problem(data: str | Path, rng: np.random.Generator) -> Problem:
    """Return 32 training images, 16 test images and an arc between two test images, in float64.

    data : "digits" (part of the package), "mnist" or "cifar10" (downloaded unless MININTK_DATA names a folder), or a
    folder with the files of MNIST or CIFAR-10.  Raises FileNotFoundError if the folder contains neither.
    """
    source = datasets.digits() if data == "digits" else images(data)
    photographs = source.name.startswith("cifar")
    labels = "horse +1, airplane -1" if photographs else "even +1, odd -1"
    source = source.pair("horse", "airplane") if photographs else source
    sets = source.standardise().on_sphere().split(N_TRAIN, N_TEST, rng)
    (x, y), (x_test, y_test) = (part.binary(0, 1) if photographs else part.parity() for part in sets)
    a, b = x_test[0], x_test[int(np.argmax(y_test[:, 0] != y_test[0, 0]))]
    angle, share = float(np.arccos(np.clip(a @ b / (a @ a), -1.0, 1.0))), np.linspace(0, 1, N_LINE)[:, None]
    arc = (np.sin((1 - share) * angle) * a + np.sin(share * angle) * b) / np.sin(angle)
    return Problem(x, y, x_test, arc, source.name, labels, source.attribution)
