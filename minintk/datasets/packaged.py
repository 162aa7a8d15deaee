"""Load the digits and sentences shipped with this package, and draw random points on a sphere or corners of a cube."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from minintk.datasets.dataset import Array, Dataset
from minintk.files.reading import read_npz, reading
from minintk.validate import check_generator, precision, whole

ATTRIBUTION = (
    "E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998, "
    "https://doi.org/10.24432/C50P49, CC BY 4.0"
)


def packaged(name: str) -> dict[str, Array]:
    """Return {array name: array} from the file `name`.npz inside the package."""
    from importlib.resources import as_file, files  # imported here: it takes a tenth of the package's import time

    with (
        as_file(files("minintk.datasets") / f"{name}.npz") as path,
        reading(path, f"the {name} of the package", "install minintk again") as file,
    ):
        return read_npz(file)


def digits(*, dtype: Any = np.float64) -> Dataset:
    """Load 1,797 real handwritten digits of 8 x 8 pixels, x : (1797, 64) in [0, 1].

    The images are in their published order.  Each class has 174 to 183 images.  Source: `Dataset.attribution`.

    >>> data = digits()
    >>> data.x.shape, float(data.x.max()), data.labels[:5].tolist()
    ((1797, 64), 1.0, [0, 1, 2, 3, 4])
    """
    arrays = packaged("digits")
    x = arrays["images"].reshape(-1, 64) / np.asarray(16, precision(dtype))  # grey levels 0 to 16
    return Dataset(x, arrays["labels"], image_shape=(8, 8, 1), name="digits", attribution=ATTRIBUTION)


BOOKS = (
    "Persuasion by Jane Austen, 1817; The Hound of the Baskervilles by Arthur Conan Doyle, 1902; The War of the Worlds "
    "by H. G. Wells, 1898; after the editions of Standard Ebooks, CC0 1.0"
)


@dataclass(frozen=True, eq=False)
class Text:
    """N texts as tuples of words, with labels : (N,).  Text i belongs to classes[labels[i]]."""

    words: tuple[tuple[str, ...], ...]
    labels: Array
    classes: tuple[str, ...]
    name: str = "text"
    attribution: str = ""

    def __repr__(self) -> str:
        counts = np.bincount(self.labels, minlength=len(self.classes))
        shares = ", ".join(f"{name} {count}" for name, count in zip(self.classes, counts))
        return f"Text({self.name!r}, N={len(self.words)}, classes: {shares})"

    def embed(self, length: int, features: int, rng: np.random.Generator) -> Dataset:
        """Map each word to a fixed random vector with entries N(0, 1), and return data with x : (N, length, features).

        Longer texts are truncated, and shorter texts are padded with zeros, as `minintk.MaskedAvgPool` expects.  The
        vectors have the distribution of a trainable embedding at initialisation, but are not trained.

        >>> import minintk as mn
        >>> data = mn.datasets.sentences().embed(24, 16, np.random.default_rng(0))
        >>> data
        Dataset('sentences', N=1800, x=(24, 16), classes: Austen 600, Doyle 600, Wells 600)
        """
        check_generator("rng", rng)
        length, features = whole("length", length), whole("features", features)
        number = {word: i for i, word in enumerate(sorted({word for words in self.words for word in words}))}
        vectors = np.concatenate([rng.standard_normal((len(number), features)), np.zeros((1, features))])
        places = np.full((len(self.words), length), len(number))
        for place, words in zip(places, self.words, strict=True):
            place[: len(words)] = [number[word] for word in words[:length]]
        return Dataset(vectors[places], self.labels, self.classes, name=self.name, attribution=self.attribution)


def sentences() -> Text:
    """Load 1,800 sentences of 8 to 24 words from novels, 600 each by Austen, Conan Doyle and Wells.

    The text is in lower case without punctuation.  Names of people and places are replaced by "name".  The sentences
    are in random order.  For the source, see `Text.attribution`.

    >>> text = sentences()
    >>> text
    Text('sentences', N=1800, classes: Austen 600, Doyle 600, Wells 600)
    >>> print(*text.words[1], "--", text.classes[text.labels[1]])
    they have told me since that i was singing some insane doggerel about the last man left alive -- Wells
    """
    arrays = packaged("sentences")
    lines, labels = arrays["text"].tobytes().decode("ascii").split("\n"), arrays["labels"].astype(np.int64)
    return Text(tuple(tuple(line.split()) for line in lines), labels, ("Austen", "Doyle", "Wells"), "sentences", BOOKS)


def sphere(n: int, d: int, rng: np.random.Generator) -> Array:
    """Draw x : (n, d), uniform on the sphere |x|^2 = d, so that the input kernel x x' / d has a unit diagonal.

    >>> x = sphere(5, 3, np.random.default_rng(0))
    >>> bool(np.allclose((x**2).sum(axis=1), 3))
    True
    """
    _check(n, d, rng)
    x: Array = rng.standard_normal((n, d))
    x *= sqrt(d) / np.linalg.norm(x, axis=1, keepdims=True)
    return x


def cube(n: int, d: int, rng: np.random.Generator) -> Array:
    """Draw x : (n, d), independent uniform corners of the cube {-1, +1}^d, with |x|^2 = d.  Corners can repeat.

    >>> np.unique(cube(20, 3, np.random.default_rng(0))).tolist()
    [-1.0, 1.0]
    """
    _check(n, d, rng)
    return 2.0 * rng.integers(0, 2, (n, d)) - 1.0


def _check(n: int, d: int, rng: np.random.Generator) -> None:
    whole("n", n)
    whole("d", d)
    check_generator("rng", rng)
