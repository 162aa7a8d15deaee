"""Check that the tests that count operations fail on changes that leave results equal but make code much slower."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.mutants import mutants
from tests.mutants.mutants import Copy

KERNELS = "tests/analytic/test_work_of_kernels.py"
NETWORKS = "tests/minintk/fast/test_work_of_networks.py"
NUMBA = "tests/analytic/fast/test_numba_kernels.py"

SLOWER = [
    (KERNELS, "analytic/recursion/unit_rows.py", "    centre /= count\n", "    centre *= count\n"),
    (KERNELS, "analytic/vectors/engine.py", "range(0, last if self.symmetric else n, height)", "range(0, n, height)"),
    (KERNELS, "analytic/vectors/engine.py", "    if m < width:", "    if False:"),
    (KERNELS, "analytic/recursion/quadrature.py", "kept_curve if grid else norm_curve", "norm_curve"),
    (KERNELS, "analytic/vectors/engine.py", "if self.coarse is not None else xp", "if False else xp"),
    (KERNELS, "analytic/recursion/quadrature.py", "rows.ends, rows.alike", "rows.ends, False"),
    (KERNELS, "analytic/images/activations.py", "start + piece.start", "start - piece.start"),
    (KERNELS, "analytic/images/pixel_pairs.py", "if on_host(self.xp) else 1\n", "if not on_host(self.xp) else 1\n"),
    (KERNELS, "analytic/images/engine.py", "        deep = most // wide\n", "        deep = 1\n"),
    (KERNELS, "analytic/images/window_sums.py", "    if plain(axis):\n", "    if False:\n"),
    (KERNELS, "analytic/recursion/closed_forms.py", "case s.Erf():", "case s.Erf() if not name:"),
    (NUMBA, "analytic/fast/planes.py", "split(program) if jit and", "0 if jit and"),
    (NETWORKS, "minintk/fast/dense.py", "    if not large(x, mu):", "    if True:"),
    (NETWORKS, "minintk/fast/dense.py", "        if large(x, W):", "        if False:"),
    (NETWORKS, "minintk/fast/split_batch.py", "shares = cut(N, size, max(", "shares = cut(N, 0, max("),
    (NETWORKS, "minintk/fast/split_outputs.py", "count = 1 if kernel.full or v is not u", "count = 1 if True"),
    (NETWORKS, "minintk/fast/patches.py", "for B in range(1, windows.columns.out + 1)", "for B in range(1, 2)"),
    (NETWORKS, "minintk/fast/patches.py", "return max(1, limit // bytes_each)", "return 10**9"),
    (NETWORKS, "minintk/fast/gather.py", "return found if", "return found if False and"),
    (NETWORKS, "minintk/fast/conv.py", "worth = work >= THRESHOLDS.compiled and", "worth = False and"),
    (NETWORKS, "minintk/fast/conv_gram.py", "    if pairs_are_cheaper(windows, a, b, kernel):", "    if False:"),
    (NETWORKS, "minintk/fast/conv_gram.py", "    if pairs_are_cheaper(windows, a, b, kernel):", "    if True:"),
    (NETWORKS, "minintk/fast/conv_gram.py", "step = max(1, a.shape[-2] * n // windows.K)", "step = n"),
    (NETWORKS, "minintk/models/jacobian.py", "if not isinstance(other, NetworkJacobian) or", "if True or"),
    (NETWORKS, "minintk/models/empirical.py", "range(i if x2 is None else 0, M, size)", "range(0, M, size)"),
    (NETWORKS, "minintk/training/train.py", "size = max(1, E if E * member <= limit else", "size = max(1, 1 if E else"),
    (NETWORKS, "minintk/large/least_squares.py", "cho_factor(k.T,", "cho_factor(k.T.copy(),"),
    (NETWORKS, "minintk/doors.py", "getattr(undisturbed(partial(import_module, module)), name)", "otherwise"),
]  # fmt: skip


def test_each_text_stands_once_where_the_list_says() -> None:
    counts = {
        (path, before): (mutants.ROOT / path).read_text(encoding="utf-8").count(before) for _, path, before, _ in SLOWER
    }
    assert [place for place, count in counts.items() if count != 1] == [], "mend the list"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    made = Copy(tmp_path_factory.mktemp("copy"))
    for package in ("analytic", "minintk", "tests"):
        shutil.copytree(mutants.ROOT / package, made.tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(mutants.ROOT / "pyproject.toml", made.tree)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("tests", [KERNELS, NETWORKS, NUMBA])
def test_the_original_passes(copy: Copy, tests: str) -> None:
    status, output = copy.pytest([tests], {})
    assert status == 0, output


@pytest.mark.slow
@pytest.mark.parametrize(("tests", "path", "before", "after"), SLOWER, ids=lambda text: Path(text).stem[:30])
def test_what_makes_it_slower_is_refused(copy: Copy, tests: str, path: str, before: str, after: str) -> None:
    file = copy.tree / path
    source = file.read_text(encoding="utf-8")
    file.write_text(source.replace(before, after), encoding="utf-8")
    try:
        status, output = copy.pytest([tests], {}, limit=300.0)
    finally:
        file.write_text(source, encoding="utf-8")
    assert status == 1, output
