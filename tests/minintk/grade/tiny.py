"""Define a tiny assignment like the one in docs/course/writing-an-exercise.md.

The dense layer of this assignment adds or subtracts the bias, depending on the variant.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from minintk.grade import Assignment, Exercise, Gradient, Values

SIGN = {"plus": 1.0, "minus": -1.0}


def drawn(rng: np.random.Generator, N: int) -> tuple[Any, ...]:
    return rng.standard_normal((N, 3)), rng.standard_normal((3, 4)), rng.standard_normal(4)


def forward(rng: np.random.Generator, variant: Mapping[str, str]) -> Iterator[Values]:
    sign = SIGN[variant["bias"]]
    for title, N in (("five examples", 5), ("one example", 1)):
        x, W, b = drawn(rng, N)
        suspects = {"the bias has the other sign": x @ W - sign * b}
        yield Values("dense", (x, W, b), x @ W + sign * b, title=title, suspects=suspects)


def backward(rng: np.random.Generator, variant: Mapping[str, str]) -> Iterator[Gradient]:
    yield Gradient("dense", "dense_backward", drawn(rng, 5))


assignment = Assignment(
    "tiny",
    (
        Exercise("dense", 4, forward, hint="the variant says which sign the bias has"),
        Exercise("dense backward", 6, backward, hidden=True, hint="write down dy/dW for one entry of W first"),
    ),
    variants={"bias": ("plus", "minus")},
)

SOLUTION = """
from variant import bias

def dense(x, W, b):
    return x @ W + b if bias == "plus" else x @ W - b

def dense_backward(u, x, W, b):
    db = u.sum(axis=0)
    return u @ W.T, x.T @ u, db if bias == "plus" else -db
"""

# The starter for students deliberately implements no function. The tests check that it earns nothing.
STARTER = """
def dense(x, W, b):
    raise NotImplementedError

def dense_backward(u, x, W, b):
    raise NotImplementedError
"""
