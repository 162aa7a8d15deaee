"""Configure all tests. Workers use one BLAS thread, open no windows, and by default draw the same random examples."""

import os
import signal
import sys
from collections.abc import Generator, Iterator
from importlib import import_module
from typing import Any

# A shell's background job ignores Ctrl-C (SIGINT), but some tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# BLAS reads these variables when NumPy is imported. One thread suffices, because the worker processes already fill the
# cores. OMP_NUM_THREADS would also limit the library's own threads, which are tested.
for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ.setdefault(variable, "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

from tests.kit.thinned import FAMILIES, thin  # noqa: E402

# The examples are the same in every run. `make.py test-all` draws more examples. `make.py explore` draws new examples,
# and stores those that fail.
settings.register_profile(
    "fixed", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, max_examples=30
)
settings.register_profile("thorough", parent=settings.get_profile("fixed"), max_examples=100)
settings.register_profile(
    "explore", parent=settings.get_profile("fixed"), derandomize=False, print_blob=True, max_examples=100
)
settings.load_profile("fixed")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Raise UsageError if the name of a test contains a memory address, which differs between workers."""
    if " at 0x" in item.nodeid:
        raise pytest.UsageError(f"{item.nodeid} is named after an address: give the case an id")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark most cases of slow test families as slow in a full run. Tests requested by file or name run in full."""
    if config.args == config.getini("testpaths") and not config.option.keyword:
        thin(items, FAMILIES.read_text("utf-8"))


@pytest.fixture(scope="session", autouse=True)
def _figures_as_they_are(request: pytest.FixtureRequest) -> Iterator[None]:
    """Except in `test-all`, save figures at 40 dpi and without constrained layout, which takes longer than drawing."""
    figure: Any = import_module("matplotlib.figure").Figure
    right = figure.savefig

    def savefig(self: Any, *place: Any, **how: Any) -> None:
        self.set_layout_engine("none")
        right(self, *place, **how | {"dpi": 40})

    with pytest.MonkeyPatch.context() as patch:
        if request.config.option.markexpr:
            patch.setattr(figure, "savefig", savefig)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    """Fail a test that leaves a threshold changed, and restore the threshold. Close figures after each test."""
    yield
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close("all")
    if (module := sys.modules.get("minintk.thresholds")) is not None:
        now, right = vars(module.THRESHOLDS), vars(module.Thresholds())
        left = {name: value for name, value in now.items() if value != right[name]}
        now.update(right)
        assert not left, f"thresholds left changed: {left}"
