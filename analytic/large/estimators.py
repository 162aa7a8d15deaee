"""Infinitely wide networks as scikit-learn's estimators, and as a kernel of its Gaussian processes.

Needs the extra `sklearn`.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from math import inf
from typing import Any, ClassVar, Self

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.linalg import cho_solve
from scipy.special import ndtr

from analytic.kernels import Kernel, kernel
from analytic.training.gp import Kind, check_wanted
from analytic.training.posterior import posterior
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
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError("the estimators need scikit-learn: pip install minintk[sklearn]") from error

ACTIVATIONS: dict[str, s.Activation] = {
    "relu": s.ReLU(), "erf": s.Erf(), "tanh": s.Tanh(), "gelu": s.GELU(), "sin": s.Sin(), "leaky_relu": s.LeakyReLU(),
}  # fmt: skip
"""What `activation` may be by name; any `minintk.spec` activation works too."""


def network(depth: int, activation: str | s.Activation, w_std: float, b_std: float) -> s.Sequential:
    """`depth` hidden layers and an output, all with these scales; kernels in NTK scaling know no widths."""
    if not isinstance(activation, s.Activation):
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation expects one of {', '.join(ACTIVATIONS)}, or a layer, got {activation!r}")
        activation = ACTIVATIONS[activation]
    return zoo.mlp(depth, 1, 1, activation=activation, w_std=w_std, b_std=b_std)


def _examples(X: Host, image_shape: tuple[int, ...] | None) -> Host:
    """Rows, or images of this shape."""
    return X if image_shape is None else X.reshape(len(X), *image_shape)


@dataclass(eq=False, repr=False)
class _Network(BaseEstimator):  # type: ignore[misc]
    """What all estimators share."""

    spec: s.Layer | None = None
    _: KW_ONLY
    depth: int = 2
    activation: str | s.Activation = "relu"
    w_std: float = 2**0.5
    b_std: float = 0.1
    image_shape: tuple[int, ...] | None = None
    ridge: float = 1e-4
    relative: bool = True
    _kind: ClassVar[Kind] = "ntk"

    def _fit(self, X: Host, Y: Host) -> None:
        """Y : (N, C)."""
        flat = network(self.depth, self.activation, self.w_std, self.b_std)
        self.kernel_: Kernel = kernel(flat if self.spec is None else self.spec)
        x = _examples(X, self.image_shape)
        diagonal = self.kernel_.diag(x)
        size = float(np.mean(diagonal.ntk if self._kind == "ntk" else diagonal.nngp)) if self.relative else 1.0
        self.ridge_ = self.ridge * size
        self.mean_ = Y.mean(axis=0)
        self._time = getattr(self, "time", inf) * number("lr", getattr(self, "lr", 1.0))
        y = (Y - self.mean_).astype(X.dtype)
        self._limit = posterior(self.kernel_, x, y, ridge=self.ridge_, kind=self._kind)

    def _predict(self, X: Any, **wanted: bool) -> Any:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        limit = self._limit
        x = _examples(X.astype(limit.ensemble.x.dtype, copy=False), self.image_shape)
        early: Any = partial(limit.ensemble.predict, t=self._time, kind=self._kind)
        found = (limit.predict if self._time == inf else early)(x, **wanted)
        mean, *spread = found if wanted else (found,)
        return (mean + self.mean_, *spread)

    def leave_one_out(self) -> Host:
        """What the network, trained on all examples but the i-th, says of the i-th, (N, C), for time = inf.

            y_i - (r_i - m_i s_i) / d_i,   r = G^-1 y,  s = G^-1 1,  d = diag G^-1,  G = k(X, X) + ridge I

        m_i : the mean target of the others.  From one factorisation, with the ridge of the whole set.  ValueError for
        another time, and where G is singular.
        """
        check_is_fitted(self)
        if self._time != inf:
            raise ValueError(f"leave_one_out expects time=inf, got {self._time}")
        if (L := self._limit.factor) is None:
            raise ValueError("leave_one_out expects a kernel + ridge that is not singular: pass a larger ridge")
        y = self._limit.ensemble.y + self.mean_
        N = len(y)
        inverse = cho_solve((L, True), np.eye(N))
        others = (y.sum(axis=0) - y) / max(N - 1, 1)
        return y - (inverse @ y - others * inverse.sum(axis=1)[:, None]) / np.diagonal(inverse)[:, None]


@dataclass(eq=False, repr=False)
class _Trained(_Network):
    """Networks trained to a time."""

    time: float = inf
    lr: float = 1.0


class _Regressor(RegressorMixin, _Network):  # type: ignore[misc]
    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """X : (N, d), y : (N,) or (N, C)."""
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True)
        self._flat = y.ndim == 1
        self._fit(X, np.asarray(y, dtype=np.float64).reshape(len(y), -1))
        return self

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Mean (M,) or (M, C); with its standard deviation (M,), in O(M N) memory, or its covariance (M, M)."""
        if return_std and return_cov:
            raise ValueError("predict expects return_std or return_cov, got both")
        wanted = {"std": True} if return_std else {"cov": True} if return_cov else {}
        mean, *spread = self._predict(X, **wanted)
        mean = mean[:, 0] if self._flat else mean
        return (mean, *spread) if spread else mean

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Host:
        """Outputs of n_samples networks of the ensemble, (M, n_samples), or (M, C, n_samples)."""
        mean, cov = self._predict(X, cov=True)
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31, size=4))
        draws = np.stack([rng.multivariate_normal(m, cov, n_samples, method="eigh").T for m in mean.T], axis=1)
        return draws[:, 0] if self._flat else draws


class NTKRegressor(_Regressor, _Trained):
    """The ensemble of infinitely wide networks, all layers trained by gradient flow on squared error to a time.

    spec : a `minintk` spec; or, without one, `depth` hidden layers with `activation`, w_std and b_std, for grids.
    image_shape : (H, W, C), the shape of a row of X, for convolutional specs.
    ridge : pull towards the initial weights; relative to the mean of Theta(x, x) unless relative=False.
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
        """log N(y; 0, K + ridge I) of the centred targets, summed over outputs."""
        check_is_fitted(self)
        return self._limit.log_marginal_likelihood()


class NTKClassifier(ClassifierMixin, _Trained):  # type: ignore[misc]
    """`NTKRegressor` on one column for each class, 1 for its examples and 0 for others; arguments as there.

    A class's probability is the share of the trained ensemble's networks whose largest output it is: outputs are
    Gaussian with the ensemble's mean, its variance + ridge, independent across classes.

    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 9)[:, None]
    >>> model = NTKClassifier(activation="erf", b_std=0.5).fit(X, np.where(abs(X[:, 0]) < 0.6, "near", "far"))
    >>> model.predict([[0.1], [0.9]]).tolist(), bool(model.predict_proba([[0.1]])[0, 1] > 0.9)
    (['near', 'far'], True)
    """

    def fit(self, X: Any, y: Any) -> Self:
        """X : (N, d), y : (N,), labels of two classes or more."""
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y expects two classes or more, got one class, {self.classes_[0]!r}")
        self._fit(X, np.eye(len(self.classes_))[index])
        return self

    def predict(self, X: Any) -> Host:
        """The class of the largest mean output, (M,)."""
        (mean,) = self._predict(X)
        return self.classes_[mean.argmax(axis=1)]

    def predict_proba(self, X: Any) -> Host:
        """P(class k's output is the largest), (M, C): E_z prod_j Phi(z + f_k - f_j), z ~ N(0, 1), f = mu / sigma.

        sigma^2 : the ensemble's variance + ridge, the noise that its labels are taken to have.
        """
        mean, std = self._predict(X, std=True)
        f = mean / np.sqrt(std**2 + max(self.ridge_, np.finfo(np.float32).eps))[:, None]
        apart, own = f[:, :, None] - f[:, None, :], np.arange(f.shape[1])
        z, weights = hermegauss(64)
        p = np.zeros(f.shape)
        for at, weight in zip(z, weights / weights.sum()):
            beats = ndtr(at + apart)  # (M, k, j)
            beats[:, own, own] = 1.0
            p += weight * beats.prod(axis=2)
        return p / p.sum(axis=1, keepdims=True)


@dataclass(eq=False, repr=False)
class NetworkKernel(SklearnKernel):  # type: ignore[misc]
    """K ("nngp") or Theta ("ntk") of a wide network as a kernel of `sklearn.gaussian_process`, with derivatives.

    w_std, b_std : factors of all w_std and b_std of the spec; without a spec, the scales of `depth` hidden layers.
    Both are fitted by the evidence within their bounds ("fixed" to leave one), by derivatives in closed form
    (`Kernel.derivatives`); depth and activation are choices for a grid.  Combine it as scikit-learn's own kernels are:
    NetworkKernel() + WhiteKernel().

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
    def hyperparameter_w_std(self) -> Hyperparameter:
        """The factor of the weights, in logarithms."""
        return Hyperparameter("w_std", "numeric", self.w_std_bounds)

    @property
    def hyperparameter_b_std(self) -> Hyperparameter:
        """The factor of the biases, in logarithms."""
        return Hyperparameter("b_std", "numeric", self.b_std_bounds)

    def _kernel(self) -> Kernel:
        check_wanted(self.kind)
        base = network(self.depth, self.activation, 1.0, 1.0) if self.spec is None else self.spec
        return kernel(scaled(scaled(base, "w_std", self.w_std), "b_std", self.b_std))

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        """k(X, Y), (N, M); with eval_gradient, for Y = None, its derivatives in log w_std, log b_std, (N, N, free)."""
        x, k = _examples(np.atleast_2d(X), self.image_shape), self._kernel()
        K = getattr(k, self.kind)(x, None if Y is None else _examples(np.atleast_2d(Y), self.image_shape))
        if not eval_gradient:
            return K
        if Y is not None:
            raise ValueError("the gradient is of k(X, X) alone: leave Y out")
        d = k.derivatives(x)
        free = [name for name in PARAMETERS if not getattr(self, f"hyperparameter_{name}").fixed]
        order = sorted(free)  # as theta: the names in alphabetical order
        return K, np.stack([getattr(getattr(d, name), self.kind) for name in order], axis=-1) if free else K[..., :0]

    def diag(self, X: Any) -> Host:
        """k(x, x), (N,)."""
        return getattr(self._kernel().diag(_examples(np.atleast_2d(X), self.image_shape)), self.kind)

    def is_stationary(self) -> bool:
        """No: k depends on more than x - x'."""
        return False
