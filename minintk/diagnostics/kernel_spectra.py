"""The effective rank of a kernel, and a picture of its Gram matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from minintk.arrays import Array, array_namespace, check_finite, check_floating, to_host


def effective_rank(k: Array) -> Array:
    """exp(H(p)), p = sigma / sum sigma, H the entropy: () or (E,), between 1 and min(N, M)   (Roy and Vetterli 2007).

    k : ([E], N, M), or a full kernel ([E], N, C, M, C), whose Gram matrix is (N C, M C); sigma its singular values.
    n equal ones give n.  For J J', sigma are the squared singular values of the Jacobian; compare Samarin et
    al. 2020, figure 6.  ValueError for a zero matrix.

    >>> round(float(effective_rank(np.diag([5.0, 5.0, 5.0, 0.0]))), 12)
    3.0
    """
    check_floating("k", k)
    check_finite("k", k)
    if k.ndim not in (2, 3, 4, 5) or 0 in k.shape:
        raise ValueError(f"k expects shape ([E], N, M) or ([E], N, C, M, C), not empty, got {tuple(k.shape)}")
    if k.ndim > 3:
        k = k.reshape((*k.shape[:-4], k.shape[-4] * k.shape[-3], k.shape[-2] * k.shape[-1]))
    xp = array_namespace(k)
    sigma = xp.linalg.svdvals(k)
    total = xp.sum(sigma, axis=-1, keepdims=True)
    if not bool(xp.all(total > 0)):
        raise ValueError("effective_rank expects a matrix that is not zero")
    p = sigma / total
    log_p = xp.log(xp.where(p > 0, p, xp.ones_like(p)))  # 0 log 0 = 0
    return xp.exp(-xp.sum(p * log_p, axis=-1))


def draw_gram(k: Array, labels: Array, axes: Any) -> None:
    """Draw k : (N, N) on matplotlib's `axes`, its examples sorted by class, with lines between classes.

    labels : (N,), whole numbers.  Order is kept within a class; the darkest colour is 0 or the minimum.  A network that
    has learned its classes shows bright blocks on the diagonal.  ValueError for other shapes.

    >>> import matplotlib.figure
    >>> axes = matplotlib.figure.Figure().add_subplot()
    >>> draw_gram(np.eye(4), np.array([0, 0, 1, 1]), axes)
    >>> len(axes.images), len(axes.lines)
    (1, 2)
    """
    check_floating("k", k)
    host, classes = to_host(k), to_host(labels)
    if k.ndim != 2 or k.shape[0] != k.shape[1] or classes.shape != k.shape[:1] or classes.dtype.kind not in "iu":
        said = f"{tuple(k.shape)}, {classes.dtype} {classes.shape}"
        raise ValueError(f"draw_gram expects k (N, N) and whole labels (N,), got {said}")
    order = np.argsort(classes, kind="stable")
    axes.imshow(host[np.ix_(order, order)], vmin=min(0.0, float(host.min())), interpolation="nearest")
    for boundary in np.cumsum(np.unique(classes, return_counts=True)[1])[:-1]:
        axes.axhline(boundary - 0.5, color="white", linewidth=0.5)
        axes.axvline(boundary - 0.5, color="white", linewidth=0.5)
