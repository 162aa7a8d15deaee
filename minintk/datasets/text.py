"""Sentences of three authors inside the package, and words as vectors: sequences of unequal lengths, no download."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minintk.datasets.dataset import Array, Dataset
from minintk.datasets.packaged import packaged
from minintk.validate import check_generator, whole

BOOKS = (
    "Persuasion by Jane Austen, 1817; The Hound of the Baskervilles by Arthur Conan Doyle, 1902; The War of the Worlds "
    "by H. G. Wells, 1898; after the editions of Standard Ebooks, CC0 1.0"
)


@dataclass(frozen=True, eq=False)
class Text:
    """N texts as tuples of words, and their classes: text i belongs to classes[labels[i]].

    labels : (N,), whole numbers.
    """

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
        """x : (N, length, features), a vector with entries N(0, 1) for each word, the same wherever the word stands.

        Longer texts are cut off, and shorter ones filled up with zeros, as `minintk.MaskedAvgPool` expects padding.  At
        infinite width random vectors do what a trained embedding does at its start.

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
    """1,800 sentences of 8 to 24 words from novels, 600 each by Jane Austen, Arthur Conan Doyle and H. G. Wells.

    In lower case without punctuation; names of people and places are the word "name".  In random order.
    Source: see `Text.attribution`.

    >>> text = sentences()
    >>> text
    Text('sentences', N=1800, classes: Austen 600, Doyle 600, Wells 600)
    >>> print(*text.words[1], "--", text.classes[text.labels[1]])
    they have told me since that i was singing some insane doggerel about the last man left alive -- Wells
    """
    arrays = packaged("sentences")
    lines, labels = arrays["text"].tobytes().decode("ascii").split("\n"), arrays["labels"].astype(np.int64)
    return Text(tuple(tuple(line.split()) for line in lines), labels, ("Austen", "Doyle", "Wells"), "sentences", BOOKS)
