"""Wrap infinitely wide networks as scikit-learn estimators, and as a kernel of its Gaussian processes.

They need the extra `sklearn`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from math import inf
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy.linalg import cho_solve, eigh
from scipy.linalg.lapack import dtrtri
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr

from analytic.kernels import Kernel, kernel
from analytic.large.solve import solve
from analytic.training.gp import Kind, check_wanted
from analytic.training.posterior import Posterior, posterior
from analytic.vectors.derivatives import PARAMETERS, scaled
from minintk import spec as s
from minintk.arrays import Host
from minintk.spec import zoo
from minintk.validate import number

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.gaussian_process.kernels import Hyperparameter
    from sklearn.gaussian_process.kernels import Kernel as SklearnKernel
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError("the estimators need scikit-learn: pip install minintk[sklearn]") from error

ACTIVATIONS: dict[str, s.Activation] = {
    "relu": s.ReLU(), "erf": s.Erf(), "tanh": s.Tanh(), "gelu": s.GELU(), "sin": s.Sin(), "leaky_relu": s.LeakyReLU(),
}  # fmt: skip
"""Names for `activation`; any `minintk.spec` activation works too."""


def network(depth: int, activation: str | s.Activation, w_std: float, b_std: float) -> s.Sequential:
    """Build `depth` hidden layers and an output, all with these scales; kernels in NTK scaling ignore widths."""
    if not isinstance(activation, s.Activation):
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation expects one of {', '.join(ACTIVATIONS)}, or a layer, got {activation!r}")
        activation = ACTIVATIONS[activation]
    return zoo.mlp(depth, 1, 1, activation=activation, w_std=w_std, b_std=b_std)


RIDGES = 10.0 ** np.arange(-6, 1.25, 0.5)
"""Candidates of ridge="loo", times the mean of the kernel's diagonal; the least squared leave-one-out error wins."""

PROBES = 4
"""Number of random-sign columns z that estimate the trace of a smoother S by E z'S z."""


def _left_out(Y: Host, w: Host, inverse: Callable[[Host], Host], d: Host) -> Host:
    """y_i - (r_i - m_i s_i) / d_i of `leave_one_out`; inverse : v -> G^-1 v.   d : (N,), the diagonal of G^-1."""
    others = (w @ Y - w[:, None] * Y) / np.maximum(w.sum() - w, 1e-300)[:, None]
    return Y - (inverse(Y) - others * inverse(np.ones((len(Y), 1)))) / d[:, None]


def _best_ridge(k: Host, Y: Host, w: Host, ridges: Host) -> float:
    """Return the ridge with the least sum_i w_i |left-out error_i|^2, from W^1/2 k W^1/2 = Q diag(lam) Q'."""
    root = np.sqrt(w)[:, None]
    lam, Q = eigh(root * k * root.T, overwrite_a=True, check_finite=False)
    R = root * Q

    def error(ridge: float) -> float:
        gain = 1 / (np.maximum(lam, 0) + ridge)  # G^-1 = R diag(gain) R', G = k + ridge W^-1
        left = _left_out(Y, w, lambda v: R @ (gain[:, None] * (R.T @ v)), np.einsum("ij,ij,j->i", R, R, gain))
        return float(w @ ((Y - left) ** 2).sum(axis=1))

    return float(min(ridges, key=error))


def shares(f: Host) -> Host:
    """Return P(f_k + z_k is the largest), (M, C), z ~ N(0, I), for f : (M, C), in O(M C).

    p_k = int phi(t - f_k) prod_{j != k} Phi(t - f_j) dt,    by the trapezoidal rule, one grid t for all k
    """
    top, p = f.max(axis=1, keepdims=True), np.zeros(f.shape)
    for t in np.arange(-9, 9.1, 0.2):
        apart = top + t - f
        below = log_ndtr(apart)
        p += np.exp(below.sum(axis=1, keepdims=True) - below - apart**2 / 2)
    return p / p.sum(axis=1, keepdims=True)


def _best_scale(f: Host, Y: Host, w: Host) -> float:
    """Return the s with the least sum_i w_i -log p_i(label of i), p = shares(f / s), to 1 %.

    At most 2000 of the examples are used, 100 for 200 classes or more: one number needs no more, and each costs C. An
    extra example, with all labels in equal parts, keeps s away from 0 if all of f are right.
    """
    some = slice(None, None, -(-len(f) // max(100, min(2000, 20_000 // f.shape[1]))))
    f, w = f[some], w[some]
    target = w[:, None] * (Y[some] + 1 / (w.sum() * Y.shape[1]))

    log_p: Any = lambda log_s: np.log(np.maximum(shares(f / np.exp(log_s)), 1e-300))  # noqa: E731
    found = minimize_scalar(lambda v: -np.sum(target * log_p(v)), bounds=(-7, 5), options={"xatol": 0.01})
    return float(np.exp(found.x))


def _examples(X: Host, image_shape: tuple[int, ...] | None) -> Host:
    """Return rows, or images of this shape."""
    return X if image_shape is None else X.reshape(len(X), *image_shape)


@dataclass(eq=False, repr=False)
class _Network(BaseEstimator):  # type: ignore[misc]
    """Base class of all estimators."""

    spec: s.Layer | None = None
    _: KW_ONLY
    depth: int = 2
    activation: str | s.Activation = "relu"
    w_std: float = 2**0.5
    b_std: float = 0.1
    image_shape: tuple[int, ...] | None = None
    ridge: float | Literal["loo"] = 1e-4
    relative: bool = True
    landmarks: Any = None
    _kind: ClassVar[Kind] = "ntk"

    def _fit(self, X: Host, Y: Host, sample_weight: Any) -> None:
        """Centre Y : (N, C), then factorise the kernel, or solve on landmarks."""
        flat = network(self.depth, self.activation, self.w_std, self.b_std)
        self.kernel_: Kernel = kernel(flat if self.spec is None else self.spec)
        self._time = getattr(self, "time", inf) * number("lr", getattr(self, "lr", 1.0))
        w = _check_sample_weight(sample_weight, X, dtype=X.dtype)
        if (w < 0).any() or not w.any():
            raise ValueError(f"sample_weight expects numbers >= 0, not all 0, got {w.min()} to {w.max()}: drop some")
        x, Y, w = _examples(X, self.image_shape)[w > 0], Y[w > 0], w[w > 0]
        loo, plain = self.ridge == "loo", bool((w == w[:1]).all())
        if self._time != inf and not (plain and self.landmarks is None and not loo):
            what = "sample_weight, landmarks and ridge='loo' expect time=inf"
            raise ValueError(f"{what}, got time={self._time}: pass a larger ridge in place of a time")
        if loo and self.landmarks is not None:
            raise ValueError("ridge='loo' expects landmarks=None, for it needs the factor of the whole kernel")
        size = float(np.average(getattr(self.kernel_.diag(x), self._kind), weights=w)) if loo or self.relative else 1.0
        self.ridge_ = 0.0 if loo else number("ridge", self.ridge, zero=True) * size
        self._Y, self._w, self.mean_ = Y, w, np.average(Y, axis=0, weights=w)
        y = (Y - self.mean_).astype(X.dtype)
        if self.landmarks is not None:
            y = np.hstack([y, np.random.default_rng(0).choice([-1.0, 1.0], (len(y), PROBES)).astype(X.dtype)])
            how: Any = {"kind": self._kind, "landmarks": self.landmarks, "weight": w, "tol": 1e-6}
            self._limit: Any = solve(self.kernel_, x, y, ridge=self.ridge_, by="landmarks", **how)
            return
        noise = self.ridge_ / w
        self._limit = posterior(self.kernel_, x, y, ridge=float(noise[0]) if plain else noise, kind=self._kind)
        if loo:
            self._limit.ensemble.check_memory(self._kind, 0, None)
            k = self._limit.ensemble.block(self._kind)
            self.ridge_ = _best_ridge(k, Y, w, RIDGES * size)
            noise = self.ridge_ / w
            chosen = replace(self._limit.ensemble, ridge=float(noise[0]))
            chosen._train[self._kind] = k
            self._limit = Posterior(chosen, self._kind, None if plain else noise)
        if self._time != inf or self._limit.factor is None:
            self._limit.ensemble.dynamics(self._kind)

    def _predict(self, X: Any, **wanted: bool) -> Any:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        limit, C = self._limit, len(self.mean_)
        if wanted and self.landmarks is not None:
            raise ValueError("a spread expects landmarks=None: landmarks approximate the mean alone")
        x = _examples(X.astype(limit.ensemble.x.dtype, copy=False), self.image_shape)
        early: Any = partial(limit.ensemble.predict, t=self._time, kind=self._kind)
        found = (limit.predict if self._time == inf else early)(x, **wanted)
        mean, *spread = found if wanted else (found,)
        return (mean[:, :C] + self.mean_, *spread)

    def leave_one_out(self) -> Host:
        """Predict each training example by the network trained on all other examples, (N, C), for time = inf.

            y_i - (r_i - m_i s_i) / d_i,   r = G^-1 y,  s = G^-1 1,  d = diag G^-1,  G = k(X, X) + ridge / w

        m_i : the mean target of the other examples.  It costs one factorisation and N^3 / 3, with the ridge of the
        whole set. Examples of weight 0 are left out.  ValueError for another time, for landmarks, and if G is singular.
        """
        check_is_fitted(self)
        if self._time != inf or self.landmarks is not None:
            raise ValueError(f"leave_one_out expects no landmarks and time=inf, got {self._time}")
        if (L := self._limit.factor) is None:
            raise ValueError("leave_one_out expects a kernel + ridge that is not singular: pass a larger ridge")
        half = np.tril(dtrtri(L, lower=1)[0])  # G^-1 = half' half
        return _left_out(self._Y, self._w, partial(cho_solve, (L, True)), np.einsum("ij,ij->j", half, half))

    def _held_out(self) -> tuple[Host, Host, Host]:
        """Return (`leave_one_out`, y, w); for a smoother S, generalised cross-validation, y - (y - S y) / (1 - h).

        h : the mean of S_ii.  With landmarks, the mean is over the examples that are not landmarks, if there are any.
        """
        limit, ens, N, C = self._limit, self._limit.ensemble, len(self._Y), len(self.mean_)
        if self._time == inf and self.landmarks is None and limit.factor is not None:
            return self.leave_one_out(), self._Y, self._w
        if self.landmarks is not None:
            f = limit.predict(ens.x)
            rows = np.setdiff1d(np.arange(N), limit.landmarks) if len(limit.landmarks) < N else np.arange(N)
            h = float((ens.y * f)[rows, C:].mean())
        else:
            f, of = ens.predict(ens.x, self._time, kind=self._kind), ens.dynamics(self._kind).spectrum
            rows, mu = np.arange(N), np.maximum(of.mu, 1e-300)
            h = float(np.mean(of.lam / mu * -np.expm1(-self._time * mu / N)))
        left = self._Y - (self._Y - self.mean_ - f[:, :C]) / max(1 - h, 1 / N)
        return left[rows], self._Y[rows], self._w[rows]


@dataclass(eq=False, repr=False)
class _Trained(_Network):
    """Networks trained up to a given time."""

    time: float = inf
    lr: float = 1.0


class _Regressor(RegressorMixin, _Network):  # type: ignore[misc]
    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit X : (N, d), y : (N,) or (N, C), with sample_weight : (N,) for each example's squared error."""
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True)
        self._flat = y.ndim == 1
        self._fit(X, np.asarray(y, dtype=np.float64).reshape(len(y), -1), sample_weight)
        return self

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Return the mean (M,) or (M, C); also its standard deviation, in O(M N) memory, or covariance (M, M[, C])."""
        if return_std and return_cov:
            raise ValueError("predict expects return_std or return_cov, got both")
        wanted = {"std": True} if return_std else {"cov": True} if return_cov else {}
        mean, *spread = self._predict(X, **wanted)
        if not self._flat:  # all outputs have the same spread
            return (mean, *(np.stack([s] * mean.shape[1], axis=-1) for s in spread)) if spread else mean
        return (mean[:, 0], *spread) if spread else mean[:, 0]

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Host:
        """Draw outputs of n_samples networks of the ensemble, (M, n_samples), or (M, C, n_samples)."""
        mean, cov = self._predict(X, cov=True)
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31, size=4))
        draws = np.stack([rng.multivariate_normal(m, cov, n_samples, method="eigh").T for m in mean.T], axis=1)
        return draws[:, 0] if self._flat else draws


class NTKRegressor(_Regressor, _Trained):
    """The ensemble of infinitely wide networks, all layers trained by gradient flow on squared error up to a time.

    spec : a `minintk` spec; or, without one, `depth` hidden layers with `activation`, w_std and b_std, for grids.
    image_shape : (H, W, C), the shape of a row of X, for convolutional specs.
    ridge : pull towards the initial weights; relative to the mean of Theta(x, x) unless relative=False; or "loo".
    landmarks : a number of examples, or their indices, for `solve(by="landmarks")`: O(N M) work, only the mean.
    time : lr x steps on L = 1/(2N) sum |f - y|^2 if lr = 1, steps if lr is the network's own; inf: trained to the end.
    Targets are centred by their mean.  UnsupportedLayer for a spec without a kernel, ValueError for a singular kernel.
    Lee et al. 2019, eqs. (14) to (16).

    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 9)[:, None]
    >>> model = NTKRegressor(activation="erf", b_std=0.5).fit(X, X[:, 0] ** 2)
    >>> mean, std = model.predict([[0.1], [3.0]], return_std=True)
    >>> bool(abs(mean[0] - 0.01) < 0.02), bool(std[0] < std[1] / 10)
    (True, True)
    """


@dataclass(eq=False, repr=False)
class NNGPRegressor(_Regressor):
    """Bayesian regression with the prior of an infinitely wide network at random initialisation.

    spec, depth, activation, w_std, b_std, image_shape : as in `NTKRegressor`.  ridge : the variance of the noise in y,
    relative to the mean of K(x, x) unless relative=False; the spread is that of f, without noise.  Lee et al. 2019,
    eq. (13).
    """

    _: KW_ONLY
    ridge: float = 1e-3
    _kind: ClassVar[Kind] = "nngp"

    def log_marginal_likelihood(self) -> float:
        """Return log N(y; 0, K + ridge I) of the centred targets, summed over outputs."""
        check_is_fitted(self)
        return self._limit.log_marginal_likelihood()


class _Classifier(ClassifierMixin, _Network):  # type: ignore[misc]
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit X : (N, d), y : (N,), labels of two classes or more, sample_weight : (N,)."""
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y expects two classes or more, got one class, {self.classes_[0]!r}")
        self._fit(X, np.eye(len(self.classes_))[index], sample_weight)
        self.scale_ = _best_scale(*self._held_out())
        return self

    def predict(self, X: Any) -> Host:
        """Predict the class with the largest mean output, (M,)."""
        (mean,) = self._predict(X)
        return self.classes_[mean.argmax(axis=1)]

    def predict_proba(self, X: Any) -> Host:
        """Return P(class k's output is the largest), (M, C): `shares` of the means / scale_."""
        (mean,) = self._predict(X)
        return shares(mean / self.scale_)

    def predict_log_proba(self, X: Any) -> Host:
        """Return log `predict_proba`, (M, C), at least log 1e-300."""
        return np.log(np.maximum(self.predict_proba(X), 1e-300))


class NTKClassifier(_Classifier, _Trained):
    """`NTKRegressor` on one column per class, 1 for its examples and 0 for others; arguments as there.

    A class's probability is that of its output being the largest of N(mean, scale_^2 I); scale_ minimises the log-loss
    on the leave-one-out means (with landmarks or a finite time, those of generalised cross-validation).

    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 41)[:, None]
    >>> model = NTKClassifier(activation="erf", b_std=0.5).fit(X, np.where(abs(X[:, 0]) < 0.6, "near", "far"))
    >>> model.predict([[0.1], [0.9]]).tolist(), bool(model.predict_proba([[0.1]])[0, 1] > 0.9)
    (['near', 'far'], True)
    """


@dataclass(eq=False, repr=False)
class NNGPClassifier(_Classifier):
    """`NTKClassifier` on the mean of `NNGPRegressor`; arguments as there."""

    _: KW_ONLY
    ridge: float | Literal["loo"] = 1e-3
    _kind: ClassVar[Kind] = "nngp"


@dataclass(eq=False, repr=False)
class NetworkKernel(SklearnKernel):  # type: ignore[misc]
    """K ("nngp") or Theta ("ntk") of a wide network as a kernel of `sklearn.gaussian_process`, with derivatives.

    w_std, b_std : factors of all w_std and b_std of the spec; without a spec, the scales of `depth` hidden layers.
    Both are fitted by the evidence within their bounds ("fixed" keeps one), by derivatives (`Kernel.derivatives`);
    search depth and activation by a grid.  Combine it like scikit-learn's own kernels: NetworkKernel() + WhiteKernel().

    >>> import numpy as np
    >>> from sklearn.gaussian_process import GaussianProcessRegressor
    >>> X = np.linspace(-2, 2, 20)[:, None]
    >>> model = GaussianProcessRegressor(NetworkKernel(activation="erf"), alpha=1e-4).fit(X, np.sin(2 * X[:, 0]))
    >>> bool(model.score(X, np.sin(2 * X[:, 0])) > 0.999)
    True
    """

    spec: s.Layer | None = None
    _: KW_ONLY
    depth: int = 2
    activation: str | s.Activation = "relu"
    w_std: float = 1.0
    b_std: float = 1.0
    w_std_bounds: Any = (1e-2, 1e2)
    b_std_bounds: Any = (1e-3, 1e2)
    image_shape: tuple[int, ...] | None = None
    kind: str = "nngp"

    @property
    def hyperparameters(self) -> list[Hyperparameter]:
        """Return the factors whose logarithms are theta, in alphabetical order."""
        return [Hyperparameter(name, "numeric", getattr(self, f"{name}_bounds")) for name in sorted(PARAMETERS)]

    def _kernel(self) -> Kernel:
        check_wanted(self.kind)
        base = network(self.depth, self.activation, 1.0, 1.0) if self.spec is None else self.spec
        return kernel(scaled(scaled(base, "w_std", self.w_std), "b_std", self.b_std))

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        """Return k(X, Y), (N, M); with eval_gradient, Y = None, also d/d log w_std, d/d log b_std, (N, N, free)."""
        x, k = _examples(np.atleast_2d(X), self.image_shape), self._kernel()
        K = getattr(k, self.kind)(x, None if Y is None else _examples(np.atleast_2d(Y), self.image_shape))
        if not eval_gradient:
            return K
        if Y is not None:
            raise ValueError("the gradient is of k(X, X) alone: leave Y out")
        d = k.derivatives(x)
        free = [getattr(getattr(d, of.name), self.kind) for of in self.hyperparameters if not of.fixed]
        return K, np.stack(free, axis=-1) if free else K[..., :0]

    def diag(self, X: Any) -> Host:
        """Return k(x, x), (N,)."""
        return getattr(self._kernel().diag(_examples(np.atleast_2d(X), self.image_shape)), self.kind)

    def is_stationary(self) -> bool:
        """Return False: k depends on more than x - x'."""
        return False
