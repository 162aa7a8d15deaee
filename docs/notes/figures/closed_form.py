"""Draw the figures of chapter 4: modes of the error, ensemble and posterior, and the learning curve on digits."""

from __future__ import annotations

import numpy as np
from common import COLOURS, MARKERS, bars, line, panels, save

import analytic as an
import minintk as mn

EXACT = mn.Solver(rtol=1e-6, atol=1e-9)


def spec(n: int, b_std: float = 0.0) -> mn.Sequential:
    """Return the spec of a network with one hidden layer of n erf units."""
    return mn.Sequential(mn.Dense(n, w_std=1.5, b_std=b_std), mn.Erf(), mn.Dense(1))


def modes() -> None:
    """Draw the error along three eigenvectors of Theta during training, and the theoretical exponentials."""
    x, y = mn.datasets.digits().pca(8).on_sphere().subset(24, np.random.default_rng(0)).parity()
    figure, axes = panels(2)
    times = np.geomspace(0.3, 300, 13)
    for axis, n in zip(axes, (64, 4096), strict=True):
        net = mn.Network(spec(n), (8,))
        theta0 = net.init(np.random.default_rng(1))
        values, vectors = np.linalg.eigh(np.asarray(mn.ntk(net, theta0, x)))
        start, apart = np.abs(vectors.T @ (np.asarray(net(theta0, x)) - y)[:, 0]), 0.0
        found = []
        for moment in list(mn.flow(net, theta0, x, y, loss=mn.mse, times=times, by=EXACT))[1:]:
            assert moment.theta is not None
            found.append(np.abs(vectors.T @ (np.asarray(net(moment.theta, x)) - y)[:, 0]) / start)
        for at, i in enumerate((-1, -4, -10)):
            measured, theory = np.array(found)[:, i], np.exp(-values[i] * times / len(x))
            axis.plot(times, measured, MARKERS[at], ms=4, color=COLOURS[at], label=rf"$\lambda$ = {values[i]:.2f}")
            line(axis, times, theory, None, COLOURS[at])
            apart = max(apart, float(np.abs(measured - theory).max()))
        axis.set(title=f"width {n}", xlabel="time $t$", xscale="log", ylim=(-0.05, 1.3))
        print(f"modes, width {n}: largest distance from the exponential {apart:.3f}")
    axes[0].set_ylabel("error / error at the start")
    axes[1].legend(title="dashed: theory", title_fontsize=7.5)
    save(figure, "modes")


def ensemble(networks: int = 100, n: int = 1024) -> None:
    """Draw trained outputs with the theoretical band, and measured, theoretical and posterior standard deviations."""
    angles = np.linspace(0, 2 * np.pi, 61)
    line_x, at = np.stack([np.cos(angles), np.sin(angles)], axis=1) * 2**0.5, np.array([4, 16, 27, 40, 52])
    x, y = line_x[at], np.array([[1.0], [-0.5], [0.5], [-1.0], [0.8]])
    net = mn.Network(spec(n, b_std=0.3), (2,))
    theta0 = net.init(np.random.default_rng(2), ensemble=networks)
    lr = 0.6 * float(an.max_learning_rate(an.kernel(spec(n, b_std=0.3)).ntk(x)))
    *_, end = mn.train(net, theta0, x, y, loss=mn.mse, optimizer=mn.SGD(lr), steps=1000, every=1000)
    f = np.asarray(net(end.theta, line_x))[..., 0]
    kernel = an.kernel(spec(n, b_std=0.3))
    K, Theta = np.asarray(kernel.nngp(line_x)), np.asarray(kernel.ntk(line_x))
    A, B = (k[:, at] @ np.linalg.inv(k[np.ix_(at, at)]) for k in (Theta, K))
    cov = K + A @ K[np.ix_(at, at)] @ A.T - A @ K[at] - (A @ K[at]).T
    posterior = K - B @ K[at]
    figure, axes = panels(2)
    mean, sd = (A @ y)[:, 0], np.sqrt(np.maximum(np.diag(cov), 0))
    axes[0].fill_between(angles, mean - 2 * sd, mean + 2 * sd, color="0.9", label="theory, mean ± 2 sd")
    for s in range(4):
        axes[0].plot(angles, f[s], lw=0.9, color=COLOURS[0], label="trained networks" if s == 0 else None)
    axes[0].plot(angles[at], y, "k*", ms=8, label="data")
    axes[0].set(ylabel="output $f(x)$")
    axes[1].plot(angles, f.std(axis=0, ddof=1), "o", ms=3, color=COLOURS[0], label=f"{networks} networks, width {n}")
    line(axes[1], angles, sd, "equation (16): trained networks", COLOURS[0])
    line(axes[1], angles, np.sqrt(np.maximum(np.diag(posterior), 0)), "NNGP posterior", COLOURS[1])
    axes[1].set(ylabel="standard deviation of $f(x)$", ylim=(-0.02, None))
    for axis in axes:
        axis.set(xlabel="angle of the input (radians)")
        axis.legend(loc="upper left" if axis is axes[1] else "lower left")
        low, high = axis.get_ylim()
        axis.set_ylim(low - 0.35 * (high - low) * (axis is axes[0]), high + 0.45 * (high - low) * (axis is axes[1]))
    save(figure, "ensemble")
    far = np.setdiff1d(np.arange(61), at)
    ratio = f.std(axis=0, ddof=1)[far] / sd[far]
    print(f"ensemble: sd of networks over theory {ratio.min():.2f} to {ratio.max():.2f}", end="; ")
    print(f"largest posterior sd over theory {np.sqrt(np.diag(posterior)[far] / np.diag(cov)[far]).max():.2f}")


def digits(sizes: tuple[int, ...] = (16, 32, 64, 128, 256, 512), draws: int = 20) -> None:
    """Draw measured and theoretical errors of kernel regression on digits against the number of training examples."""
    x, y = mn.datasets.digits().on_sphere().one_hot()
    y = y - 0.1
    figure, axes = panels(2)
    kernel = an.kernel(mn.Sequential(mn.Dense(512, w_std=2**0.5), mn.ReLU(), mn.Dense(1)))
    K, rng = np.asarray(kernel.ntk(x.reshape(len(x), -1))), np.random.default_rng(5)
    spectrum, power = an.data_modes(K, y)
    squares, wrong = [], []
    for N in sizes:
        for _ in range(draws):
            order = rng.permutation(len(x))
            at, test = order[:N], order[N:]
            f = K[np.ix_(test, at)] @ np.linalg.solve(K[np.ix_(at, at)], y[at])
            squares.append(np.sum((f - y[test]) ** 2) / len(x))  # the error on the N training digits is zero
            wrong.append(np.mean(f.argmax(1) != y[test].argmax(1)))
    squared, missed = (np.reshape(v, (len(sizes), draws)) for v in (squares, wrong))
    theory = np.array([float(an.learning_curve(spectrum, power, examples=N).ridge(0.0)) for N in sizes])
    bars(axes[0], sizes, squared, 0, f"{draws} draws, mean ± s.e.")
    line(axes[0], sizes, theory, "theory from the spectrum", COLOURS[0])
    bars(axes[1], sizes, missed, 1, f"{draws} draws, mean ± s.e.")
    axes[0].set(ylabel="squared error, mean over all 1,797 digits")
    axes[1].set(ylabel="fraction of digits misclassified")
    for axis in axes:
        axis.set(xlabel="training examples $N$", xscale="log", yscale="log")
        axis.legend()
    save(figure, "learning-curve")
    print("digits, squared error over theory:", ", ".join(f"{v:.2f}" for v in squared.mean(1) / theory), end="; ")
    print("misclassified:", ", ".join(f"{100 * v:.1f} %" for v in missed.mean(1)))


def main() -> None:
    """Draw the chapter's figures."""
    modes()
    ensemble()
    digits()
