"""List ninety-one wrong gradients as data: a correct function, the change, and the words that a report must contain.

python tests/minintk/grade/more_gradients.py        the table, and how many are named

FAMILIES contains the correct functions. A row of MISTAKES is (family, text in `backward`, replacement, words that name
the cause). The words are "" if no cause can be named. In that case, a report that shows numbers is enough.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minintk.grade import Diagnosis, check_gradient

rng = np.random.default_rng(7)


def normal(*shape: int) -> Any:
    return rng.standard_normal(shape)


@dataclass(frozen=True)
class Family:
    """The source of `forward` and `backward`, and arguments for tests."""

    source: str
    args: tuple[Any, ...]


FAMILIES = {
    "dense": Family("""
def forward(x, W, b): return x @ W + b
def backward(u, x, W, b):
    dx = u @ W.T
    dW = x.T @ u
    db = u.sum(axis=0)
    return dx, dW, db
""", (normal(5, 4), normal(4, 4), normal(4))),
    "tanh layer": Family("""
def forward(x, W): return np.tanh(x @ W)
def backward(u, x, W):
    y = np.tanh(x @ W)
    v = u * (1 - y ** 2)
    dx = v @ W.T
    dW = x.T @ v
    return dx, dW
""", (normal(5, 3), normal(3, 4))),
    "relu layer": Family("""
def forward(x, W): return np.maximum(x @ W, 0)
def backward(u, x, W):
    v = u * (x @ W > 0)
    dx = v @ W.T
    dW = x.T @ v
    return dx, dW
""", (normal(5, 3), normal(3, 4))),
    "swish": Family("""
def forward(x): return x / (1 + np.exp(-x))
def backward(u, x):
    s = 1 / (1 + np.exp(-x))
    dx = u * (s + x * s * (1 - s))
    return dx
""", (normal(5, 3),)),
    "softmax": Family("""
def forward(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
def backward(u, z):
    p = forward(z)
    inner = (u * p).sum(axis=1, keepdims=True)
    dz = p * (u - inner)
    return dz
""", (normal(5, 4),)),
    "log softmax": Family("""
def forward(z):
    z = z - z.max(axis=1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=1, keepdims=True))
def backward(u, z):
    p = np.exp(forward(z))
    total = u.sum(axis=1, keepdims=True)
    dz = u - p * total
    return dz
""", (normal(5, 4),)),
    "cross-entropy": Family("""
def soft(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
def forward(z, labels): return -np.log(soft(z)[np.arange(len(z)), labels]).mean()
def backward(u, z, labels):
    p = soft(z)
    t = np.eye(z.shape[1])[labels].astype(z.dtype)
    dz = (p - t) / len(z) * np.asarray(u, z.dtype)
    return dz
""", (normal(6, 4), np.array([0, 3, 1, 2, 2, 0]))),
    "logistic loss": Family("""
def forward(z, y): return np.log1p(np.exp(-y * z)).mean()
def backward(u, z, y):
    s = 1 / (1 + np.exp(y * z))
    dz = -y * s / z.size * np.asarray(u, z.dtype)
    dy = -z * s / z.size * np.asarray(u, z.dtype)
    return dz, dy
""", (normal(5, 3), normal(5, 3))),
    "squared loss": Family("""
def forward(f, y): return ((f - y) ** 2).sum() / (2 * len(f))
def backward(u, f, y):
    df = (f - y) / len(f) * np.asarray(u, f.dtype)
    dy = -df
    return df, dy
""", (normal(5, 3), normal(5, 3))),
    "layer norm": Family("""
def hat(x):
    return (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True))
def forward(x, gamma, beta): return gamma * hat(x) + beta
def backward(u, x, gamma, beta):
    h, std = hat(x), np.sqrt(x.var(axis=1, keepdims=True))
    v = u * gamma
    mean = v.mean(axis=1, keepdims=True)
    var = h * (v * h).mean(axis=1, keepdims=True)
    dx = (v - mean - var) / std
    dgamma = (u * h).sum(axis=0)
    dbeta = u.sum(axis=0)
    return dx, dgamma, dbeta
""", (normal(5, 4), normal(4), normal(4))),
    "batch norm": Family("""
def hat(x):
    return (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0))
def forward(x, gamma, beta): return gamma * hat(x) + beta
def backward(u, x, gamma, beta):
    h, std = hat(x), np.sqrt(x.var(axis=0))
    v = u * gamma
    mean = v.mean(axis=0)
    var = h * (v * h).mean(axis=0)
    dx = (v - mean - var) / std
    dgamma = (u * h).sum(axis=0)
    dbeta = u.sum(axis=0)
    return dx, dgamma, dbeta
""", (normal(6, 3), normal(3), normal(3))),
    "rms norm": Family("""
def forward(x, g): return g * x / np.sqrt((x ** 2).mean(axis=1, keepdims=True))
def backward(u, x, g):
    r = np.sqrt((x ** 2).mean(axis=1, keepdims=True))
    h = x / r
    v = u * g
    inner = h * (v * h).mean(axis=1, keepdims=True)
    dx = (v - inner) / r
    dg = (u * h).sum(axis=0)
    return dx, dg
""", (normal(5, 4), normal(4))),
    "centring": Family("""
def forward(x): return x - x.mean(axis=1, keepdims=True)
def backward(u, x):
    dx = u - u.mean(axis=1, keepdims=True)
    return dx
""", (normal(5, 4),)),
    "shortcut": Family("""
def forward(x, W): return x + np.tanh(x @ W)
def backward(u, x, W):
    v = u * (1 - np.tanh(x @ W) ** 2)
    dx = u + v @ W.T
    dW = x.T @ v
    return dx, dW
""", (normal(5, 3), normal(3, 3))),
    "attention": Family("""
def weights(q, k):
    s = q @ k.T / x_sqrt(q.shape[1], q.dtype)
    e = np.exp(s - s.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
def x_sqrt(d, dtype): return np.sqrt(np.asarray(d, dtype))
def forward(q, k, v): return weights(q, k) @ v
def backward(u, q, k, v):
    p = weights(q, k)
    dv = p.T @ u
    dp = u @ v.T
    ds = p * (dp - (dp * p).sum(axis=1, keepdims=True))
    root = x_sqrt(q.shape[1], q.dtype)
    dq = ds @ k / root
    dk = ds.T @ q / root
    return dq, dk, dv
""", (normal(4, 3), normal(4, 3), normal(4, 3))),
    "bilinear": Family("""
def forward(x, A, y): return np.einsum("ni,ij,nj->n", x, A, y)
def backward(u, x, A, y):
    dx = u[:, None] * (y @ A.T)
    dA = np.einsum("n,ni,nj->ij", u, x, y)
    dy = u[:, None] * (x @ A)
    return dx, dA, dy
""", (normal(5, 3), normal(3, 3), normal(5, 3))),
    "mean of rows": Family("""
def forward(x): return x.mean(axis=1)
def backward(u, x):
    dx = np.repeat(u[:, None], x.shape[1], axis=1) / x.shape[1]
    return dx
""", (normal(5, 4),)),
    "average pool": Family("""
def forward(x): return x.reshape(len(x), -1, 2).mean(axis=2)
def backward(u, x):
    dx = np.repeat(u, 2, axis=1) / 2
    return dx
""", (normal(3, 6),)),
    "convolution": Family("""
def forward(x, W):
    k, l = W.shape[:2]
    H, V = x.shape[1] - k + 1, x.shape[2] - l + 1
    return sum(x[:, a : a + H, c : c + V] @ W[a, c] for a in range(k) for c in range(l))
def backward(u, x, W):
    k, l = W.shape[:2]
    H, V = u.shape[1:3]
    dx, dW = np.zeros_like(x), np.zeros_like(W)
    for a in range(k):
        for c in range(l):
            dx[:, a : a + H, c : c + V] += u @ W[a, c].T
            dW[a, c] = np.tensordot(x[:, a : a + H, c : c + V], u, axes=([0, 1, 2], [0, 1, 2]))
    return dx, dW
""", (normal(2, 5, 4, 2), normal(3, 2, 2, 2))),
    "unit length": Family("""
def forward(x): return x / np.sqrt((x ** 2).sum(axis=1, keepdims=True))
def backward(u, x):
    r = np.sqrt((x ** 2).sum(axis=1, keepdims=True))
    y = x / r
    dx = (u - y * (u * y).sum(axis=1, keepdims=True)) / r
    return dx
""", (normal(5, 4),)),
}  # fmt: skip

MISTAKES = [
    # 61 mistakes from an earlier examination of the checker
    ("dense", "x.T @ u", "u.T @ x", "transposed"),
    ("dense", "u @ W.T", "u @ W", "transposed|axes 0 and 1 swapped"),
    ("dense", "u.sum(axis=0)", "u.mean(axis=0)", "0.2 = 1/N: a mean"),
    ("dense", "u.sum(axis=0)", "u.mean(axis=1)[:4]", ""),
    ("dense", "u.sum(axis=0)", "u.sum(axis=0, keepdims=True)", "axes of length 1"),
    ("dense", "u.sum(axis=0)", "u", "sum over axis 0 is missing"),
    ("dense", "u.sum(axis=0)", "-u.sum(axis=0)", "the sign"),
    ("dense", "x.T @ u", "x.T @ u / len(x)", "1/N: a mean"),
    ("dense", "x.T @ u", "2 * x.T @ u", "a factor 2"),
    ("dense", "return dx, dW, db", "return dW[:3], dx, db", "order|shape"),
    ("dense", "u @ W.T", "W.sum(axis=1) * np.ones_like(x)", "for every u"),
    ("tanh layer", "(1 - y ** 2)", "1", "for each output"),
    ("tanh layer", "(1 - y ** 2)", "(1 + y ** 2)", "for each output"),
    ("tanh layer", "(1 - y ** 2)", "(1 - np.tanh(y) ** 2)", "at the output|for each output"),
    ("tanh layer", "x.T @ v", "x.T @ u", "for each output|phi'"),
    ("relu layer", "(x @ W > 0)", "1", "mask"),
    ("relu layer", "(x @ W > 0)", "(x @ W < 0)", "-x in place of x"),
    ("relu layer", "(x @ W > 0)", "(x @ W > 0.3)", "missing"),
    ("relu layer", "x.T @ v", "x.T @ u", "mask"),
    ("swish", "(s + x * s * (1 - s))", "(s + x * s)", "for each output"),
    ("swish", "(s + x * s * (1 - s))", "s", "for each output"),
    ("swish", "(s + x * s * (1 - s))", "s * (1 - s)", "for each output"),
    ("softmax", "(u - inner)", "u", "several entries"),
    ("softmax", "(u - inner)", "(u + inner)", ""),
    ("softmax", "(u * p).sum(axis=1, keepdims=True)", "(u * p).sum(axis=0, keepdims=True)", "another"),
    ("softmax", "(u * p).sum(axis=1, keepdims=True)", "(u * p).sum()", "another"),
    ("softmax", "(u * p).sum(axis=1, keepdims=True)", "u.sum(axis=1, keepdims=True)", ""),
    ("softmax", "p * (u - inner)", "u - inner", ""),
    ("softmax", "p * (u - inner)", "p * (1 - p) * u", "only the diagonal|several entries"),
    ("log softmax", "u - p * total", "u", "several entries"),
    ("log softmax", "u - p * total", "p * total", ""),
    ("log softmax", "u.sum(axis=1, keepdims=True)", "u.sum(axis=0, keepdims=True)", "another"),
    ("log softmax", "u - p * total", "p * total - u", "the sign"),
    ("cross-entropy", "(p - t)", "p", "label's 1"),
    ("cross-entropy", "/ len(z)", "", "factor 6 = N"),
    ("cross-entropy", "/ len(z)", "/ z.size", "1/C"),
    ("cross-entropy", "(p - t)", "(t - p)", "the sign"),
    ("cross-entropy", "[labels]", "[(labels + 1) % 4]", "another label"),
    ("cross-entropy", "(p - t)", "(2 * p - t)", ""),
    ("cross-entropy", "soft(z)\n    t", "soft(z.T).T\n    t", ""),
    ("layer norm", "- mean", "", "derivative of the mean"),
    ("layer norm", "- var", "", "derivative of the variance"),
    ("layer norm", "- mean - var", "", "mean and variance"),
    ("layer norm", "/ std", "", "for each example"),
    ("layer norm", "u * gamma", "u", "gamma is forgotten"),
    ("layer norm", "(u * h)", "(u * x)", "for each output"),
    ("layer norm", "(u * h).sum", "(u * h).mean", "1/N: a mean"),
    ("layer norm", "dbeta = u.sum", "dbeta = u.mean", "1/N: a mean"),
    ("batch norm", "- mean", "", "derivative of the mean"),
    ("batch norm", "- var", "", "derivative of the variance"),
    ("batch norm", "mean(axis=0)\n    dx", "sum(axis=0) / (len(x) - 1)\n    dx", "derivative of the variance"),
    ("batch norm", "u * gamma", "u", "gamma is forgotten"),
    ("shortcut", "u + v", "v", "shortcut"),
    ("shortcut", "u + v", "2 * u + v", "identity is too much"),
    ("attention", "p.T @ u", "p @ u", "P u where P' u"),
    ("attention", "ds @ k / root", "ds @ k", "sqrt"),
    ("attention", "ds.T @ q", "ds @ q", ""),
    ("attention", "- (dp * p).sum(axis=1, keepdims=True)", "", ""),
    ("average pool", "np.repeat(u, 2, axis=1)", "np.tile(u, (1, 2))", ""),
    ("average pool", " / 2", "", "a factor 2"),
    ("convolution", "W[a, c].T", "W[k - 1 - a, c].T", "flipped along axis 0"),
    # 30 more
    ("convolution", "W[a, c].T", "W[a, l - 1 - c].T", "flipped along axis 1"),
    ("convolution", "W[a, c].T", "W[k - 1 - a, l - 1 - c].T", "flipped"),
    ("convolution", "W[a, c].T", "W[a, c]", "channels swapped|transposed"),
    ("convolution", "+= u", "= u", "where \\+= belongs"),
    ("convolution", "dW[a, c] = ", "dW[k - 1 - a, c] = ", "flipped along axis 0"),
    ("dense", "u @ W.T", "np.zeros_like(x)", "zeros"),
    ("dense", "x.T @ u", "(x.T @ u).astype(np.float32)", "float64 arguments give float32"),
    ("dense", "x.T @ u", "None", "None is returned"),
    ("logistic loss", "dz = -y * s / z.size", "dz = -y * s", "N C"),
    ("logistic loss", "dz = -y * s / z.size", "dz = -y * s / len(z)", "sum|factor 3"),
    ("logistic loss", "dz = -y * s", "dz = y * s", "the sign"),
    ("squared loss", "df = (f - y) / len(f)", "df = 2 * (f - y) / len(f)", "a factor 2"),
    ("squared loss", "dy = -df", "dy = df", "the sign"),
    ("squared loss", "df = (f - y)", "df = f", "y is forgotten"),
    ("squared loss", "/ len(f)", "/ f.size", "1/C|1/3"),
    ("rms norm", "(v - inner)", "v", "of a length or a square"),
    ("rms norm", "/ r\n    dg", "\n    dg", "for each example"),
    ("rms norm", "u * g", "u", "g is forgotten"),
    ("rms norm", "(u * h).sum", "(u * h).mean", "1/N: a mean"),
    ("centring", "u - u.mean(axis=1, keepdims=True)", "u", "derivative of the mean"),
    ("centring", "u.mean(axis=1, keepdims=True)", "u.mean(axis=0, keepdims=True)", "another"),
    ("centring", "u - u.mean(axis=1, keepdims=True)", "u - u.sum(axis=1, keepdims=True)", "derivative of the mean"),
    ("bilinear", "y @ A.T", "y @ A", "transposed|axes 0 and 1 swapped"),
    ("bilinear", "u, x, y)", "u, y, x)", "transposed"),
    ("bilinear", "dx = u[:, None] * ", "dx = ", "for every u"),
    ("mean of rows", " / x.shape[1]", "", "a sum where a mean|factor 4"),
    ("mean of rows", "/ x.shape[1]", "/ len(x)", "factor 0.8"),
    ("unit length", "- y * (u * y).sum(axis=1, keepdims=True)", "", "of a length or a square"),
    ("unit length", ") / r\n", ")\n", "at the output"),
    ("attention", "return dq, dk, dv", "return dk, dq, dv", "another order|order"),
]


UNUSUAL = [
    # (family, text in `backward`, another way to write the same)
    *((family, "", "") for family in FAMILIES),
    ("dense", "x.T @ u", "np.einsum('ni,nj->ij', x, u)"),
    ("dense", "u.sum(axis=0)", "np.ones(len(u), u.dtype) @ u"),
    ("dense", "return dx, dW, db", "return {'dx': dx, 'dW': dW, 'db': db}"),
    ("dense", "return dx, dW, db", "return [np.asfortranarray(dx), dW, db[::-1].copy()[::-1]]"),
    ("dense", "u @ W.T", "np.array([W @ row for row in u])"),
    ("dense", "dW = x.T @ u", "dW = np.zeros_like(W)\n    for n in range(len(x)): dW += np.outer(x[n], u[n])"),
    ("dense", "dx = u @ W.T", "dx = np.linalg.solve(np.eye(4, dtype=W.dtype), W @ u.T).T"),
    ("tanh layer", "(1 - y ** 2)", "(1 / np.cosh(x @ W) ** 2)"),
    ("tanh layer", "(1 - y ** 2)", "((1 - y) * (1 + y))"),
    ("relu layer", "(x @ W > 0)", "np.heaviside(x @ W, np.zeros((), x.dtype))"),
    ("swish", "1 / (1 + np.exp(-x))", "(1 + np.tanh(x / 2)) / 2"),
    ("softmax", "dz = p * (u - inner)",
     "J = np.eye(4, dtype=p.dtype) * p[:, None] - p[:, :, None] * p[:, None]\n    dz = np.einsum('nij,nj->ni', J, u)"),
    ("cross-entropy", "(p - t)", "np.add(p, -t)"),
    ("cross-entropy", "t = np.eye(z.shape[1])[labels].astype(z.dtype)",
     "t = np.zeros_like(z)\n    np.add.at(t, (np.arange(len(z)), labels), 1)"),
    ("layer norm", "dx = (v - mean - var) / std",
     "c = np.eye(4, dtype=x.dtype) - np.full((4, 4), 0.25, x.dtype)\n    dx = (v @ c - var) / std"),
    ("batch norm", "dbeta = u.sum(axis=0)", "dbeta = np.add.reduce(u)"),
    ("attention", "p.T @ u", "np.tensordot(p, u, (0, 0))"),
    ("bilinear", "np.einsum(\"n,ni,nj->ij\", u, x, y)", "(u[:, None] * x).T @ y"),
    ("mean of rows", "np.repeat(u[:, None], x.shape[1], axis=1)", "np.broadcast_to(u[:, None], x.shape)"),
    ("average pool", "np.repeat(u, 2, axis=1)", "np.kron(u, np.ones((1, 2), u.dtype))"),
]  # fmt: skip
"""Forty right but unusual functions, including the unchanged families."""


def functions(family: str, old: str = "", new: str = "") -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the functions `forward` and `backward`, with the change applied to `backward`."""
    source = FAMILIES[family].source
    head, mark, tail = source.partition("def backward")
    assert old in tail, (family, old)
    space: dict[str, Any] = {"np": np}
    exec(f"{head}{mark}{tail.replace(old, new)}" if old else source, space)
    return space["forward"], space["backward"]


def diagnosed(family: str, old: str = "", new: str = "") -> Diagnosis:
    with np.errstate(all="ignore"):
        return check_gradient(*functions(family, old, new), FAMILIES[family].args, hard=False)


def judged(family: str, old: str, new: str, words: str) -> tuple[str, str]:
    """Return (outcome, text). Outcomes are "named", "numbers" (no cause), "misnamed" (wrong cause) and "accepted"."""
    said = diagnosed(family, old, new)
    if said.passed:
        return "accepted", ""
    text = str(said)
    if words and re.search(words, text):
        return "named", text
    return ("misnamed" if any(f.cause != "unnamed" for f in said.findings) else "numbers"), text


if __name__ == "__main__":
    outcomes = [judged(*row) for row in MISTAKES]
    for row, (outcome, text) in zip(MISTAKES, outcomes, strict=True):
        print(f"{outcome:9} {row[0]:14} {row[1][:34]!r:38} -> {row[2][:34]!r:38} {text!r}")
    for name in ("named", "numbers", "misnamed", "accepted"):
        print(name, sum(outcome == name for outcome, _ in outcomes), "of", len(outcomes))
    print("right and unusual ones accepted:", sum(diagnosed(*row).passed for row in UNUSUAL), "of", len(UNUSUAL))
