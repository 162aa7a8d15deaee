"""State the origin of recorded reference values, and recompute them in high precision, except those of torch.

    python3 make.py python tests/kit/golden.py        recomputes these values, and compares them

Unless noted otherwise, the numbers were computed by neural-tangents 0.6.5 in float64, and are given to ten decimals.
The functions below recompute them with mpmath in DIGITS digits, or in extended precision if they call `image_kernels`.
The formulas are given here or in `oracles_kernels` and do not use the library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mpmath as mp
import numpy as np

import minintk as mn
from tests.kit.oracles_kernels import DIGITS, dual, exact_kernels, image_kernels, places

SIGMOID_LIKE = 2.4020563531719796
"""The constant in neural-tangents' `Sigmoid_like`, which is erf(x / constant) / 2 + 1/2."""
R2 = 2**0.5
D = mn.Dense(1, w_std=R2, b_std=0.1)
XF1, XF2 = np.cos(np.arange(12.0)).reshape(3, 4), np.sin(1 + np.arange(8.0)).reshape(2, 4)
XI1, XI2 = np.cos(np.arange(120.0)).reshape(2, 4, 5, 3), np.sin(1 + np.arange(180.0)).reshape(3, 4, 5, 3)
Y = np.sin(np.arange(6.0)).reshape(3, 2)
F0, F0_TEST = np.cos(np.arange(6.0)).reshape(3, 2), np.sin(np.arange(4.0)).reshape(2, 2)


def chain(*layers: mn.spec.Layer, w_std: float, b_std: float = 0.0, width: int = 7) -> mn.Sequential:
    """Return the network D-phi-D-...-D, in which all Dense layers D are equal."""
    dense = mn.Dense(width, w_std=w_std, b_std=b_std)
    return mn.Sequential(*(layer for phi in layers for layer in (dense, phi)), dense)


def conv(**how: Any) -> mn.Conv2d:
    return mn.Conv2d(6, 3, w_std=R2, b_std=0.1, **how)


# ------------------------------------------------------------------------------------------ the numbers

RELU = chain(mn.ReLU(), mn.ReLU(), w_std=R2, b_std=0.1)

VECTORS: dict[str, tuple[mn.Sequential, tuple[float, ...]]] = {
    "relu": (RELU, (1.0656817743, 3.7689616013, 2.7025148930, 7.0411456227)),
    "relu, one set": (RELU, (1.2525949573, 5.5138299088, 3.7277848719, 11.6319484774)),
    "erf": (
        chain(mn.Erf(), mn.Erf(), w_std=1.5, b_std=0.05),
        (0.9269190653, -0.1330097931, 3.2940945708, -0.3976470073),
    ),
    "leaky": (chain(mn.LeakyReLU(0.1), w_std=1.0), (0.2580830522, 0.4998288391, 0.4822311860, 0.7422637682)),
    "gelu": (chain(mn.GELU(), w_std=1.0), (0.1951173286, 0.2850081490, 0.3951938454, 0.5347051674)),
    "layer norm": (
        mn.Sequential(D, mn.LayerNorm(eps=1e-12), mn.ReLU(), D),
        (0.9093382132, 2.3910976842, 1.6623221199, 3.4539481004),
    ),
    "relu, standard parametrization": (
        mn.Sequential(mn.Dense(64, w_std=R2, b_std=0.1), mn.ReLU(), D),
        (1.0446439107, 2.6157797158, 36.6721139831, 93.1712953687),
    ),
}
"""(NNGP[0, 0], its sum, NTK[0, 0], its sum) of infinite networks on XF1 and XF2 ("one set": only on XF1)."""

IMAGES: dict[str, tuple[mn.Sequential, tuple[float, ...]]] = {
    "same, flatten": (
        mn.Sequential(conv(), mn.ReLU(), conv(), mn.ReLU(), mn.Flatten(), D),
        (0.5215085529, 2.2673001542, 1.2700230734, 4.8306837680),
    ),
    "same, pooled": (
        mn.Sequential(conv(), mn.ReLU(), conv(), mn.ReLU(), mn.GlobalAvgPool(), D),
        (0.2906804653, 1.7569702769, 0.4597652346, 2.8063270879),
    ),
    "valid, pooled": (
        mn.Sequential(conv(padding="valid"), mn.ReLU(), mn.GlobalAvgPool(), D),
        (0.4502505217, 2.7324430648, 0.7092958459, 4.3850853896),
    ),
    "circular, strided, pooled": (
        mn.Sequential(conv(padding="circular", stride=(2, 1)), mn.ReLU(), mn.GlobalAvgPool(), D),
        (0.3803541936, 2.2523596089, 0.4685873764, 2.7943435278),
    ),
    "average pooling, flatten": (
        mn.Sequential(conv(), mn.ReLU(), mn.AvgPool(2), mn.Flatten(), D),
        (0.3246706123, 1.9726207101, 0.4694470738, 2.9375832450),
    ),
    "erf, pooled": (
        mn.Sequential(conv(), mn.Erf(), conv(), mn.Erf(), mn.GlobalAvgPool(), D),
        (0.0298266172, 0.1745712436, 0.0622954390, 0.3602309062),
    ),
}
"""Entries and sums as in VECTORS, for infinite convolutional networks on the images XI1, XI2."""

FLOW = {"train": -0.6057559416, "test": 3.3025667395}
"""Sums of the outputs at time 10 of gradient flow to Y at rate .5, from F0 and F0_TEST. See `dense_erf_dense`.
"""

LARGEST_RATE = {0.0: 2.7075346606, 0.9: 5.1443158552}
"""{momentum: the largest stable learning rate for the NTK of `dense_erf_dense`}.

As in FLOW, neural-tangents' loss is 1/(2 N C) sum (f - y)^2."""

ENSEMBLE: dict[tuple[str, float], tuple[float, dict[tuple[int, int], float]]] = {
    ("ntk", math.inf): (1.2325160378, {(0, 0): 0.0737616482, (0, 1): 0.0227572966}),
    ("nngp", math.inf): (1.3607254162, {(0, 0): 0.0720448892, (0, 1): 0.0212078958}),
    ("ntk", 10): (1.0596232185, {(0, 0): 0.0983664071}),
    ("nngp", 10): (0.8138907892, {(0, 0): 0.2025998610}),
}
"""{(kind, t): (sum of the ensemble's mean on XF2, entries of its covariance)}. The ridge is 1e-3 times the mean
diagonal entry."""

POSTERIOR = {"nngp": (1.3376743620, 0.0804531032), "ntk": (1.2277479829, 0.0740879741)}
"""{kind: (sum of the posterior mean on XF2, entry [0, 0] of the posterior covariance)} with a ridge of 1e-2."""

COOKBOOK: dict[str, list[float]] = {
    "x": [3.0774223804473877, 2.5889432430267334, -2.1970717906951904, -0.19020164012908936, 1.2208225727081299],
    "y": [0.1800888627767563, 0.6537376642227173, -0.7590705156326294, -0.2407708317041397, 1.1107275485992432],
    "nngp": [
        -0.080134322, -0.728119081, -1.062388213, -0.371066377, 0.341895679, 1.162005835, 0.845882973, 0.186017505,
        0.030898872, 0.010625750, 0.036678843, 0.088588052, 0.140384236, 0.012189565, 0.014758268, 0.010937739,
    ],
    "ntk": [
        0.064066951, -0.727060494, -0.991497227, -0.457768269, 0.536732268, 1.159444402, 0.927329422, 0.122007749,
        0.022255128, 0.001674126, 0.045322288, 0.097752324, 0.175535557, 0.008634384, 0.005548638, 0.000517259,
    ],
}  # fmt: skip
"""Values from neural-tangents' cookbook, which draws x and y with JAX.

Each kernel has eight means and then eight standard deviations, given to nine decimals."""

NETWORK = {
    "f": -0.0276197072,
    "ntk[0, 0]": 1.2837512746,
    "ntk": 0.5497907266,
    "full[0, 0, 0, 0]": 1.3323405134,
    "full": 1.3031575014,
    "nngp": 0.0014614571,
    "linearised, moved": 0.2066910175,
    "f, moved": 0.2080647068,
}
"""Entries and sums for Dense(5) with w_std 1.5 and b_std .1, erf, and Dense(2) with 1.2 and .05, on XF1. theta consists
of sines and cosines. "moved": at theta + 0.1."""

CONVOLUTIONAL = {"f": 0.2002681969, "full[0, 0, 0, 0]": 0.0229031781, "full": 0.1918710217}
"""Entries and sums as in NETWORK, for two convolutions with ReLU, GlobalAvgPool and Dense, on the images XI1."""

SOFTPLUS = 1.404383
"""The scale for which E phi(z)^2 = 1 with Softplus(beta=5) and z ~ N(0, 1) (Geiger et al. 2020)."""

IN_CODE = {
    "0.63661977236758134308": 2 / mp.pi,
    "1.27323954473516268615": 4 / mp.pi,
    "9.5367431640625e-7": mp.mpf(2) ** -20,
    "1.7763568394002505e-15": mp.mpf(2) ** -49,
}
"""Constants that the generated C code contains as decimal literals."""


# ------------------------------------------------------------------------- infinite networks, once more


def summary(k: Any, t: Any, rows: slice, columns: slice) -> list[float]:
    blocks = [np.asarray(v)[rows, columns] for v in (k, t)]
    return [float(number) for block in blocks for number in (block[0, 0], block.sum())]


def filled(rows: list[list[Any]]) -> Any:
    """Return a symmetric matrix from its rows, each of which starts at the diagonal."""
    full = np.empty((len(rows), len(rows)), dtype=object)
    for i, row in enumerate(rows):
        full[i, i:] = full[i:, i] = row
    return full


def standard(spec: mn.Sequential, x: Any) -> tuple[Any, Any]:
    """Return (NNGP, NTK) of the network Dense, phi, Dense in the standard parametrization.

    A layer's W contributes fan_in / w_std^2 times its part of the NTK in the NTK parametrization, and b contributes 1.
    """
    one, phi, two = spec.layers
    assert isinstance(one, mn.Dense)
    assert isinstance(two, mn.Dense)
    inner = filled([[mp.fdot(map(mp.mpf, a), map(mp.mpf, b)) for b in x[i:]] for i, a in enumerate(x)])
    k, t = mp.mpf(one.w_std) ** 2 * inner / x.shape[1] + mp.mpf(one.b_std) ** 2, inner + 1
    pairs = [[dual(phi, k[i, i], k[j, j], k[i, j]) for j in range(len(x))] for i in range(len(x))]
    k, slope = (np.array([[pair[side] for pair in row] for row in pairs]) for side in (0, 1))
    w2 = mp.mpf(two.w_std) ** 2
    return w2 * k + mp.mpf(two.b_std) ** 2, w2 * t * slope + one.width * k + 1


def vectors(name: str) -> list[float]:
    spec, x = VECTORS[name][0], np.concatenate([XF1, XF2])
    if "standard" in name:
        k, t = standard(spec, x)
    elif "norm" in name:
        k, t = image_kernels(spec, x)
    else:
        k, t = map(filled, exact_kernels(spec, x))
    return summary(k, t, slice(3), slice(3) if "one set" in name else slice(3, 5))


def images(name: str) -> list[float]:
    return summary(*image_kernels(IMAGES[name][0], np.concatenate([XI1, XI2])), slice(2), slice(2, 5))


# ---------------------------------------------------------------------------- closed forms, once more


def dense_erf_dense() -> tuple[Any, Any]:
    """Return the NNGP and the NTK, (5, 5), of Dense-erf-Dense with w_std 1.5 and b_std .05, on XF1 and XF2."""
    spec = chain(mn.Erf(), w_std=1.5, b_std=0.05)
    k, t = (mp.matrix(filled(rows).tolist()) for rows in exact_kernels(spec, np.concatenate([XF1, XF2])))
    return k, t


def propagator(k: Any, time: Any) -> Any:
    """Return I - exp(-time k)."""
    return mp.eye(k.rows) if time == math.inf else mp.eye(k.rows) - mp.expm(-time * k, method="taylor")


def flows() -> dict[str, float]:
    theta, rate = dense_erf_dense()[1], mp.mpf(10) / 2 / 6  # time 10 at rate .5; the loss has the factor 1/(2 N C)
    moved = propagator(theta[:3, :3], rate) * (mp.matrix(Y.tolist()) - mp.matrix(F0.tolist()))
    train, test = mp.matrix(F0.tolist()) + moved, mp.matrix(F0_TEST.tolist())
    test += theta[3:, :3] * mp.inverse(theta[:3, :3]) * moved
    return {"train": float(sum(train)), "test": float(sum(test))}


def largest_rates() -> dict[float, float]:
    """Return {m: 2 (1 + m) N C / lambda_max}, the largest stable rate for each momentum m."""
    top = max(mp.eigsy(dense_erf_dense()[1][:3, :3], eigvals_only=True))
    return {m: float(2 * (1 + mp.mpf(m)) * 6 / top) for m in LARGEST_RATE}


def gaussian(kind: str, time: Any, ridge: Any, kernels: Any = None, y: Any = Y) -> tuple[Any, Any]:
    """Return the mean and the covariance on the test inputs after training on the first len(y) inputs with targets y.

    A trained network is f_0 + A (y - f_0(X)), where A = K_tx (K + ridge)^-1 (I - exp(-time (K + ridge))).
    """
    nngp, ntk = kernels or dense_erf_dense()
    k, N = ntk if kind == "ntk" else nngp, len(y)
    held = k[:N, :N] + ridge * mp.eye(N)
    A = k[N:, :N] * mp.inverse(held) * propagator(held, time)
    start = nngp[:N, :N] if kind == "ntk" else held  # for the NNGP, the targets include the noise of the ridge
    return A * mp.matrix(y.tolist()), nngp[N:, N:] + A * start * A.T - A * nngp[:N, N:] - (A * nngp[:N, N:]).T


def ensembles(kind: str, t: float) -> list[float]:
    k = dense_erf_dense()[1 if kind == "ntk" else 0]
    ridge = mp.mpf("1e-3") * sum(k[i, i] for i in range(3)) / 3
    mean, cov = gaussian(kind, t if t == math.inf else t * mp.mpf("0.5") / 6, ridge)
    return [float(sum(mean)), *(float(cov[place]) for place in ENSEMBLE[kind, t][1])]


def cookbook(kind: str) -> list[float]:
    """Recompute the means and then the standard deviations in COOKBOOK."""
    spec = chain(mn.Erf(), mn.Erf(), w_std=1.5, b_std=0.05)
    x = np.concatenate([COOKBOOK["x"], np.linspace(-np.pi, np.pi, 50)[::7]])[:, None]
    kernels = [mp.matrix(filled(rows).tolist()) for rows in exact_kernels(spec, x)]
    k = kernels[kind == "ntk"]
    ridge = mp.mpf("1e-4") * sum(k[i, i] for i in range(5)) / 5
    mean, cov = gaussian(kind, math.inf, ridge, kernels, np.array(COOKBOOK["y"])[:, None])
    return [float(m) for m in mean] + [float(mp.sqrt(cov[i, i])) for i in range(8)]


def posteriors(kind: str) -> list[float]:
    mean, cov = gaussian(kind, math.inf, mp.mpf("1e-2"))
    return [float(sum(mean)), float(cov[0, 0])]


# ----------------------------------------------------------------------------- finite networks, once more

Tensors = Sequence[Any]


def dense(x: Any, W: Any, b: Any, w_std: float, b_std: float) -> Any:
    """Return w_std / sqrt(fan_in) x W + b_std b for arrays of mpf."""
    return mp.mpf(w_std) / mp.sqrt(len(W)) * (x @ W) + mp.mpf(b_std) * b


def network(tensors: Tensors) -> Any:
    W, b, V, c = tensors
    return dense(np.vectorize(mp.erf, otypes=[object])(dense(exact(XF1), W, b, 1.5, 0.1)), V, c, 1.2, 0.05)


def convolution(x: Any, W: Any, b: Any, stride: tuple[int, int], padding: str) -> Any:
    """Convolve x : (N, H, W, C) at each output pixel, with fan_in 9 C, w_std 1.5 and b_std .1."""
    down, right = (places(*four) for four in zip(x.shape[1:3], W.shape[:2], stride, (padding, padding)))
    out = np.empty((len(x), len(down), len(right), W.shape[3]), dtype=object)
    for (i, rows), (j, columns) in ((a, b) for a in enumerate(down) for b in enumerate(right)):
        inside = [
            (x[:, r, c], W[p, q]) for p, r in enumerate(rows) for q, c in enumerate(columns) if None not in (r, c)
        ]
        total = sum(pixel @ matrix for pixel, matrix in inside)
        out[:, i, j] = mp.mpf(1.5) / mp.sqrt(9 * x.shape[3]) * total + mp.mpf(0.1) * b
    return out


def convolutional(tensors: Tensors) -> Any:
    W, b, V, c, U, d = tensors
    h = np.maximum(convolution(exact(XI1), W, b, (1, 2), "same"), 0)
    h = np.maximum(convolution(h, V, c, (1, 1), "circular"), 0)
    return dense(h.reshape(2, -1, 4).sum(axis=1) / mp.mpf(h.shape[1] * h.shape[2]), U, d, 1.2, 0.05)


def exact(a: Any) -> Any:
    """Convert an array to an array of mpf without rounding."""
    return np.vectorize(lambda v: mp.mpf(float(v)), otypes=[object])(a)


def jacobian(f: Callable[[Tensors], Any], tensors: Tensors, outputs: Sequence[tuple[int, int]]) -> Any:
    """Return d f[outputs] / d theta, (outputs, P), by central differences accurate to at least half of the digits."""
    h, columns = mp.mpf(10) ** (-DIGITS // 3), []
    for tensor in tensors:
        for place in np.ndindex(tensor.shape):
            ends = []
            for step in (h, -h):
                held, tensor[place] = tensor[place], tensor[place] + step
                ends.append(f(tensors))
                tensor[place] = held
            columns.append([(ends[0][n] - ends[1][n]) / (2 * h) for n in outputs])
    return np.array(columns).T


def waves(*shapes: tuple[Callable[[Any], Any], float, tuple[int, ...]]) -> list[Any]:
    """Return tensors that contain sines or cosines of consecutive integers.

    shapes : (function, first integer, shape) of each tensor.
    """
    return [exact(wave(start + np.arange(float(math.prod(shape)))).reshape(shape)) for wave, start, shape in shapes]


def networks() -> dict[str, float]:
    tensors = waves((np.sin, 0, (4, 5)), (np.cos, 0, (5,)), (np.cos, 0, (5, 2)), (np.sin, 0, (2,)))
    f, places = network(tensors), list(np.ndindex(3, 2))
    J = jacobian(network, tensors, places)
    full = J @ J.T
    ntk = sum(full[c::2, c::2] for c in (0, 1)) / 2
    tenth = mp.mpf(0.1)
    found = {"f": f.sum(), "ntk[0, 0]": ntk[0, 0], "ntk": ntk.sum(), "full[0, 0, 0, 0]": full[0, 0]}
    found |= {"full": full.sum(), "nngp": (f @ f.T).sum() / 2, "linearised, moved": f.sum() + tenth * J.sum()}
    found["f, moved"] = network([tensor + tenth for tensor in tensors]).sum()
    return {name: float(value) for name, value in found.items()}


def convolutionals() -> dict[str, float]:
    tensors = waves(
        (np.sin, 0, (3, 3, 3, 4)), (np.cos, 0, (4,)), (np.sin, 1, (3, 3, 4, 4)), (np.cos, 1, (4,)),
        (np.cos, 0, (4, 2)), (np.sin, 0, (2,)),
    )  # fmt: skip
    J = jacobian(convolutional, tensors, list(np.ndindex(2, 2)))
    full = J @ J.T
    return {"f": float(convolutional(tensors).sum()), "full[0, 0, 0, 0]": float(full[0, 0]), "full": float(full.sum())}


# --------------------------------------------------------------------------------------------- all of them


def softplus_scale() -> float:
    def square(z: Any) -> Any:
        return (mp.log1p(mp.exp(5 * z)) / 5) ** 2 * mp.npdf(z)

    return float(1 / mp.sqrt(mp.quad(square, [-12, -6, -2, 0, 2, 6, 12])))


LIFTED: dict[str, Any] = {
    "tensors": ["0.weight", "0.bias", "3.0.weight", "8.weight", "8.bias", "12.weight", "12.bias", "14.weight"],
    "f": [
        1.139802871718935,
        -2.692842052767689,
        1.040504419928413,
        1.10456625268093,
        -2.597504020360623,
        1.04260731088492,
        1.089451366332171,
        -2.653901833448035,
        1.090807920540752,
        1.125341667067544,
        -2.698450178251023,
        1.054883583087168,
    ],
    "gradients": [
        -0.296522522556199,
        -0.000815644119508288,
        0.582519810887377,
        -0.190561687032414,
        -3.29123684117754e-05,
        0.143647980122992,
        0.276179970014896,
        -0.533409983518862,
    ],
}
"""Outputs and gradients of `images` in tests/kit/lifted.py, computed by torch 2.13.0 in float64."""
LIFTED_MORE: dict[str, Any] = {
    "tensors": ["0.weight", "0.bias", "4.weight", "8.weight", "8.bias", "12.weight", "12.bias", "14.weight", "14.bias"],
    "f": [
        -0.05077444565813227,
        -0.03460629278586302,
        -1.795298457731673,
        -0.06145050702077626,
        0.01630889369610622,
        -1.73765436118968,
        -0.05818851594352559,
        -0.009779746710549153,
        -1.765551422224591,
        -0.01905892790569652,
        -0.0314542466603096,
        -1.750100243241528,
    ],
    "gradients": [
        -0.5631159523668445,
        0.02021231232123006,
        0.1980045585882927,
        -0.03702682531722085,
        -0.09690981170152399,
        -0.04329976543338254,
        -0.1032131549486944,
        1.631037886307593,
        0.4016184489536088,
    ],
}
"""Outputs and gradients of `more_images` in tests/kit/lifted.py, also computed by torch."""


def checks() -> dict[str, tuple[Any, Callable[[], Any], float]]:
    """Return {name: (recorded values, function that recomputes the values, largest allowed difference)}."""
    ten = 5.5e-11  # half a unit of the tenth decimal, plus rounding
    tables: dict[str, tuple[Any, Callable[[], Any]]] = {
        "flow": (FLOW, flows),
        "largest rate": (LARGEST_RATE, largest_rates),
        "network": (NETWORK, networks),
        "convolutional": (CONVOLUTIONAL, convolutionals),
    }
    found: dict[str, tuple[Any, Callable[[], Any], float]] = {
        "softplus": (SOFTPLUS, softplus_scale, 5e-7),
        "in code": ([float(text) for text in IN_CODE], lambda: [float(v) for v in IN_CODE.values()], 0.0),
    }
    found |= {f"vectors: {name}": (VECTORS[name][1], partial(vectors, name), ten) for name in VECTORS}
    found |= {f"images: {name}": (IMAGES[name][1], partial(images, name), ten) for name in IMAGES}
    for (kind, t), (mean, cov) in ENSEMBLE.items():
        found[f"ensemble: {kind}, {t}"] = ([mean, *cov.values()], partial(ensembles, kind, t), ten)
    found |= {f"cookbook: {kind}": (COOKBOOK[kind], partial(cookbook, kind), 6e-10) for kind in ("nngp", "ntk")}
    for kind, numbers in POSTERIOR.items():
        found[f"posterior: {kind}"] = (numbers, partial(posteriors, kind), ten)
    for name, (table, again) in tables.items():
        found[name] = (list(table.values()), partial(values, again), ten)
    return found


def values(again: Callable[[], dict[Any, float]]) -> list[float]:
    return list(again().values())


def apart(name: str) -> tuple[float, float]:
    """Return (largest difference between the recorded and the recomputed values, largest allowed difference)."""
    numbers, again, allowed = checks()[name]
    with mp.workdps(DIGITS):
        return float(np.max(np.abs(np.subtract(numbers, again())))), allowed


if __name__ == "__main__":
    for name in checks():
        distance, allowed = apart(name)
        print(f"{name:40} {distance:8.1e} {'' if distance <= allowed else 'WRONG'}")
