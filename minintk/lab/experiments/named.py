"""Define the networks, parametrizations, activations and data that the command line accepts by name.

>>> network("lenet5", (28, 28, 1), 10).size
61706
>>> network("wrn-10-1", (32, 32, 3), 10).spec.layers[-1]
Dense(width=10, w_std=1.0, b_std=0.0, b_init='normal')
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np

import minintk as mn
from minintk import datasets
from minintk import spec as s
from minintk.datasets import Dataset
from minintk.models.network import Network
from minintk.spec import zoo
from minintk.spec.abc_parametrization import ABC
from minintk.spec.parametrization import NTK, MeanField, Parametrization, PyTorch, SpectralMuP, Standard
from minintk.training.optimizers import SGD, Adam, Optimizer
from minintk.training.schedules import Schedule
from minintk.validate import whole

RECIPES: dict[str, tuple[Callable[[int, int], s.Sequential], int, Callable[[], Parametrization]]] = {
    "mlp": (lambda n, C: s.Sequential(s.Flatten(), *zoo.mlp(2, n, C, b_std=1.0)), 512, PyTorch),
    "lenet5": (zoo.lenet5, 1, PyTorch),
    "lenet": (zoo.lenet, 50, PyTorch),
    "geiger_cnn": (zoo.geiger_cnn, 64, Standard),
    **{f"myrtle{depth}": (partial(zoo.myrtle, depth), 64, Standard) for depth in (5, 7, 10)},
}
"""{name: ((width, outputs) -> spec, default width, default parametrization)}"""


def network(name: str, shape: tuple[int, ...], outputs: int, width: int | None = None) -> Network:
    """Return a network of `minintk.zoo` for images of this shape, in its usual parametrization.

    width : the width factor of lenet5, the number of hidden features of mlp, or the number of channels of the others.
    Raises ValueError for an unknown name or for images of an unsuitable shape.
    """
    if width is not None:
        whole("width", width)
    if wide := re.fullmatch(r"wrn-(\d+)-(\d+)", name):
        depth, widen = map(int, wide.groups())
        return Network(zoo.wide_resnet(depth, widen, outputs, channels=width), shape, Standard())
    if name not in RECIPES:
        raise ValueError(f"network expects one of {', '.join(RECIPES)}, wrn-DEPTH-WIDEN, got {name!r}")
    spec, usual, parametrization = RECIPES[name]
    return Network(spec(width or usual, outputs), shape, parametrization())


PARAMETRIZATIONS: dict[str, Callable[[], Parametrization]] = {
    "mup": SpectralMuP, "mean-field": MeanField, "ntk": NTK, "standard": Standard, "pytorch": PyTorch,
}  # fmt: skip
OPTIMIZERS: dict[str, tuple[Callable[[float | Schedule, Network], Optimizer], float]] = {
    "sgd": (lambda lr, net: SGD(lr), 0.1),
    "adam": (lambda lr, net: Adam(lr), 0.01),
    "spectral": (lambda lr, net: mn.SpectralDescent(lr, net.layout), 0.02),
    "muon": (lambda lr, net: mn.Muon(lr, net.layout), 0.02),
}
"""{name: ((rate, network) -> optimiser, a rate at which features move little in a few steps)}"""
ACTIVATIONS: dict[str, tuple[s.Activation, float]] = {
    "tanh": (s.Tanh(), 1.0), "relu": (s.ReLU(), zoo.SQRT2), "erf": (s.Erf(), 1.0), "gelu": (s.GELU(), zoo.SQRT2),
}  # fmt: skip
"""{name: (activation, the w_std with which features keep their size from layer to layer)}"""


def parametrization(name: str, optimizer: str = "sgd") -> Parametrization:
    """Return a parametrization by name: one of PARAMETRIZATIONS, "mup:N" with base width N, "a/b/c", or "module:name".

    Raises ValueError for other names.

    >>> parametrization("mup:64"), parametrization("0,0.5,0.5/0,0,0/0,0,0").regime
    (SpectralMuP(base_width=64), 'kernel')
    """
    if name in PARAMETRIZATIONS:
        return PARAMETRIZATIONS[name]()
    if base := re.fullmatch(r"mup:(\d+)", name):
        return SpectralMuP(base_width=int(base[1]))
    known = f"{', '.join(PARAMETRIZATIONS)}, mup:N, A/B/C or MODULE:NAME"
    if name.count("/") == 2:
        a, b, c = (tuple(map(float, part.split(","))) for part in name.split("/"))
        return ABC(a, b, c, "adam" if optimizer == "adam" else "sgd")
    if ":" not in name:
        raise ValueError(f"parametrization expects {known}, got {name!r}")
    found = _imported(name, "parametrization expects MODULE:NAME")
    found = found() if isinstance(found, type) else found
    if not isinstance(found, Parametrization):
        raise ValueError(f"parametrization expects {known}, a parametrization or its class, got {name!r}")
    return found


def spec_of_width(name: str, outputs: int, depth: int = 3, activation: str = "tanh") -> Callable[[int], s.Layer]:
    """Return a function n -> spec for coordinate checks: `depth` hidden layers, then a Dense with w_std = outputs^-1/2.

    name : "mlp"; "cnn" for 3 x 3 convolutions with n channels and the mean over pixels; "resnet" for `depth` residual
    branches of two layers each; or "module:function" for your own function.  Raises ValueError for other names.

    >>> spec_of_width("mlp", outputs=10, depth=1)(64)
    Sequential(Flatten(), Dense(width=64, ...), Tanh(), Dense(width=10, w_std=0.316..., b_std=0.0, b_init='normal'))
    """
    if ":" in name:
        wanted = "network expects MODULE:FUNCTION"
        if not callable(found := _imported(name, wanted)):
            raise ValueError(f"{wanted}, a function width -> spec, got {name!r}")
        return found
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation expects one of {', '.join(ACTIVATIONS)}, got {activation!r}")
    whole("depth", depth)
    phi, w = ACTIVATIONS[activation]
    end = s.Dense(outputs, w_std=outputs**-0.5)

    def mlp(n: int) -> s.Layer:
        return s.Sequential(s.Flatten(), s.Dense(n), phi, *[s.Dense(n, w_std=w), phi] * (depth - 1), end)

    def cnn(n: int) -> s.Layer:
        return s.Sequential(s.Conv2d(n), phi, *[s.Conv2d(n, w_std=w), phi] * (depth - 1), s.GlobalAvgPool(), end)

    def resnet(n: int) -> s.Layer:
        branch = s.Sequential(phi, s.Dense(n, w_std=w), phi, s.Dense(n, w_std=w))
        return s.Sequential(s.Flatten(), s.Dense(n), *[s.Residual(branch)] * depth, phi, end)

    kinds: dict[str, Callable[[int], s.Layer]] = {"mlp": mlp, "cnn": cnn, "resnet": resnet}
    if name not in kinds:
        raise ValueError(f"network expects mlp, cnn, resnet or MODULE:FUNCTION, got {name!r}")
    return kinds[name]


def _imported(name: str, wanted: str) -> Any:
    """Import "module:name" from an installed module or the working directory; return None if the name is missing."""
    module, _, thing = name.partition(":")
    if not module or not thing:
        raise ValueError(f"{wanted}, got {name!r}")
    if not {"", here := str(Path.cwd())} & set(sys.path):  # `minintk` omits this folder, unlike `python -m minintk`
        sys.path.append(here)
    return getattr(import_module(module), thing, None)


def data(name: str, flat: bool = False) -> tuple[Dataset, Dataset]:
    """Return (train, test), float32 images in [0, 1].  name : "digits", "mnist", "cifar10", or a folder with the files.

    "digits" : 1,500 and 297 images of the packaged digits, enlarged to 28 x 28 pixels unless `flat`.
    """
    if name == "digits":
        digits = datasets.digits(dtype=np.float32)
        train, test = (digits if flat else digits.enlarged(3, frame=2)).split(1500, 297, np.random.default_rng(0))
        return train.images(), test.images()
    return images(name, "train", np.float32).images(), images(name, "test", np.float32).images()


def images(name: str | Path, split: Literal["train", "test"] = "train", dtype: Any = np.float64) -> Dataset:
    """Load MNIST or CIFAR-10.  name : "mnist", "cifar10" or a folder.  Raise FileNotFoundError for missing files."""
    readers = {"mnist": datasets.mnist, "cifar10": datasets.cifar10}
    if name in readers:
        return readers[str(name)](split=split, dtype=dtype)
    folder = Path(name).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"data expects 'digits', 'mnist', 'cifar10' or a folder, got {str(name)!r}")
    for reader in readers.values():
        with suppress(FileNotFoundError):
            return reader(folder, split, dtype=dtype)
    raise FileNotFoundError(f"data: {folder} holds neither MNIST's nor CIFAR-10's files")
