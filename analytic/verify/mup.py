"""Check the laws of muP: sizes of features and of steps, and stable learning rates, do not depend on the width."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import minintk as mn
from analytic.verify.claims import Finding, bounded, exponent, refused
from minintk import spec as s
from minintk.arrays import Host
from minintk.datasets import digits
from minintk.diagnostics.curvature import kappa, sharpness
from minintk.diagnostics.power_laws import Outcome
from minintk.lab.experiments.coordinate_check import CoordinateCheck, coordinate_check
from minintk.lab.experiments.lr_transfer import Transfer, learning_rate_transfer
from minintk.lab.experiments.named import spec_of_width
from minintk.models.empirical import ntk
from minintk.models.network import Network
from minintk.spec import zoo
from minintk.spec.parametrization import NTK, MeanField, Parametrization, Role, Row, SpectralMuP, Standard
from minintk.training.losses import mse
from minintk.training.optimizers import SGD, Adam
from minintk.training.train import train


class Frozen(SpectralMuP):
    """Spectral muP with a learning rate of 0 for the hidden weights and biases."""

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        right = super().row(role, fan_in, fan_out, sigma)
        return replace(right, lr=0.0, adam=0.0) if role.place == "hidden" else right


class Shallow(SpectralMuP):
    """Spectral muP without the scales that depend on the number of residual branches."""

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        return super().row(replace(role, branches=1), fan_in, fan_out, sigma)


class OneRate(SpectralMuP):
    """Spectral muP with sqrt(S) as the multiplier for each rate S, so that theta / sqrt(S) is trained at rate 1."""

    def row(self, role: Role, fan_in: int, fan_out: int, sigma: float) -> Row:
        right = super().row(role, fan_in, fan_out, sigma)
        root = right.rate("sgd") ** 0.5
        return Row(root, right.std / root)


def network(n: int, C: int, parametrization: Parametrization, **scales: float) -> Network:
    """Build a network for the digits with two hidden tanh layers of n units."""
    return Network(zoo.mlp(2, n, C, activation=s.Tanh(), **scales), (64,), parametrization)


def rates(seed: int) -> Iterator[Finding]:
    """Check that a small step of gradient descent gives df / lr = - J S J' (f - y) / N on the training set."""
    x, y = digits().standardise().subset(16, np.random.default_rng(seed)).parity()
    lr = 1e-7
    for name, parametrization in {"muP": SpectralMuP(), "mean field": MeanField()}.items():
        right, plain = list[float](), list[float]()
        for n in (64, 1024):
            net = network(n, 1, parametrization)
            theta = net.init(np.random.default_rng([seed, n]))
            f = net(theta, x)
            *_, end = train(net, theta, x, y, loss=mse, optimizer=SGD(lr=lr), steps=1)
            moved = (net(end.theta, x) - f) / lr
            for found, scales in ((right, None), (plain, dict.fromkeys(net.layout.slices, 1.0))):
                predicted = -ntk(net, theta, x, scales=scales) @ (f - y) / len(x)
                found.append(float(np.linalg.norm(moved - predicted) / np.linalg.norm(moved)))
        law = f"{name}: a step moves f by −lr J S J′ dL/df, off by"
        yield bounded(law, 1e-6, max(right))
        yield refused(bounded(f"{name}: the same by J J′", 1e-6, max(plain)))


def laziness(seed: int) -> Iterator[Finding]:
    """Check that kappa describes training: muP and `OneRate`, which train in the same way, have the same kappa."""
    x, y = digits().standardise().subset(8, np.random.default_rng(seed)).parity()
    off, plain = 0.0, 0.0
    for n in (48, 200):
        nets = [network(n, 1, p, b_std=0.0) for p in (SpectralMuP(), OneRate())]
        muP, same = (kappa(net, net.init(np.random.default_rng([seed, n])), x, y).kappa for net in nets)
        ones = dict.fromkeys(nets[0].layout.slices, 1.0)
        forgotten = kappa(nets[0], nets[0].init(np.random.default_rng([seed, n])), x, y, scales=ones).kappa
        off, plain = max(off, abs(same / muP - 1)), max(plain, abs(forgotten / muP - 1))
    yield bounded("kappa of muP and of the same with one rate, apart by", 1e-10, off)
    yield refused(bounded("kappa without the rates, apart by", 1e-10, plain))


def coordinates(seed: int) -> Iterator[Finding]:
    """Check that features, their changes and each weight matrix's first step keep their size as the width grows."""
    x, y = digits(dtype=np.float32).subset(32, np.random.default_rng(seed)).one_hot()
    for optimizer in (SGD(lr=0.1), Adam(lr=0.01)):
        at: Any = {"loss": mse, "optimizer": optimizer, "widths": (64, 128, 256, 512)}
        check = partial(coordinate_check, spec_of_width("mlp", 10), x, y, **at, rng=np.random.default_rng(seed))
        rule = type(optimizer).__name__
        law = f"{rule}: |h|, |dh|, |dW| of every layer, the furthest"
        yield furthest(f"muP, {law}", check(parametrization=SpectralMuP(), seeds=16, budget=64))
        yield refused(furthest(f"NTK parametrization, {law}", check(parametrization=NTK(), seeds=8)))
        yield refused(furthest(f"muP with frozen hidden layers, {law}", check(parametrization=Frozen(), seeds=8)))


def depth(seed: int) -> Iterator[Finding]:
    """Check that the quantities of `coordinates` keep their size as the number of residual branches grows."""
    x, y = digits(dtype=np.float32).subset(32, np.random.default_rng(seed)).one_hot()
    at: Any = {"loss": mse, "widths": (4, 8, 16, 32), "seeds": 8, "budget": 32}

    def resnet(L: int) -> s.Layer:
        return spec_of_width("resnet", 10, L)(128)

    for optimizer in (SGD(lr=0.1), Adam(lr=0.01)):
        law = f"{type(optimizer).__name__}, 4 to 32 residual branches: |h|, |dh|, |dW|, the furthest"
        yield furthest(f"muP, {law}", coordinate_check(resnet, x, y, optimizer=optimizer, **at))
        wrong = coordinate_check(resnet, x, y, optimizer=optimizer, parametrization=Shallow(), **at)
        yield refused(furthest(f"muP without the scales of depth, {law}", wrong))


def furthest(law: str, check: CoordinateCheck) -> Finding:
    """Return a finding with the check's verdict and the row whose exponent is furthest from 0."""
    rows = [row for row in check.rows if row.quantity in ("h", "dh", "dW") and not (row.at_most and row.fit)]
    row = max(rows, key=lambda row: abs(row.fit.exponent) if row.fit else np.inf)
    measured = f"{row}".replace("-", "−") + f" (|{row.quantity}| of {row.name})"
    return Finding(law, f"0 ± {check.tolerance:g}", measured, check.verdict)


class ScaledDecay(SGD):
    """Gradient descent whose weight decay is also multiplied by the learning-rate scale."""

    def scale_and_decay(self, g: Any, theta: Any, scales: Any, at: slice, lr: float = 1.0) -> None:
        super().scale_and_decay(g, theta, None, at, lr)
        g *= 1.0 if scales is None else scales[at]


def decay(seed: int) -> Iterator[Finding]:
    """Check that weight decay shrinks every tensor by the same fraction at every width."""
    x, y = digits().standardise().subset(32, np.random.default_rng(seed)).one_hot()
    widths = (64, 256, 1024)

    def shares(optimizer: Any, net: Network, k: int) -> Host:
        """Return |theta without decay - theta with decay| / |theta_0| of each tensor after 5 steps."""
        theta, ends = net.init(np.random.default_rng([seed, net.size, k])), list[Any]()
        for amount in (0.0, 0.1):
            *_, end = train(net, theta, x, y, loss=mse, optimizer=optimizer(weight_decay=amount), steps=5)
            ends.append(end.theta)
        at = net.layout.slices.values()
        return np.array([np.linalg.norm((ends[1] - ends[0])[i]) / np.linalg.norm(theta[i]) for i in at])

    for name, optimizer in {"SGD": partial(SGD, lr=0.01), "Adam": partial(Adam, lr=0.001)}.items():
        law = f"muP, {name}: the share of a tensor that decays, the furthest"
        yield slowest(law, widths, partial(shares, optimizer))
    wrong = partial(shares, partial(ScaledDecay, lr=0.01))
    yield refused(slowest("muP, SGD, decay times the rate's scale: the same", widths, wrong))


def slowest(law: str, widths: Sequence[int], shares: Callable[[Network, int], Host]) -> Finding:
    """Return the finding for the tensor whose exponent is furthest from 0."""
    nets = [network(n, 10, SpectralMuP(), b_std=0.0) for n in widths]
    found = np.array([[shares(net, k) for k in range(3)] for net in nets])  # (width, seed, tensor)
    rows = [exponent(law, 0.0, 0.02, widths, list(found[..., i])) for i in range(found.shape[-1])]
    return max(rows, key=lambda row: abs(float(row.measured.split()[0].replace("−", "-"))))


def transfer(seed: int) -> Iterator[Finding]:
    """Check that the best learning rate at one width is nearly the best at the other widths."""
    x, y = digits(dtype=np.float32).subset(96, np.random.default_rng(seed)).one_hot()

    def found(optimizer: Any, low: int, high: int, parametrization: Parametrization, widest: int = 512) -> Transfer:
        at: Any = {"rates": (2.0 ** np.arange(low, high + 0.5)).tolist(), "rng": np.random.default_rng(seed)}
        return learning_rate_transfer(
            spec_of_width("mlp", 10, 2), x, y, optimizer=optimizer, parametrization=parametrization, loss=mse, steps=30,
            widths=[n for n in (64, 128, 256, 512, 1024) if n <= widest], **at,
        )  # fmt: skip

    cases: dict[str, tuple[Any, int, int]] = {
        "Adam": (Adam, -5, 1), "gradient descent": (SGD, -1, 5), "spectral descent": (mn.SpectralDescent, -6, 0),
    }  # fmt: skip
    law = "the loss at another width's best rate, over the best, n = 64 to"
    for name, (optimizer, low, high) in cases.items():
        yield kept(f"muP, {name}: {law} 512", found(optimizer, low, high, SpectralMuP()))
    yield kept(f"muP, Muon: {law} 256", found(mn.Muon, -8, -2, SpectralMuP(), 256))
    yield refused(kept(f"standard, Adam: {law} 1024", found(Adam, -10, -2, Standard(), 1024)))


REGRET = 2.0
"""Allowed ratio of losses.  Ratios differ by a factor of up to 1.5 between seeds.  A best rate ~ 1/n gives 5."""


def kept(law: str, found: Transfer) -> Finding:
    """Check that the best rate of any width gives at most REGRET times the best loss at every other width."""
    verdict: Outcome = "undecided" if found.untrained else "pass" if found.regret <= REGRET else "fail"
    shift = f"best rate: 2^({found.shift}) a doubling".replace("-", "−")
    return Finding(law, f"1, ≤ {REGRET:g}", f"{found.regret:.2f}; {shift}", verdict)


def muon(seed: int) -> Iterator[Finding]:
    """Check that all nonzero singular values of an orthogonalised step equal lr sqrt(fan_out / fan_in)."""
    x, y = digits().standardise().subset(64, np.random.default_rng(seed)).one_hot()
    for law, optimizer in (("Muon", mn.Muon), ("spectral descent", mn.SpectralDescent)):
        off = 0.0
        for n in (32, 512):
            net = network(n, 10, SpectralMuP(), b_std=0.0)
            theta = net.init(np.random.default_rng([seed, n]))
            *_, end = train(net, theta, x, y, loss=mse, optimizer=optimizer(0.1, net.layout), steps=1)
            for name, step in net.layout.unpack(end.theta - theta).items():
                sizes = np.linalg.svd(step, compute_uv=False) / (0.1 * (step.shape[1] / step.shape[0]) ** 0.5)
                rank = min(*step.shape, len(x)) if name != "0.W" else np.linalg.matrix_rank(x)
                off = max(off, float(np.abs(sizes[:rank] - 1).max()))
        row = bounded(f"{law}: singular values of dW / (lr sqrt(o/i)), off 1 by", 1e-3, off)
        yield row if optimizer is mn.Muon else refused(row)


def sharpnesses(seed: int) -> Iterator[Finding]:
    """Check that neither the sharpness after 30 steps nor the stability bound 2 / sharpness depends on the width."""
    x, y = digits().on_sphere().subset(20, np.random.default_rng(seed)).parity()
    widths = (128, 256, 512, 1024)

    def found(parametrization: Parametrization, lr: float, seeds: int) -> list[Host]:
        values = []
        for n in widths:
            net = network(n, 1, parametrization, w_std=1.0, b_std=0.0)
            theta = net.init(np.random.default_rng([seed, n]), ensemble=seeds)
            *_, end = train(net, theta, x, y, loss=mse, optimizer=SGD(lr=lr), steps=30)
            values.append(np.array([sharpness(net, one, x, y, loss=mse, rtol=1e-3) for one in end.theta]))
        return values

    yield exponent("muP: sharpness after 30 steps", 0.0, 0.1, widths, found(SpectralMuP(), 0.3, 12))
    yield refused(exponent("standard: the same", 0.0, 0.1, widths, found(Standard(), 1e-3, 3)))
