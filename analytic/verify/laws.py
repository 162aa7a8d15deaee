"""Check the laws of `minintk verify --mup`: for networks with moving features, and for corrections to a frozen kernel.

The laws in this file use fixed data, so that the power against controls is known; `seed` determines the rest.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np

import analytic as an
import minintk as mn
from analytic.verify import mup
from analytic.verify.claims import Finding, exponent, overall, refused, score
from analytic.verify.report import versions
from minintk import spec as s
from minintk.arrays import Host
from minintk.datasets import digits
from minintk.files.writing import made_folder, write_atomically
from minintk.models.empirical import ntk_full
from minintk.models.network import Network
from minintk.models.wrappers import Centred
from minintk.spec import zoo
from minintk.spec.parametrization import MeanField
from minintk.training.flows import flow
from minintk.training.integrators import Solver
from minintk.training.losses import mse
from minintk.training.optimizers import SGD
from minintk.training.train import train


def orders(seed: int) -> Iterator[Finding]:
    """Check that the final kernel differs from a frozen one by O(1/n), and from that of `mn.hierarchy` by O(1/n^2)."""
    N, E, widths = 8, 96, (64, 128, 256)
    x = np.random.default_rng(0).standard_normal((N, 64))
    x *= 8 / np.linalg.norm(x, axis=1, keepdims=True)
    y = np.tile([[1.0], [-1.0]], (N // 2, 1))
    errors: dict[int, list[Host]] = {2: [], 4: []}
    for n in widths:
        net = Network(zoo.mlp(2, n, 1, activation=s.Tanh(), w_std=1.0, b_std=0.0), (64,))
        theta = net.init(np.random.default_rng([seed, n]), ensemble=E)
        model = Centred(net, theta, 1.0)
        *_, true = flow(model, theta, x, y, loss=mse, times=2.0, by=Solver(1e-10, 1e-12))
        assert true.theta is not None
        kernel = ntk_full(model, true.theta, x)
        for order, found in errors.items():
            *_, end = mn.hierarchy(model, theta, x, y, loss=mse, times=2.0, order=order)
            found.append(np.linalg.norm((end.kernel - kernel).reshape(E, -1), axis=1))
    yield exponent("hierarchy with O3 and O4: |Θ_T − theory|", -2.0, 0.3, widths, errors[4])
    yield exponent("frozen kernel: the same", -1.0, 0.3, widths, errors[2])
    yield refused(exponent("frozen kernel: the same, were it of second order", -2.0, 0.3, widths, errors[2]))


def mean(seed: int) -> Iterator[Finding]:
    """Check that the mean output of trained networks is the infinite-width mean plus c / n with the computed c."""
    x, y = digits().pca(5).on_sphere().subset(6, np.random.default_rng(0)).parity()
    n, t, rng = 64, 1.0, np.random.default_rng([seed, 1])
    net = Network(zoo.mlp(1, n, 1, activation=s.Tanh(), w_std=1.5, b_std=0.1), x.shape[1:])
    told = an.width_correction(net.spec, x[1:], y[1:], x[:1], rng=rng).predict(t)
    limit, c, unsure = (float(a[0, 0]) for a in told)
    found = []
    for _ in range(30):
        theta = net.init(rng, ensemble=100)
        both = np.concatenate([theta, theta])
        net.layout.unpack(both[100:])[f"{len(net.spec) - 1}.W"][...] *= -1  # so that the initial outputs cancel
        *_, end = flow(net, both, x[1:], y[1:], loss=mse, times=t, by=Solver(1e-6, 1e-7))
        assert end.theta is not None
        found.append(net(end.theta, x[:1])[:, 0, 0].reshape(2, -1).mean(axis=0))
    values = np.concatenate(found)
    error = float(np.hypot(values.std(ddof=1) / len(values) ** 0.5, unsure))
    law = f"mean of {2 * len(values)} networks of width {n}: infinite width + c / n"
    yield score(law, limit + c, values.mean(), error)
    yield refused(score("the same without c / n", limit, values.mean(), error))


def limit(seed: int) -> Iterator[Finding]:
    """Check that muP networks converge to the limit with moving features, not to training with the tangent kernel."""
    x, y = digits().pca(4).on_sphere().subset(4, np.random.default_rng(2)).parity()
    y = 2 * y  # so that features move far
    steps, widths = 20, (64, 128, 256)
    how: dict[str, Any] = {"lr": 0.1, "steps": steps}

    def spec(n: int) -> s.Sequential:
        return zoo.mlp(2, n, 1, activation=s.Tanh(), w_std=1.5, b_std=0.0)

    how |= {"gamma0": 1.0, "samples": 2**16, "rng": np.random.default_rng([seed, 1])}
    right = an.feature_learning_limit(spec(1), x, y, **how).f[-1, :, 0]
    away: tuple[list[Host], ...] = [], []
    for n in widths:
        net = Network(spec(n), x.shape[1:], MeanField())
        theta = net.init(np.random.default_rng([seed, n]), ensemble=2**17 // n)
        *_, end = train(net, theta, x, y, loss=mse, optimizer=SGD(lr=how["lr"]), steps=steps)
        f = (net(end.theta, x) - net(theta, x))[..., 0]
        frozen = an.gradient_descent(an.kernel(net.spec).ntk(x), y, lr=how["lr"]).predict(steps)[:, 0]
        for found, there in zip(away, (right, frozen)):
            found.append(np.linalg.norm(f - there, axis=1))
    yield exponent("networks in mean field − the limit in which features move", -0.5, 0.1, widths, away[0])
    yield refused(exponent("the same − descent with the tangent kernel", -0.5, 0.1, widths, away[1]))


LAWS: dict[str, Callable[[int], Iterator[Finding]]] = {
    "rates": mup.rates, "laziness": mup.laziness, "coordinates": mup.coordinates, "depth": mup.depth,
    "decay": mup.decay, "transfer": mup.transfer, "muon": mup.muon, "sharpness": mup.sharpnesses,
    "orders": orders, "mean": mean, "limit": limit,
}  # fmt: skip
"""{name: seed -> findings}, in the order of docs/mup.md and docs/beyond-the-kernel.md."""
LEVELS = "of 38 full runs with other seeds none failed a right row, and the 26 kept refused every control."
"""Measured false alarms and power (benchmarks/levels.py), printed at the end because each law has its own level."""
COLUMNS = "law", "theory", "measured", "verdict", "seconds"


def run(only: Sequence[str] = (), *, seed: int = 0) -> Iterator[Finding]:
    """Yield the findings of all laws, or of the given laws, one by one; raise ValueError for an unknown name.

    >>> [found.verdict for found in run(["rates"])]
    ['pass', 'pass', 'pass', 'pass']
    """
    if unknown := [name for name in only if name not in LAWS]:
        raise ValueError(f"laws expects some of {', '.join(LAWS)}, got {', '.join(unknown)}")
    for name in only or LAWS:
        begun = time.perf_counter()
        for finding in LAWS[name](seed):
            yield replace(finding, seconds=round(time.perf_counter() - begun, 1))
            begun = time.perf_counter()


def cells(finding: Finding) -> tuple[str, ...]:
    """Return the finding as strings, one for each of COLUMNS."""
    law = f"control: {finding.law}" if finding.control else finding.law
    said = {"pass": "refused", "undecided": "not refused", "fail": "fail"} if finding.control else {}
    return law, finding.theory, finding.measured, said.get(finding.verdict, finding.verdict), f"{finding.seconds:g}"


def write(findings: Sequence[Finding], out: str | Path, command: str) -> Path:
    """Write mup.json and mup.md (the table) to the folder `out`; return the path of mup.md."""
    folder = made_folder(Path(out).expanduser(), "out")
    rows = [COLUMNS, ["---"] * len(COLUMNS), *([c.replace("|", "\\|") for c in cells(found)] for found in findings)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    record = {"command": command, "verdict": overall(found.verdict for found in findings), "versions": versions()}
    said = json.dumps({**record, "findings": [asdict(found) for found in findings]}, indent=1, ensure_ascii=False)
    for name, text in {"mup.json": said, "mup.md": f"{table}\n"}.items():
        write_atomically(folder / name, methodcaller("write", text.encode()))
    return folder / "mup.md"
