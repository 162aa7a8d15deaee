"""Test the laws of the kernel recursion for the example layers of `every`, which must use every subclass of `Step`.

For layers whose mean kernel equals the infinite-width kernel at every width, this equality is also tested.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

import analytic as an
import minintk as mn
from analytic.images.rules import ImageStep, needs_images
from analytic.recursion.rules import Affine, Fork, Masks
from analytic.recursion.state import Block, Law, Listing, Program, RowState, Scratch, Step, run_law
from analytic.vectors.plan import Begin, End
from minintk.spec.shapes import Site, out_shape
from minintk.testing import weights
from tests.kit.every import every, examples, layers
from tests.kit.montecarlo import assert_mean
from tests.kit.montecarlo import kernels as networks

Array = Any
AROUND = (Begin, End)
"""The steps that are added before and after a program. These steps belong to no layer."""


def drawn(shape: tuple[int, ...]) -> Array:
    """Return four random examples, followed by examples equal, opposite and nearly equal to the first example."""
    x = 0.2 * np.random.default_rng(0).standard_normal((7, *shape))
    x[4], x[5], x[6] = x[0], -x[0], (1 + 1e-7) * x[0] + 1e-9
    return x


@cache
def kernels() -> list[tuple[mn.Sequential, tuple[int, ...], Program]]:
    """Return (spec, shape of an example, program) for each layer that has an infinite-width kernel.

    Cases whose kernels warn of an inexact quadrature, such as all cases of ELU, are left out.
    """
    found = []
    for layer, shape in (case for kind in layers() for case in examples(kind)):
        spec = mn.Sequential(weights(shape), layer, *([mn.Flatten()] if len(out_shape(layer, shape)) > 1 else []))
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", ".*is by quadrature and exact to")
                an.kernel(spec).ntk(drawn(shape)[:2])
        except (mn.UnsupportedLayer, UserWarning):
            continue
        found.append((spec, shape, an.lower(spec, Site(shape), mn.NTK())))
    return found


def steps(program: Program) -> Iterator[Step]:
    """Yield all steps of a program, including those inside forks."""
    for step in program:
        yield step
        if isinstance(step, Fork):
            yield from steps(step.branch + step.shortcut)


VECTORS = [case for case in kernels() if not needs_images(case[2])]


def check_program(program: Program) -> tuple[Array, Array]:
    """Check that rows, blocks and listings of pairs agree after each step of a program. Return K and Theta at the end.

    Each time, 0 <= p, r <= 1 and p + r = 1. A block equals the listing of its pairs. K and Theta are symmetric. Without
    masks, which differ between rows, entries for pairs of equal rows match those computed from the rows alone.
    """
    run_law(program, Law())
    x, masked = drawn((4,)), any(isinstance(step, Masks) for step in steps(program))
    N, (i, j) = len(x), np.indices((len(x), len(x))).reshape(2, -1)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    p, r = (np.minimum(((unit[i] + sign * unit[j]) ** 2).sum(1) / 4, 1) for sign in (-1, 1))
    block = Block(Scratch(np, float, N * N), slice(0, N), slice(0, N), p.reshape(N, N).copy(), np.zeros((N, N)))
    listing = Listing(Scratch(np, float, N * N), i, j, p, r, np.zeros(N * N))
    rows = RowState((x * x).mean(1), np.zeros(N))
    for step in (Begin(None), *program):
        rows, row = step.rows(rows)
        for pairs in (block, listing):
            step.pairs(pairs, row)
        for side in (block.p, listing.p, listing.r):
            assert side is not None
            assert 0 <= side.min() <= side.max() <= 1, f"{step}: p or r is not in [0, 1]"
        np.testing.assert_allclose(listing.p + listing.r, 1, rtol=0, atol=1e-13, err_msg=f"{step}: p + r")
        both = []
        for pairs in (block, listing):
            with pairs.copy() as end:
                End().pairs(end, End().rows(rows)[1])
                both.append([a.reshape(N, N).copy() for a in (end.p, np.asarray(end.tau))])
        for k, other, d, name in zip(*both, (rows.q, rows.theta), ("K", "Theta"), strict=True):
            size = 1e-11 * max(float(d.max()), 1e-300)
            np.testing.assert_allclose(k, other, rtol=0, atol=size, err_msg=f"{step}: {name} of a listing")
            np.testing.assert_allclose(k, k.T, rtol=0, atol=size, err_msg=f"{step}: {name} is not symmetric")
            assert abs(d[0] - d[4]) <= size, f"{step}: {name} of two equal rows"
            equal = k[[0, 4], [4, 0]] if masked else [*np.diagonal(k), k[0, 4]]
            want = equal[::-1] if masked else [*d, d[0]]
            np.testing.assert_allclose(equal, want, rtol=0, atol=size, err_msg=f"{step}: rows and pairs disagree")
    return both[0][0], both[0][1]


@pytest.mark.parametrize(("spec", "shape", "program"), VECTORS, ids=[str(case[0].layers[1]) for case in VECTORS])
def test_law_rows_and_pairs_agree(spec: mn.Sequential, shape: tuple[int, ...], program: Program) -> None:
    found, kernel, x = check_program(program), an.kernel(spec).both(drawn(shape)), drawn(shape)
    off = ~np.eye(len(x), dtype=bool)  # with masks, K(x, x) has one mask, but a pair of equal rows has two
    for mine, k in zip(found, kernel, strict=True):
        np.testing.assert_allclose(mine[off], k[off], rtol=0, atol=1e-11 * max(np.abs(k).max(), 1e-300))


FIRST = {type(spec.layers[1]): (spec, shape) for spec, shape, _ in reversed(kernels())}  # one of each class


@pytest.mark.parametrize(
    ("spec", "shape", "program"),
    [
        pytest.param(
            *case, id=f"{case[0].layers[1]}-{case[1]}", marks=[pytest.mark.slow] * (case[:2] not in FIRST.values())
        )
        for case in kernels()
    ],
)
def test_kernels_are_gram_matrices(spec: mn.Sequential, shape: tuple[int, ...], program: Program) -> None:
    kernel, x = an.kernel(spec), drawn(shape)
    both, diag, cut = kernel.both(x), kernel.diag(x), kernel.both(x[:4], x[4:])
    for k, d, block in zip(both, diag, cut, strict=True):
        size = 1e-11 * max(float(d.max()), 1e-300)
        np.testing.assert_array_equal(k, k.T)
        np.testing.assert_allclose(np.diagonal(k), d, rtol=0, atol=size)
        np.testing.assert_allclose(block, k[:4, 4:], rtol=0, atol=size)
        assert np.linalg.eigvalsh(k).min() > -size
        assert (np.abs(k) <= np.sqrt(np.outer(d, d)) + size).all()
        assert any(isinstance(step, Masks) for step in steps(program)) or abs(k[0, 4] - d[0]) <= size


ONLY_IN_THE_LIMIT = {"Dropout", "GlobalSelfAttention", "LayerNorm", "Product"}
"""Layers whose masks, statistics or products add terms of order 1/n at width n. Other tests measure these terms."""


def check_average(spec: mn.Sequential, shape: tuple[int, ...], said: mn.Sequential | None = None) -> None:
    """Check that mean kernels of finite networks for `spec` equal `analytic`'s kernels for `said` (default: `spec`)."""
    end, x = mn.Dense(8, b_std=0.3), drawn(shape)[:3]
    found, upper = networks(mn.Sequential(spec, end), x, 4000), np.triu_indices(len(x))
    for name, samples, k in zip(("NNGP", "NTK"), found, an.kernel(mn.Sequential(said or spec, end)).both(x)):
        assert_mean(f"{name} of {(said or spec).layers[1]}", samples, k[upper])


@pytest.mark.parametrize(
    "case",
    [c for kind, c in FIRST.items() if kind.__name__ not in ONLY_IN_THE_LIMIT],
    ids=lambda c: str(c[0].layers[1]),
)
def test_networks_have_the_kernels_on_average(case: Any) -> None:
    check_average(*case)


def test_a_rule_of_another_layer_is_refused() -> None:
    for right, wrong in ((mn.Dense(3), mn.Dense(3, w_std=1.1)), (mn.Erf(), mn.Sin()), (mn.Scale(0.6), mn.Scale(0.63))):
        one, other = (mn.Sequential(weights((4,)), layer) for layer in (right, wrong))
        check_average(one, (4,))
        with pytest.raises(AssertionError, match="z = "):
            check_average(one, (4,), other)


def test_every_step_is_met() -> None:
    """Every step is used by a layer of `every.examples`. If the test fails, add a layer that uses the missing step."""
    met = {type(step) for _, _, program in kernels() for step in steps(program)} | {*AROUND}
    left = [kind.__name__ for kind in every(Step) if kind is not ImageStep and kind not in met]
    assert not left, left


def test_every_layer_has_a_rule_or_a_refusal() -> None:
    for kind in layers():
        for layer, shape in examples(kind):
            try:
                assert isinstance(an.lower(layer, Site(shape), mn.NTK()), tuple)
            except mn.UnsupportedLayer as refusal:
                assert kind.__name__ in str(refusal), refusal  # noqa: PT017


# ---------------------------------------------------------------- negative controls, on which a law must fail


@dataclass(frozen=True)
class Right(Affine):
    """A correct step: `Affine`, the step of weights and a bias, under another name."""


class Apart(Right):
    """A step that computes a nonzero angle between equal rows."""

    def pairs(self, pairs: Any, row: Any) -> None:
        super().pairs(pairs, row)
        pairs.p += 1e-9 * (pairs.p < 0.5)


class Listed(Right):
    """A step whose results for a listing of pairs differ from those for a block of pairs."""

    def pairs(self, pairs: Any, row: Any) -> None:
        super().pairs(pairs, row)
        pairs.tau *= 1 + 1e-6 * isinstance(pairs, Listing)


class NoTangent(Right):
    """A step that, for pairs, omits the terms that weights and bias add to Theta (`Affine.tangents`)."""

    def tangents(self, pairs: Any, row: Any) -> None:
        pass


class Beyond(Right):
    def pairs(self, pairs: Any, row: Any) -> None:
        super().pairs(pairs, row)
        pairs.p *= 1.5


class Lopsided(Right):
    """A step that scales a pair by a factor that depends only on the pair's left row."""

    def pairs(self, pairs: Any, row: Any) -> None:
        super().pairs(pairs, row)
        pairs.tau *= pairs.sides(1 + 1e-6 * np.arange(7.0))[0]


@pytest.mark.parametrize("kind", [Apart, Listed, NoTangent, Beyond, Lopsided])
def test_a_wrong_step_is_refused(kind: Any) -> None:
    check_program((Right(1.3, 0.3, 1.0, 0.2),))
    with pytest.raises(AssertionError):
        check_program((kind(1.3, 0.3, 1.0, 0.2),))
    assert kind not in every(Step)
