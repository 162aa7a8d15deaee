"""Provide wide networks as scikit-learn estimators and as a Gaussian-process kernel (extra `sklearn`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from math import inf, prod
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
from minintk.validate import number, numbers, times, whole

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
    from sklearn.gaussian_process import kernels as theirs
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError("the estimators need scikit-learn: pip install minintk[sklearn]") from error

ACTIVATIONS: dict[str, s.Activation] = {
    "relu": s.ReLU(), "erf": s.Erf(), "tanh": s.Tanh(), "gelu": s.GELU(), "sin": s.Sin(), "leaky_relu": s.LeakyReLU(),
}  # fmt: skip
"""Names for `activation`, which also accepts any `minintk.spec` activation."""


def network(depth: int, activation: str | s.Activation, w_std: float, b_std: float) -> s.Sequential:
    """Build an MLP with `depth` hidden layers.  Widths are 1, because they do not affect kernels in NTK scaling."""
    depth, w_std, b_std = whole("depth", depth), number("w_std", w_std), number("b_std", b_std, zero=True)
    if not isinstance(activation, s.Activation):
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation expects one of {', '.join(ACTIVATIONS)}, or a layer, got {activation!r}")
        activation = ACTIVATIONS[activation]
    return zoo.mlp(depth, 1, 1, activation=activation, w_std=w_std, b_std=b_std)


RIDGES = 10.0 ** np.arange(-6, 1.25, 0.5)
"""Candidates for ridge="loo", relative to the kernel's mean diagonal.  We use the one with the least left-out error."""
PROBES = 4
"""Number of random-sign vectors z that estimate the trace of a smoother S by E z'S z."""


def _left_out(Y: Host, w: Host, inverse: Callable[[Host], Host], d: Host) -> Host:
    """Return y_i - (r_i - m_i s_i) / d_i, as in `leave_one_out`.   inverse : v -> G^-1 v.   d : (N,), diag G^-1."""
    others = (w @ Y - w[:, None] * Y) / np.maximum(w.sum() - w, 1e-300)[:, None]
    return Y - (inverse(Y) - others * inverse(np.ones((len(Y), 1)))) / d[:, None]


def _best_ridge(k: Host, Y: Host, w: Host, ridges: Host) -> float:
    """Return the candidate that minimises sum_i w_i |left-out error_i|^2, using W^1/2 k W^1/2 = Q diag(lam) Q'."""
    root = np.sqrt(w)[:, None]
    lam, Q = eigh(root * k * root.T, overwrite_a=True, check_finite=False)
    R = root * Q

    def error(ridge: float) -> float:
        gain = 1 / (np.maximum(lam, 0) + ridge)  # G^-1 = R diag(gain) R', G = k + ridge W^-1
        left = _left_out(Y, w, lambda v: R @ (gain[:, None] * (R.T @ v)), np.einsum("ij,ij,j->i", R, R, gain))
        return float(w @ ((Y - left) ** 2).sum(axis=1))

    return float(min(ridges, key=error))


def shares(f: Host) -> Host:
    """Return P(f_k + z_k is the largest), (M, C), for f : (M, C) and z ~ N(0, I).  The cost is O(M C).

    p_k = int phi(t - f_k) prod_{j != k} Phi(t - f_j) dt,    by the trapezoidal rule on one grid t for all k
    """
    top, p = f.max(axis=1, keepdims=True), np.zeros(f.shape)
    for t in np.arange(-9, 9.1, 0.2):
        apart = top + t - f
        below = log_ndtr(apart)
        p += np.exp(below.sum(axis=1, keepdims=True) - below - apart**2 / 2)
    return p / p.sum(axis=1, keepdims=True)


def _best_scale(f: Host, Y: Host, w: Host) -> float:
    """Return the s that minimises -sum_i w_i log p_i(label of i), p = shares(f / s), to within 1 %.

    An example costs O(C), so at most max(100, min(2000, 20,000 / C)) examples are used.  Label smoothing, with the
    total weight of one more example, keeps s away from 0 if f classifies every example correctly.
    """
    some = slice(None, None, -(-len(f) // max(100, min(2000, 20_000 // f.shape[1]))))
    f, w = f[some], w[some]
    target = w[:, None] * (Y[some] + 1 / (w.sum() * Y.shape[1]))

    log_p: Any = lambda log_s: np.log(np.maximum(shares(f / np.exp(log_s)), 1e-300))  # noqa: E731
    found = minimize_scalar(lambda v: -np.sum(target * log_p(v)), bounds=(-7, 5), options={"xatol": 0.01})
    return float(np.exp(found.x))


def _examples(X: Host, image_shape: tuple[int, ...] | None) -> Host:
    """Return X, or its rows reshaped to images; raise ValueError if the number of columns does not match."""
    if image_shape is not None and prod(image_shape) != X.shape[1]:
        raise ValueError(f"image_shape={image_shape} expects {prod(image_shape)} columns in X, got {X.shape[1]}")
    return X if image_shape is None else X.reshape(len(X), *image_shape)


@dataclass(eq=False, repr=False)
class _Network(BaseEstimator):  # type: ignore[misc]
    """Base class of the regressors and the classifiers."""

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
    _flat = False  # True if y has the shape (N,)

    def _fit(self, X: Host, Y: Host, sample_weight: Any) -> None:
        """Centre Y : (N, C), scale it if normalize_y, then factorise the kernel or solve the landmark problem."""
        flat = network(self.depth, self.activation, self.w_std, self.b_std)
        self.kernel_: Kernel = kernel(flat if self.spec is None else self.spec)
        w = _check_sample_weight(sample_weight, X, dtype=X.dtype)
        if (w < 0).any() or not w.any():
            raise ValueError(f"sample_weight expects numbers >= 0, not all 0, got {w.min()} to {w.max()}: drop some")
        kept = (w > 0) | (np.ndim(self.landmarks) > 0)  # landmarks index all examples
        x, Y, w = _examples(X, self.image_shape)[kept], Y[kept], w[kept]
        loo, plain = self.ridge == "loo", bool((w == w[:1]).all())
        factor = float(w[0]) if plain else 1.0  # equal weights multiply the loss, and thus the time
        self._time = float(times(getattr(self, "time", inf))) * number("lr", getattr(self, "lr", 1.0)) * factor
        if self._time != inf and not (plain and self.landmarks is None and not loo):
            raise ValueError(f"sample_weight, landmarks, ridge='loo' expect time=inf, got {self._time}: raise ridge")
        if loo and self.landmarks is not None:
            raise ValueError("ridge='loo' expects landmarks=None, for it needs the factor of the whole kernel")
        size = float(np.average(getattr(self.kernel_.diag(x), self._kind), weights=w)) if loo or self.relative else 1.0
        self.ridge_ = 0.0 if loo else number("ridge, unless 'loo',", self.ridge, zero=True) * size
        self._Y, self._w, self.mean_ = Y, w, np.average(Y, axis=0, weights=w)
        top = np.maximum(abs(Y - self.mean_).max(axis=0), 1e-300)  # so that no square overflows or underflows
        std = top * np.sqrt(np.average(((Y - self.mean_) / top) ** 2, axis=0, weights=w))
        self.std_ = np.where(bool(getattr(self, "normalize_y", False)) & (std > 1e-14 * abs(self.mean_)), std, 1.0)
        y = ((Y - self.mean_) / self.std_).astype(X.dtype)
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
            raise ValueError("return_std and return_cov expect landmarks=None: landmarks approximate the mean alone")
        x = _examples(X.astype(limit.ensemble.x.dtype, copy=False), self.image_shape)
        early: Any = partial(limit.ensemble.predict, t=self._time, kind=self._kind)
        found = (limit.predict if self._time == inf else early)(x, **wanted)
        mean, *spread = found if wanted else (found,)
        return (mean[:, :C] * self.std_ + self.mean_, *spread)

    def leave_one_out(self) -> Host:
        """Predict y at each training example after training on all others to time = inf, (N,) or (N, C).

            y_i - (r_i - m_i s_i) / d_i,   r = G^-1 y,  s = G^-1 1,  d = diag G^-1,  G = k(X, X) + ridge / w

        m_i is the weighted mean of the other targets, and the ridge is `ridge_`.  Inverting `fit`'s factor of G takes
        N^3 / 3 operations.  Omits examples of weight 0.  Raises ValueError for finite time, landmarks or a singular G.
        """
        check_is_fitted(self)
        if self._time != inf or self.landmarks is not None:
            raise ValueError(f"leave_one_out expects landmarks=None, time=inf, got {self.landmarks!r:.9}, {self._time}")
        left = self._without_each()
        return left[:, 0] if self._flat else left

    def _without_each(self) -> Host:
        """Return `leave_one_out`, to time = inf, as (N, C)."""
        if (L := self._limit.factor) is None:
            raise ValueError("leave_one_out expects a kernel + ridge that is not singular: pass a larger ridge")
        half = np.tril(dtrtri(L, lower=1)[0])  # G^-1 = half' half
        return _left_out(self._Y, self._w, partial(cho_solve, (L, True)), np.einsum("ij,ij->j", half, half))

    def _held_out(self) -> tuple[Host, Host, Host]:
        """Return (held-out f, y, w): `leave_one_out`, or generalised cross-validation for the smoother S."""
        limit, ens, N, C = self._limit, self._limit.ensemble, len(self._Y), len(self.mean_)
        if self._time == inf and self.landmarks is None and limit.factor is not None:
            return self._without_each(), self._Y, self._w
        if self.landmarks is not None:
            f, seen = limit.predict(ens.x), np.flatnonzero(self._w)
            rows = seen if np.isin(seen, limit.landmarks).all() else np.setdiff1d(seen, limit.landmarks)
            kept = float((ens.y * (ens.y - f))[rows, C:].mean())
        else:
            f, of = ens.predict(ens.x, self._time, kind=self._kind), ens.dynamics(self._kind).spectrum
            rows, mu = np.arange(N), np.maximum(of.mu, 1e-300)
            kept = float(np.mean((mu - of.lam + of.lam * np.exp(-self._time * mu / N)) / mu))  # 1 - S_ii
            if kept < 1 / N and limit.factor is not None:  # the fit interpolates
                return self._without_each(), self._Y, self._w
        left = self._Y - (self._Y - self.mean_ - f[:, :C]) / max(kept, float(np.finfo(ens.y.dtype).eps) ** 0.5)
        return left[rows], self._Y[rows], self._w[rows]


@dataclass(eq=False, repr=False, kw_only=True)
class _Trained(_Network):
    """Base class of networks that are trained for a given time."""

    time: float = inf
    lr: float = 1.0


@dataclass(eq=False, repr=False, kw_only=True)
class _Regressor(MultiOutputMixin, RegressorMixin, _Network):  # type: ignore[misc]
    normalize_y: bool = False

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit X : (N, d), y : (N,) or (N, C).   sample_weight : (N,), weights of the examples' squared errors."""
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True)
        self._flat = y.ndim == 1
        self._fit(X, np.asarray(y, dtype=np.float64).reshape(len(y), -1), sample_weight)
        return self

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Return means, (M,) or (M, C), and optionally standard deviations, (M[, C]), or covariances, (M, M[, C])."""
        if return_std and return_cov:
            raise ValueError("predict expects return_std or return_cov, got both")
        wanted = {"std": True} if return_std else {"cov": True} if return_cov else {}
        mean, *spread = self._predict(X, **wanted)
        found = mean, *(np.multiply.outer(one, self.std_ ** (1 + return_cov)) for one in spread)  # same for all outputs
        found = tuple(one[..., 0] for one in found) if self._flat else found
        return found if spread else found[0]

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Host:
        """Draw the outputs of n_samples networks of the ensemble, (M, n_samples) or (M, C, n_samples)."""
        mean, cov = self._predict(X, cov=True)
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31, size=4))
        z = rng.multivariate_normal(np.zeros(len(mean)), cov, (mean.shape[1], n_samples), method="eigh")
        draws = mean[:, :, None] + self.std_[:, None] * z.transpose(2, 0, 1)
        return draws[:, 0] if self._flat else draws


@dataclass(eq=False, repr=False)
class NTKRegressor(_Regressor, _Trained):
    """Regression by an ensemble of infinitely wide networks with all layers trained by gradient flow up to `time`.

    spec : a `minintk` spec; by default, a network of `depth` hidden layers with `activation`, w_std and b_std.
    image_shape : (H, W, C), to which each row of X is reshaped, for convolutional specs.
    ridge : penalty on weight changes, in units of mean Theta(x, x) if relative; "loo" minimises leave-one-out error.
    landmarks : their number M or indices, for `solve(by="landmarks")`, at most O(N M) a step; only means are predicted.
    time : lr x steps on L = 1/(2N) sum |f - y|^2, or the number of steps if `lr` is passed; inf for convergence.
    normalize_y : True to divide the centred targets by their standard deviation and to rescale the predictions.

    Standard deviations and covariances are those of f over initialisations, without noise, so they give no prediction
    intervals.  They are proportional to the scale of the prior, not of y, so standardise y or pass normalize_y=True.
    For prediction intervals, use GaussianProcessRegressor(NetworkKernel() + WhiteKernel(), normalize_y=True).

    Attributes: kernel_, the `Kernel`; ridge_, the absolute ridge; mean_ and std_, (C,), the offsets and scales of the
    targets.  With ridge=0 and time=inf, equal rows get the mean of their targets.  Raises UnsupportedLayer if the spec
    has no kernel, and ValueError if rounding hides a singular kernel's limit.  Lee et al. 2019, eqs. (14) to (16).

    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 9)[:, None]
    >>> model = NTKRegressor(activation="erf", b_std=0.5).fit(X, X[:, 0] ** 2)
    >>> mean, std = model.predict([[0.1], [3.0]], return_std=True)
    >>> bool(abs(mean[0] - 0.01) < 0.02), bool(std[0] < std[1] / 10)
    (True, True)
    """


@dataclass(eq=False, repr=False, kw_only=True)
class NNGPRegressor(_Regressor):
    """Bayesian regression with an infinitely wide network at random initialisation as the prior.

    Arguments (except time and lr), attributes and the scale of standard deviations are as in `NTKRegressor`.  ridge :
    the variance of the noise in y (or in the normalised y), relative to the mean of K(x, x) unless relative=False; or
    "loo".  Standard deviations are those of f given the data, without noise.  Lee et al. 2019, eq. (13).
    """

    ridge: float | Literal["loo"] = 1e-3
    _kind: ClassVar[Kind] = "nngp"

    def log_marginal_likelihood(self) -> float:
        """Return log N(y; 0, K + ridge_ / w), the log evidence of `fit`'s centred, scaled y, summed over outputs."""
        check_is_fitted(self)
        if self.landmarks is not None:
            raise ValueError(f"log_marginal_likelihood expects landmarks=None, got {self.landmarks!r:.99}: fit without")
        return self._limit.log_marginal_likelihood()


class _Classifier(ClassifierMixin, _Network):  # type: ignore[misc]
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit X : (N, d) and labels y : (N,) of at least two classes, with sample_weight : (N,)."""
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y expects two classes or more, got one class, {self.classes_.tolist()[0]!r}")
        self._fit(X, np.eye(len(self.classes_))[index], sample_weight)
        self.scale_ = _best_scale(*self._held_out())
        return self

    def predict(self, X: Any) -> Host:
        """Predict the class with the largest mean output, (M,)."""
        (mean,) = self._predict(X)
        return self.classes_[mean.argmax(axis=1)]

    def predict_proba(self, X: Any) -> Host:
        """Return the probability that each class's output is the largest, (M, C): `shares` of the means / scale_."""
        return shares(self._predict(X)[0] / self.scale_)

    def predict_log_proba(self, X: Any) -> Host:
        """Return log max(p, 1e-300), (M, C), where p is `predict_proba`."""
        return np.log(np.maximum(self.predict_proba(X), 1e-300))


class NTKClassifier(_Classifier, _Trained):
    """Classification by an `NTKRegressor` with one 0/1 target per class; takes the same arguments except normalize_y.

    P(class) is the probability that the class's output is the largest, for outputs N(mean, scale_^2 I).  scale_
    minimises the log-loss of held-out means (leave-one-out or generalised cross-validation) for smoothed labels.

    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 41)[:, None]
    >>> model = NTKClassifier(activation="erf", b_std=0.5).fit(X, np.where(abs(X[:, 0]) < 0.6, "near", "far"))
    >>> model.predict([[0.1], [0.9]]).tolist(), bool(model.predict_proba([[0.1]])[0, 1] > 0.9)
    (['near', 'far'], True)
    """


@dataclass(eq=False, repr=False, kw_only=True)
class NNGPClassifier(_Classifier):
    """Classification as in `NTKClassifier`, but by an `NNGPRegressor`; takes the same arguments except normalize_y."""

    ridge: float | Literal["loo"] = 1e-3
    _kind: ClassVar[Kind] = "nngp"


@dataclass(eq=False, repr=False)
class NetworkKernel(theirs.Kernel):  # type: ignore[misc]
    """K ("nngp") or Theta ("ntk") of a wide network, as a kernel of `sklearn.gaussian_process` with derivatives.

    w_std, b_std : factors that multiply all w_std and all b_std of the spec; without a spec, the values for all layers.
    Scikit-learn maximises the evidence over both factors within their bounds, using `Kernel.derivatives`.  A factor is
    not tuned if its bounds are "fixed" or it is 0.  Tune depth and activation by grid search.  Kernels can be combined,
    as in NetworkKernel() + WhiteKernel().  Erf networks have bounded variances: use ConstantKernel() * NetworkKernel().

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
    def hyperparameters(self) -> list[theirs.Hyperparameter]:
        """Return hyperparameters b_std and w_std, whose logarithms are theta; raise ValueError for invalid bounds."""
        found = []
        for name in sorted(PARAMETERS):
            of = numbers(bounds := getattr(self, f"{name}_bounds"))
            if str(bounds) != "fixed" and not (len(of) == 2 and 0 < of[0] <= of[1]):
                raise ValueError(f"{name}_bounds expects 'fixed' or two numbers 0 < low <= high, got {bounds!r}")
            zero = number(name, getattr(self, name), zero=name == "b_std") == 0
            found.append(theirs.Hyperparameter(name, "numeric", "fixed" if zero else bounds))
        return found

    def __repr__(self) -> str:
        """Return the kernel's type and arguments, with scales to three digits, as in scikit-learn's kernels."""
        of = f"depth={self.depth}, activation={self.activation!r}" if self.spec is None else f"spec={self.spec!r}"
        return f"NetworkKernel({of}, w_std={self.w_std:.3g}, b_std={self.b_std:.3g}, kind={self.kind!r})"

    def _kernel(self) -> Kernel:
        check_wanted(self.kind)
        if self.spec is None:
            return kernel(network(self.depth, self.activation, self.w_std, self.b_std))
        return kernel(scaled(scaled(s.as_sequential(self.spec), "w_std", self.w_std), "b_std", self.b_std))

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        """Return k(X, Y), (N, M).  With eval_gradient, also return dk / dlog(s) for each free scale s, (N, N, free)."""
        x, k = _examples(np.atleast_2d(X), self.image_shape), self._kernel()
        K = getattr(k, self.kind)(x, None if Y is None else _examples(np.atleast_2d(Y), self.image_shape))
        if not eval_gradient:
            return K
        if Y is not None:
            raise ValueError("the gradient is of k(X, X) alone: leave Y out")
        d = k.derivatives(x)
        free = [getattr(getattr(d, of.name), self.kind) for of in self.hyperparameters if not of.fixed]
        return K, np.stack(free, axis=-1) if free else K[..., None][..., :0]

    def diag(self, X: Any) -> Host:
        """Return k(x, x), (N,)."""
        return getattr(self._kernel().diag(_examples(np.atleast_2d(X), self.image_shape)), self.kind)

    def is_stationary(self) -> bool:
        """Return False, because k depends on more than x - x'."""
        return False
