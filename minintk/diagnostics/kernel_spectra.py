"""The spectrum of a kernel, and pictures of its Gram matrix.

k : ([E], N, M), or a full kernel ([E], N, C, M, C), whose Gram matrix is (N C, M C).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minintk.arrays import Array, array_namespace, check_finite, check_floating, to_host, to_library


def as_matrix(k: Array) -> Array:
    """The Gram matrix: ([E], N, M) unchanged, ([E], N, C, M, C) as ([E], N C, M C)."""
    check_floating("k", k)
    check_finite("k", k)
    if k.ndim not in (2, 3, 4, 5) or 0 in k.shape:
        raise ValueError(f"k expects shape ([E], N, M) or ([E], N, C, M, C), not empty, got {tuple(k.shape)}")
    if k.ndim < 4:
        return k
    N, C, M, D = k.shape[-4:]
    return k.reshape((*k.shape[:-4], N * C, M * D))


def singular_values(k: Array) -> Array:
    """sigma : ([E], min(N, M)), descending; for a positive semidefinite kernel these are its eigenvalues.

    >>> singular_values(np.diag([1.0, 3.0])).tolist()
    [3.0, 1.0]
    """
    return array_namespace(k).linalg.svdvals(as_matrix(k))


def effective_rank(k: Array) -> Array:
    """exp(H(p)), p = sigma / sum sigma, H the entropy: () or (E,), between 1 and min(N, M)   (Roy and Vetterli 2007).

    n equal singular values give n.  For J J', sigma are the squared singular values of the Jacobian; compare Samarin et
    al. 2020, figure 6.  ValueError for a zero matrix.

    >>> round(float(effective_rank(np.diag([5.0, 5.0, 5.0, 0.0]))), 12)
    3.0
    """
    xp, sigma = array_namespace(k), singular_values(k)
    total = xp.sum(sigma, axis=-1, keepdims=True)
    if not bool(xp.all(total > 0)):
        raise ValueError("effective_rank expects a matrix that is not zero")
    p = sigma / total
    log_p = xp.log(xp.where(p > 0, p, xp.ones_like(p)))  # 0 log 0 = 0
    return xp.exp(-xp.sum(p * log_p, axis=-1))


def condition_number(k: Array) -> Array:
    """sigma_max / sigma_min, () or (E,); inf if sigma_min is at most the rounding error max(N, M) eps sigma_max.

    >>> float(condition_number(np.diag([8.0, 2.0])))
    4.0
    """
    xp, sigma = array_namespace(k), singular_values(k)
    top, low = sigma[..., 0], sigma[..., -1]
    lost = low <= max(as_matrix(k).shape[-2:]) * float(xp.finfo(sigma.dtype).eps) * top
    return xp.where(lost, xp.full_like(low, float("inf")), top / xp.where(lost, xp.ones_like(low), low))


def gram_picture(k: Array, labels: Array) -> tuple[Array, np.ndarray[Any, Any]]:
    """(k : (N, N) with rows and columns sorted by class, the positions where classes begin and end : (classes + 1,)).

    labels : (N,), whole numbers.  Order is kept within a class.  A network that has learned its classes shows bright
    blocks on the diagonal.

    >>> picture, boundaries = gram_picture(np.arange(9.0).reshape(3, 3), np.array([1, 0, 1]))
    >>> picture.tolist(), boundaries.tolist()
    ([[4.0, 3.0, 5.0], [1.0, 0.0, 2.0], [7.0, 6.0, 8.0]], [0, 1, 3])
    """
    check_floating("k", k)
    here = to_host(labels)
    if k.ndim != 2 or k.shape[0] != k.shape[1] or here.shape != k.shape[:1] or here.dtype.kind not in "iu":
        raise ValueError(
            f"gram_picture expects k (N, N) and whole labels (N,), got {tuple(k.shape)}, {here.dtype} {here.shape}"
        )
    order = np.argsort(here, kind="stable")
    boundaries = np.concatenate([[0], np.cumsum(np.unique(here, return_counts=True)[1])])
    at = to_library(order, array_namespace(k))
    return k[at][:, at], boundaries


def draw_gram(k: Array, labels: Array, axes: Any) -> None:
    """Draw `gram_picture` on matplotlib's `axes`, with lines between classes; the darkest colour is 0 or the minimum.

    >>> import matplotlib.figure
    >>> axes = matplotlib.figure.Figure().add_subplot()
    >>> draw_gram(np.eye(4), np.array([0, 0, 1, 1]), axes)
    >>> len(axes.images), len(axes.lines)
    (1, 2)
    """
    picture, boundaries = gram_picture(k, labels)
    host = to_host(picture)
    axes.imshow(host, vmin=min(0.0, float(host.min())), interpolation="nearest")
    for boundary in boundaries[1:-1]:
        axes.axhline(boundary - 0.5, color="white", linewidth=0.5)
        axes.axvline(boundary - 0.5, color="white", linewidth=0.5)
