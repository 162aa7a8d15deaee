"""Define a labelled data set, with transformations for experiments on wide networks.

Most methods return a new Dataset of NumPy arrays.  `parity`, `binary` and `one_hot` return (x, y).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import Any

import numpy as np

from minintk.arrays import check_examples
from minintk.training.batches import Shift
from minintk.validate import check_generator, precision, whole

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """N examples and their classes.

    raw : (N, d), (N, L, C) or (N, H, W, C), either floats or bytes.  Bytes represent raw / 255.
    labels : (N,), whole numbers.  Example i belongs to classes[labels[i]].
    classes : the names of the classes, by default "0", "1", ... (at most a million).
    image_shape : (H, W, C) if the examples are images, even if they are stored flat.
    dtype : the dtype of `x` if raw contains bytes, otherwise the dtype of raw.

    `raw` is read during use and not copied, so it can be a file mapped by `numpy.memmap`.  The same holds for `labels`
    in int64.  Raises TypeError or ValueError if the arrays do not match each other or contain NaN or infinity.

    >>> data = Dataset(np.eye(3), np.array([0, 1, 1]), classes=("cat", "dog"))
    >>> data
    Dataset('data', N=3, x=(3,), classes: cat 1, dog 2)
    """

    raw: Array
    labels: Array
    classes: tuple[str, ...] = ()
    image_shape: tuple[int, int, int] | None = None
    name: str = "data"
    attribution: str = ""
    dtype: Any = np.float64

    def __post_init__(self) -> None:
        if not all(isinstance(a, np.ndarray) and not hasattr(a, "mask") for a in (self.raw, self.labels)):
            kinds = f"{type(self.raw).__name__} and {type(self.labels).__name__}"
            raise TypeError(f"Dataset expects NumPy arrays, without masks, got {kinds}")
        if self.raw.dtype == np.uint8:
            if self.raw.ndim < 2:
                raise ValueError(f"Dataset expects examples of shape (N, d) or (N, H, W, C), got {self.raw.shape}")
            precision(self.dtype)
        else:
            check_examples("raw", self.raw)
            object.__setattr__(self, "dtype", self.raw.dtype)
        N, labels = len(self.raw), self.labels
        if labels.shape != (N,) or labels.dtype.kind not in "iu":
            raise ValueError(f"labels expect whole numbers, shape ({N},), got {labels.dtype}, shape {labels.shape}")
        count = len(self.classes) or min(int(labels.max(initial=0)) + 1, 10**6)
        if N and (int(labels.min()) < 0 or int(labels.max()) >= count):
            raise ValueError(f"labels expect 0 to {count - 1}, got {int(labels.min())} to {int(labels.max())}")
        if self.image_shape is None and self.raw.ndim == 4:
            object.__setattr__(self, "image_shape", self.raw.shape[1:])
        if self.image_shape is not None and prod(self.raw.shape[1:]) != prod(self.image_shape):
            raise ValueError(f"images of shape {self.image_shape} do not fit examples of shape {self.raw.shape[1:]}")
        object.__setattr__(self, "classes", tuple(self.classes) or tuple(map(str, range(count))))
        object.__setattr__(self, "labels", labels.astype(np.int64, copy=False))

    @property
    def x(self) -> Array:
        """Return the examples as floats, in the shape of `raw`.  Bytes are scaled to [0, 1] at every access."""
        return np.divide(self.raw, 255, dtype=self.dtype) if self.raw.dtype == np.uint8 else self.raw

    def __len__(self) -> int:
        return len(self.raw)

    def __repr__(self) -> str:
        counts = np.bincount(self.labels, minlength=len(self.classes))
        shares = ", ".join(f"{name} {count}" for name, count in zip(self.classes, counts))
        return f"Dataset({self.name!r}, N={len(self)}, x={self.raw.shape[1:]}, classes: {shares})"

    def __getitem__(self, index: slice | Array) -> Dataset:
        """Select examples by a slice, an array of positions, or a boolean mask."""
        if not isinstance(index, (slice, np.ndarray)):
            raise TypeError(f"Dataset[...] expects a slice or an array, got {index!r}: data[3:4] is one example")
        return replace(self, raw=self.raw[index], labels=self.labels[index])

    def split(self, n_train: int, n_test: int, rng: np.random.Generator) -> tuple[Dataset, Dataset]:
        """Draw two disjoint random samples, (train, test), without replacement and without stratifying by class.

        >>> data = Dataset(np.eye(10), np.arange(10))
        >>> train, test = data.split(6, 3, np.random.default_rng(0))
        >>> len(train), len(test), len(set(train.labels) & set(test.labels))
        (6, 3, 0)
        """
        check_generator("rng", rng)
        n_train, n_test = whole("n_train", n_train, 0), whole("n_test", n_test, 0)
        if n_train + n_test > len(self):
            raise ValueError(f"{n_train} + {n_test} examples asked for, but {self.name} has {len(self)}: ask for fewer")
        order = rng.permutation(len(self))[: n_train + n_test]
        return self[order[:n_train]], self[order[n_train:]]

    def subset(self, n: int, rng: np.random.Generator) -> Dataset:
        """Draw `n` examples without replacement, in random order."""
        return self.split(n, 0, rng)[0]

    def pair(self, a: str | int, b: str | int) -> Dataset:
        """Select the examples of two classes, given by name or number.  Class `a` has label 0, and `b` has label 1.

        >>> Dataset(np.eye(3), np.arange(3), classes=("cat", "dog", "cow")).pair("cow", "cat")
        Dataset('data', N=2, x=(3,), classes: cow 1, cat 1)
        """
        i, j = self._class(a), self._class(b)
        if i == j:
            raise ValueError(f"pair expects two different classes, got {a!r} and {b!r}")
        two = self[(self.labels == i) | (self.labels == j)]
        return replace(two, labels=(two.labels == j).astype(np.int64), classes=(self.classes[i], self.classes[j]))

    def _class(self, which: str | int) -> int:
        """Return the number of a class that is given by name or number."""
        if isinstance(which, str) and which in self.classes:
            return self.classes.index(which)
        if not isinstance(which, (str, bool)) and hasattr(which, "__index__") and 0 <= which < len(self.classes):
            return int(which)
        raise ValueError(f"{self.name} has no class {which!r}: its classes are {', '.join(self.classes)}")

    def images(self) -> Dataset:
        """Return the same examples as x : (N, H, W, C)."""
        return replace(self, raw=self.raw.reshape(len(self), *self._image_shape()))

    def flat(self) -> Dataset:
        """Return the same examples as x : (N, d), row-major, d = H W C."""
        return replace(self, raw=self.raw.reshape(len(self), prod(self.raw.shape[1:])))

    def enlarged(self, factor: int, frame: int = 0) -> Dataset:
        """Enlarge every pixel of the images to factor x factor pixels, and add a border of zeros, `frame` pixels wide.

        Call this before `standardise`, because zero is not black afterwards.

        >>> from minintk.datasets import digits
        >>> digits().enlarged(3, frame=2)[:5].x.shape
        (5, 28, 28, 1)
        """
        factor, frame = whole("enlarged(factor=...)", factor), whole("enlarged(frame=...)", frame, 0)
        raw = self.raw.reshape(len(self), *self._image_shape()).repeat(factor, axis=1).repeat(factor, axis=2)
        raw = np.pad(raw, ((0, 0), (frame, frame), (frame, frame), (0, 0)))
        return replace(self, raw=raw, image_shape=raw.shape[1:])

    def _image_shape(self) -> tuple[int, int, int]:
        if self.image_shape is None:
            raise ValueError(f"{self.name} holds no images (pca removes the pixels): do this first")
        return self.image_shape

    def shifted(self, max_shift: int, rng: np.random.Generator) -> Dataset:
        """Shift each image by a random (dy, dx), uniform from -max_shift to max_shift, and fill the gaps with 0."""
        check_generator("rng", rng)
        shift = Shift(whole("max_shift", max_shift, 0, min(self._image_shape()[:2]) - 1))
        return replace(self, raw=shift(self.images().raw, shift.draw(len(self), rng)).reshape(self.raw.shape))

    def standardise(self, *, fit: Dataset | None = None) -> Dataset:
        """Standardise x to (x - mean) / std, using the mean and std of each image channel or feature.

        fit : the training set, whose mean and std are used; by default this data set.  Raises ValueError if a std is 0.

        >>> from minintk.datasets import digits
        >>> x = digits().standardise().x
        >>> bool(abs(x.mean()) < 1e-12), round(float(x.std()), 12)
        (True, 1.0)
        """
        channels = self.image_shape[-1] if self.image_shape else prod(self.raw.shape[1:])
        source = self._same_features(fit, "standardise")
        values = source.x.reshape(-1, channels)
        mean, std = values.mean(axis=0, dtype=np.float64), values.std(axis=0, dtype=np.float64)
        flat = np.flatnonzero(~(std > 1e-12 * np.abs(values).max(axis=0, initial=0.0)))
        if flat.size:
            which = f"{flat.size} of {channels} features of {source.name} do not vary, the first is {int(flat[0])}"
            raise ValueError(f"{which}: drop them, or use pca(k), which drops them")
        x = (self.x.reshape(-1, channels) - mean.astype(self.dtype)) / std.astype(self.dtype)
        return replace(self, raw=x.reshape(self.raw.shape))

    def pca(self, k: int, *, fit: Dataset | None = None) -> Dataset:
        """Return the data set of the first k principal components, (x - mean) V : (N, k), scaled to unit variance.

        fit : the training set before its own `pca`, which determines mean, V and variances (with 1/N); by default this
        data set.  In each component, the loading of largest magnitude is positive.  Geiger et al. 2020 use k = 10.
        Raises ValueError if the data vary in fewer than k directions.

        >>> from minintk.datasets import digits
        >>> train, test = digits().split(1000, 500, np.random.default_rng(0))
        >>> z, z_test = train.pca(10), test.pca(10, fit=train)
        >>> bool(np.allclose(z.x.T @ z.x / 1000, np.eye(10)))
        True
        """
        source = self._same_features(fit, "pca").flat()
        N, d = source.raw.shape
        whole("k", k, 1, d)
        mean = source.x.mean(axis=0, dtype=np.float64)
        X = source.x - mean
        lam, U = np.linalg.eigh(X.T @ X if d <= N else X @ X.T)  # the smaller matrix; lam is ascending
        lam, U = lam[::-1], U[:, ::-1]
        rank = int(np.sum(lam > max(N, d) * np.finfo(X.dtype).eps * lam[0]))
        if k > rank:
            raise ValueError(f"{source.name} varies in {rank} directions only: pca expects k <= {rank}, got {k}")
        V = U[:, :k] if d <= N else X.T @ (U[:, :k] / np.sqrt(lam[:k]))
        V = V * np.sign(V[np.abs(V).argmax(axis=0), np.arange(k)])
        x = (self.flat().x - mean) @ (V / (X @ V).std(axis=0))  # std is more accurate than sqrt(lam / N)
        return replace(self, raw=x.astype(self.dtype, copy=False), image_shape=None)

    def on_sphere(self) -> Dataset:
        """Scale every example to |x|^2 = d, so that x x' / d has a unit diagonal.  Raise ValueError for x = 0.

        >>> from minintk.datasets import digits
        >>> x = digits().on_sphere().x
        >>> bool(np.allclose((x**2).sum(axis=1), 64))
        True
        """
        x = self.flat().x
        if zero := int(np.sum((largest := np.abs(x).max(axis=1, keepdims=True, initial=0)) == 0)):
            raise ValueError(f"{zero} examples of {self.name} are zero and have no direction: leave them out")
        x = np.ldexp(x, -np.frexp(largest)[1])  # squares neither overflow nor vanish; divides by powers of two exactly
        x = x * (sqrt(x.shape[1]) / np.linalg.norm(x, axis=1, keepdims=True))
        return replace(self, raw=x.astype(self.dtype, copy=False).reshape(self.raw.shape))

    def _same_features(self, fit: Dataset | None, what: str) -> Dataset:
        """Return `fit`, by default this data set.  Raise an error if it is empty or its number of features differs."""
        source = self if fit is None else fit
        if not isinstance(source, Dataset):
            raise TypeError(f"{what}(fit=...) expects a Dataset, got {type(source).__name__}")
        if prod(source.raw.shape[1:]) != prod(self.raw.shape[1:]):
            shapes = f"examples of shape {self.raw.shape[1:]}, got {source.raw.shape[1:]}"
            raise ValueError(f"{what}(fit=...) expects {shapes}: give the training set before its own {what}")
        if not len(source):
            raise ValueError(f"{source.name} has no examples: {what} has nothing to take its statistics from")
        return source

    def parity(self) -> tuple[Array, Array]:
        """Return (x, y) with y : (N, 1), +1 for even and -1 for odd digits.

        >>> from minintk.datasets import digits
        >>> digits()[:4].parity()[1].ravel().tolist()
        [1.0, -1.0, 1.0, -1.0]
        """
        if not all(name.isdecimal() for name in self.classes):
            raise ValueError(f"parity expects digits, but the classes are {', '.join(self.classes)}: use binary(a, b)")
        sign = np.array([1 - 2 * (int(name) % 2) for name in self.classes], dtype=self.dtype)
        return self.x, sign[self.labels][:, None]

    def binary(self, a: str | int, b: str | int | None = None) -> tuple[Array, Array]:
        """Return (x, y) with y : (N, 1), +1 for class `a` and -1 for class `b` (or all other classes if b is None).

        >>> from minintk.datasets import digits
        >>> x, y = digits().binary(3, 8)
        >>> x.shape, int(y.sum())
        ((357, 64), 9)
        """
        two = self if b is None else self.pair(a, b)
        positive = self._class(a) if b is None else 0
        return two.x, np.where(two.labels == positive, 1.0, -1.0).astype(self.dtype)[:, None]

    def one_hot(self, *, zero_mean: bool = False) -> tuple[Array, Array]:
        """Return (x, y) with one-hot y : (N, C).  If `zero_mean`, subtract 1/C from y (Lee et al. 2019)."""
        y = np.eye(len(self.classes), dtype=self.dtype)[self.labels]
        return self.x, y - 1 / len(self.classes) if zero_mean else y
