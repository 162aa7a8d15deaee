"""Recipes: the networks and the data that `minintk train` knows by name.

>>> network("lenet5", (28, 28, 1), 10).size
61706
>>> network("wrn-10-1", (32, 32, 3), 10).spec.layers[-1]
Dense(width=10, w_std=1.0, b_std=1.0, b_init='normal')
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from minintk import datasets, zoo
from minintk.datasets import Dataset
from minintk.network import Network
from minintk.parametrization import PyTorch, Standard
from minintk.spec import Flatten, Sequential

NAMES = "mlp, lenet5, lenet, geiger_cnn, myrtle5, myrtle7, myrtle10, wrn-DEPTH-WIDEN"


def network(name: str, shape: tuple[int, ...], outputs: int, width: int | None = None) -> Network:
    """A network of the zoo, for images of this shape, with weights that start, and learn, as people train them.

    width : the width factor of lenet5, the channels of the others, the hidden features of mlp.  ValueError for a name
    that is none, or images that do not fit.
    """
    if width is not None and width < 1:
        raise ValueError(f"width expects a whole number >= 1, got {width!r}")
    wide = re.fullmatch(r"wrn-(\d+)-(\d+)", name)
    if name == "mlp":
        return Network(Sequential(Flatten(), *zoo.mlp(2, width or 512, outputs, b_std=1.0)), shape, PyTorch())
    if name == "lenet5":
        return Network(zoo.lenet5(width or 1, outputs), shape, PyTorch())
    if name == "lenet":
        return Network(zoo.lenet(width or 50, outputs), shape, PyTorch())
    if name == "geiger_cnn":
        return Network(zoo.geiger_cnn(width or 64, outputs), shape, Standard())
    if name in ("myrtle5", "myrtle7", "myrtle10"):
        return Network(zoo.myrtle(int(name[6:]), width or 64, outputs), shape, Standard())
    if wide:
        depth, widen = map(int, wide.groups())
        return Network(zoo.wide_resnet(depth, widen, outputs, channels=width), shape, Standard())
    raise ValueError(f"network expects one of {NAMES}, got {name!r}")


def data(name: str, flat: bool = False, dtype: Any = np.float32) -> tuple[Dataset, Dataset]:
    """(train, test) images in [0, 1]: "digits", "mnist", "cifar10", or a folder with the files of one of the last two.

    digits : 1,500 and 297 of those in the package, drawn as 28 x 28 pixels unless `flat`.
    """
    if name == "digits":
        digits = datasets.digits(dtype=dtype)
        train, test = (digits if flat else digits.enlarged(3, frame=2)).split(1500, 297, np.random.default_rng(0))
        return train.images(), test.images()
    folder = None if name in ("mnist", "cifar10") else Path(name).expanduser()
    if folder is not None and not folder.is_dir():
        raise FileNotFoundError(f"data expects 'digits', 'mnist', 'cifar10' or a folder, got {name!r}, none of them")
    readers = {"mnist": (datasets.mnist,), "cifar10": (datasets.cifar10,)}.get(name, (datasets.mnist, datasets.cifar10))
    for reader in readers:
        try:
            return reader(folder, "train", dtype=dtype).images(), reader(folder, "test", dtype=dtype).images()
        except FileNotFoundError:
            if reader is readers[-1] and len(readers) == 1:
                raise
    raise FileNotFoundError(f"{folder} holds neither MNIST's nor CIFAR-10's files")
