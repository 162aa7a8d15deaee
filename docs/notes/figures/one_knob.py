"""Draw the figures of chapter 5: movement of the kernel, features in the plane, and distance to the linearisation."""

from __future__ import annotations

import numpy as np
from closed_form import EXACT
from common import COLOURS, Host, bars, line, panels, save
from kernel_stays import digits

import analytic as an
import minintk as mn
from minintk.diagnostics import kernel_movement, power_law

GAMMAS, WIDTHS, SEEDS = 2.0 ** np.arange(-2, 9), (64, 1024, 16384), 8


def moved(n: int, gamma: float) -> Host:
    """Return each network's |Theta_t - Theta_0| / |Theta_0| once its loss is below a tenth of the initial loss."""
    x, y = digits(8)
    net = mn.Network(mn.Sequential(mn.Dense(n), mn.Tanh(), mn.Dense(1)), (8,))
    theta0, alpha = net.init(np.random.default_rng(n), ensemble=SEEDS), gamma / np.sqrt(n)
    found = np.full(SEEDS, np.nan)
    model = mn.Centred(net, theta0, float(alpha))
    first = None
    for moment in mn.flow(model, theta0, x, y, loss=mn.mse, times=np.geomspace(0.1, 1000, 50) / alpha**2):
        first = moment.loss if first is None else first
        done = np.isnan(found) & (moment.loss < first / 10)
        if done.any():
            assert moment.theta is not None
            found[done] = np.asarray(kernel_movement(net, theta0, moment.theta, x))[done]
        if not np.isnan(found).any():
            return found
    raise RuntimeError(f"width {n}, gamma {gamma}: a network has not reached a tenth of its loss")


def knob() -> None:
    """Draw the kernel's movement against gamma = alpha sqrt(n), and the fit A / gamma^2 + B / (gamma sqrt(n))."""
    figure, (axes,) = panels(1, 4.8, 3.4)
    found = np.array([[moved(n, float(g)) for g in GAMMAS] for n in WIDTHS])
    root, large = np.sqrt(np.array(WIDTHS, float))[:, None], GAMMAS >= 4
    terms = np.stack([1 / GAMMAS**2 + 0 * root, 1 / (GAMMAS * root)], axis=-1)
    mean = found.mean(axis=-1)
    chosen, target = (terms / mean[..., None])[:, large].reshape(-1, 2), np.ones(large.sum() * len(WIDTHS))
    A, B = np.linalg.lstsq(chosen, target, rcond=None)[0]
    for at, n in enumerate(WIDTHS):
        bars(axes, GAMMAS, found[at], at, f"width {n}, {SEEDS} networks")
        line(axes, GAMMAS[large], (terms[at] @ [A, B])[large], None, COLOURS[at])
    for i in (0, 2):
        print(f"gamma {GAMMAS[i]}: movement {', '.join(f'{v:.3f}' for v in mean[:, i])} at widths {WIDTHS}")
    off = mean[:, large] / (terms @ [A, B])[:, large]
    print(f"knob: A = {A:.2f}, B = {B:.2f}, measured over theory {off.min():.2f} to {off.max():.2f}")
    axes.axvline(1, color="0.7", lw=0.8)
    axes.set(xlabel=r"$\gamma = \alpha\sqrt{n}$ (1: mean field; $\sqrt{n}$: NTK)", xscale="log", yscale="log")
    axes.set_ylabel(r"$|\Theta_t - \Theta_0|\,/\,|\Theta_0|$ at a tenth of the loss")
    axes.legend(title=r"dashed: $A/\gamma^2 + B/(\gamma\sqrt{n})$", title_fontsize=7.5)
    save(figure, "one-knob")


def plane(n: int = 250) -> None:
    """Draw the point |a_j| w_j of each ReLU unit before and after training, for a small and a large gamma."""
    angles = np.deg2rad([10, 130, 200, 310])
    x, y = np.sqrt(2) * np.stack([np.cos(angles), np.sin(angles)], 1), np.array([[1.0], [-1.0], [1.0], [-1.0]])
    net = mn.Network(mn.Sequential(mn.Dense(n), mn.ReLU(), mn.Dense(1)), (2,))
    theta0 = net.init(np.random.default_rng(0))
    figure, axes = panels(2, 3.6, 3.5)
    for axis, gamma in zip(axes, (0.5, 50.0), strict=True):
        alpha = gamma / np.sqrt(n)
        model = mn.Centred(net, theta0, float(alpha))
        *_, end = mn.flow(model, theta0, x, y, loss=mn.mse, times=np.array([20.0, 100.0]) / alpha**2)
        for theta, colour, label in ((theta0, "0.7", "before"), (end.theta, COLOURS[0], "after")):
            assert theta is not None
            weights = net.layout.unpack(np.asarray(theta))
            points = weights["0.W"] * np.abs(weights["2.W"][:, 0])
            axis.plot(*points, ".", ms=3, color=colour, label=label)
        reach = 1.05 * float(np.abs(points).max())
        for (u, v), target in zip(x / np.sqrt(2), y[:, 0], strict=True):
            axis.plot([0, 2 * reach * u], [0, 2 * reach * v], ":" if target < 0 else "-", color=COLOURS[1], lw=0.9)
        axis.set(title=rf"$\gamma$ = {gamma:g}", xlabel="$|a_j|\\,w_{1j}$", xlim=(-reach, reach), ylim=(-reach, reach))
        axis.set_aspect("equal")
        change = float(np.linalg.norm(end.theta - theta0) / np.linalg.norm(theta0))
        print(f"plane, gamma {gamma:g}: loss {float(end.loss):.1e}, weights moved by {change:.3f} of their norm")
    axes[0].set_ylabel("$|a_j|\\,w_{2j}$")
    axes[0].legend(loc="lower right")
    save(figure, "features-in-the-plane")


def linearisation(n: int = 64, alphas: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)) -> None:
    """Draw the largest distance over t between F_t and the solution with the initial kernel, against alpha."""
    x, y = digits(8)
    net = mn.Network(mn.Sequential(mn.Dense(n), mn.Tanh(), mn.Dense(1)), (8,))
    theta0, times = net.init(np.random.default_rng(7), ensemble=SEEDS), np.geomspace(0.5, 40, 10)
    flows = [np.asarray(an.gradient_flow(K, y).predict(times))[..., 0] for K in np.asarray(mn.ntk(net, theta0, x))]
    found = []
    for alpha in alphas:
        model = mn.Centred(net, theta0, float(alpha))
        run = list(mn.flow(model, theta0, x, y, loss=mn.mse, times=times / alpha**2, by=EXACT))[1:]
        F = np.array([np.asarray(model(moment.theta, x))[..., 0] for moment in run])
        found.append(np.sqrt(np.mean((F - np.stack(flows, 1)) ** 2, axis=-1)).max(axis=0))
    values = np.array(found)
    fit = power_law(alphas, list(values))
    figure, (axes,) = panels(1, 4.4)
    bars(axes, alphas, values, 0, rf"width {n}, {SEEDS} networks: $\alpha^{{{fit.exponent:.2f}}}$")
    line(axes, alphas, values[-1].mean() * alphas[-1] / np.array(alphas), r"$1/\alpha$, Theorem 1")
    axes.set(xlabel=r"output scale $\alpha$", xscale="log", yscale="log")
    axes.set_ylabel(r"$\sup_t |F_t - F_t^{\rm lin}|$, rms over examples")
    axes.legend()
    save(figure, "linearisation")
    print(
        f"distance to the linearisation: exponent {fit.exponent:.3f} ({fit.interval[0]:.3f} to {fit.interval[1]:.3f})"
    )


def main() -> None:
    """Draw the chapter's figures."""
    knob()
    plane()
    linearisation()
