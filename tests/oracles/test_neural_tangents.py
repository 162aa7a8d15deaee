"""Compare kernels with those of neural-tangents' own tests (see nt_cases.py, nt_record.py and nt_translate.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import minintk as mn
from tests.oracles.nt_cases import DATA, decode, distance, encode, read

pytestmark = pytest.mark.filterwarnings("ignore:.*by quadrature")  # such a warning only states how exact a kernel is
CLOSE = 1e-8
"""The bound on relative differences. For equal inputs, neural-tangents' ReLU kernel loses half of its digits.

Therefore, six cases differ by more than 1e-10, although minintk's kernel is right to 1e-15.
"""
CASES = read()[0]


def names(spec: Any) -> set[str]:
    """Return the names of a spec's layers."""
    return {type(spec).__name__}.union(*map(names, spec.inside))


def sample() -> list[dict[str, Any]]:
    """Return the first case for each combination of a set of layers and a parametrization."""
    found: dict[Any, dict[str, Any]] = {}
    for case in CASES:
        found.setdefault((frozenset(names(decode(*case["spec"]))), case["standard"]), case)
    return list(found.values())


def test_a_sample_of_their_kernels_is_ours() -> None:
    assert len(sample()) == 62
    assert max(map(distance, sample())) < 1e-11
    assert (len(CASES), DATA.stat().st_size < 300_000) == (723, True)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(8))
def test_all_of_their_kernels_are_ours(start: int) -> None:
    assert [case["test"] for case in CASES[start::8] if not distance(case) < CLOSE] == []


def test_a_millionth_is_found() -> None:
    """Scaling the last weights and biases by 1 + 1e-6 is detected, unless a LayerNorm or a Sign removes the scale."""
    found = []
    for case in sample():
        spec = decode(*case["spec"])
        last = max((i for i, one in enumerate(spec.layers) if hasattr(one, "w_std")), default=None)
        if last is not None and not names(spec) & {"LayerNorm", "Sign"} and read()[1][case["x1"]].any():
            layers, one = list(spec.layers), spec.layers[last]
            layers[last] = replace(one, w_std=one.w_std * (1 + 1e-6), b_std=one.b_std * (1 + 1e-6))
            found.append(distance(case, mn.Sequential(*layers)))
    assert len(found) > 40
    assert min(found) > 10 * CLOSE


def test_specs_survive_json() -> None:
    spec = mn.Sequential(
        mn.Conv2d(3, (3, 2), stride=(1, 2), b_std=0.1), mn.Sum(mn.Identity(), mn.Sequential(mn.ReLU(), mn.Conv2d(3))),
        mn.GlobalSelfAttention(4, zeta=mn.Identity()), mn.GlobalAvgPool(),
    )  # fmt: skip
    assert decode(*encode(spec)) == spec
