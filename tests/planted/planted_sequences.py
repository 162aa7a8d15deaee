"""Plant errors in attention, padding, the kernels of LayerNorm, and lifted networks (see `planted`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import analytic as an
import minintk as mn
from analytic.images import attention as infinite
from analytic.recursion import rules
from minintk import testing
from minintk.layers import attention as finite
from minintk.layers.attention import HeadsJacobian, MaskedAvgPoolJacobian
from minintk.layers.branches import ConcatJacobian
from minintk.lifting import check as checking
from minintk.lifting import lift as lifting
from minintk.lifting import slots
from minintk.lifting import unlift as unlifting
from tests.kit.laws import Array, Patch
from tests.kit.lifted import check_recorded, check_refused
from tests.planted.planting import planted

SHORT = np.random.default_rng(0).standard_normal((3, 4, 2))
X = np.concatenate([SHORT, np.zeros((3, 2, 2))], axis=1)
HEADS = mn.GlobalSelfAttention(3, heads=2, qk_std=1.5, w_std=1.3, masked=True)


# ---------------------------------------------------------------------------------------------- the laws


def derivatives() -> None:
    """The adjoint, derivative and gram of attention are right with padding in the batch."""
    net = mn.Network(mn.Sequential(mn.Conv1d(3, 1), HEADS, mn.MaskedAvgPool(), mn.Dense(2)), X.shape[1:])
    rng = np.random.default_rng(0)
    theta = net.init(rng)
    for law in (testing.check_adjoint, testing.check_derivative, testing.check_gram):
        law(net, theta, X, rng)


def written_out() -> None:
    """Kernels of attention equal the sums over positions, with the weights written out."""
    K = np.einsum("nic,mjc->nmij", X, X) / X.shape[-1]
    seen = (X != 0).any(-1)
    A = np.exp(HEADS.qk_std * K[range(3), range(3)]) * (seen[:, :, None] & seen[:, None])
    A /= np.maximum(A.sum(-1, keepdims=True), 1e-300)
    K = HEADS.w_std**2 * np.einsum("nis,nmst,mjt->nmij", A, K, A)
    share = seen / seen.sum(-1, keepdims=True)
    K = np.einsum("ni,nmij,mj->nm", share, K, share)
    found = an.kernel(mn.Sequential(HEADS, mn.MaskedAvgPool(), mn.Dense(1))).both(X)
    for name, k, want in (("NNGP", found.nngp, K), ("NTK", found.ntk, 3 * K)):  # the keys' weights contribute nothing
        testing.assert_close(name, k, want, 1e-13)


def padding() -> None:
    """A padded sequence has the outputs and the kernels of the sequence without padding."""
    body = mn.Sequential(mn.Conv1d(4, 1), mn.ReLU(), HEADS, mn.Erf(), mn.MaskedAvgPool(), mn.Dense(2))
    net, shorter = (mn.Network(body, x.shape[1:]) for x in (X, SHORT))
    theta = net.init(np.random.default_rng(0))
    testing.assert_close("f", net(theta, X), shorter(theta, SHORT), 1e-12)
    for name, a, b in zip(("NNGP", "NTK"), an.kernel(body).both(X), an.kernel(body).both(SHORT), strict=True):
        testing.assert_close(name, a, b, 1e-12)


def normalised() -> None:
    """Kernels after LayerNorm are the kernels before LayerNorm, divided by sqrt((q + eps) (q' + eps))."""
    x = 0.1 * np.random.default_rng(0).standard_normal((4, 3))
    x[0] = 0
    K = 0.7**2 * x @ x.T / 3
    root = np.sqrt(K.diagonal() + 1e-2)
    K /= root[:, None] * root
    found = an.kernel(mn.Sequential(mn.Dense(8, w_std=0.7), mn.LayerNorm(eps=1e-2), mn.Dense(1))).both(x)
    for name, k, want in (("NNGP", found.nngp, K), ("NTK", found.ntk, 2 * K)):
        testing.assert_close(name, k, want, 1e-14)


def lifted() -> None:
    """A network lifted from torch has torch's outputs and gradients."""
    check_recorded(digits=1e-9)


# -------------------------------------------------------------------------------------------- attention


@planted("Attention: softmax without its normaliser's derivative", derivatives)
def _(patch: Patch) -> None:
    patch.setattr(HeadsJacobian, "weights", lambda self, dG: self.A * dG)


@planted("Attention: weights held fixed in jvp and vjp", derivatives)
def _(patch: Patch) -> None:
    patch.setattr(HeadsJacobian, "weights", lambda self, dG: 0 * dG)


def through(patch: Patch, index: int, factor: float) -> None:
    """Plant a wrong factor in the cotangent of keys (index 0) or values (index 1)."""
    right = HeadsJacobian.vjp

    def wrong(self: Any, u: Array, dw: Any) -> Any:
        parts = self.layer.split(right(self, u, dw), *self.layer.sizes)
        return self.layer.merge(*(factor * a if i == index else a for i, a in enumerate(parts)))

    patch.setattr(HeadsJacobian, "vjp", wrong)


@planted("Attention: tied keys get the cotangents of queries alone", derivatives)
def _(patch: Patch) -> None:
    through(patch, 0, 0.5)


@planted("Attention: no cotangents for the values", derivatives)
def _(patch: Patch) -> None:
    through(patch, 1, 0.0)


@planted("Attention: gram without the values' weights", derivatives)
def _(patch: Patch) -> None:
    right = ConcatJacobian.gram_and_back

    def wrong(self: Any, u: Array, other: Any, v: Array, kernel: Any) -> Any:
        G, du, dv = right(self, u, other, v, kernel)
        (_, at), (_, there), (one, two) = self.split(u), other.split(v), (self.parts[1], other.parts[1])
        return G - one.gram(at, two, there, kernel), du, dv

    patch.setattr(ConcatJacobian, "gram_and_back", wrong)


@planted("MaskedAvgPool: cotangents for padding too", derivatives)
def _(patch: Patch) -> None:
    patch.setattr(MaskedAvgPoolJacobian, "vjp", lambda self, u, dw: 0 * self.share + u[..., None, :])


@planted("Attention kernel: weights of sqrt(gain) K", written_out)
def _(patch: Patch) -> None:
    right = infinite.Attend.weights
    patch.setattr(infinite.Attend, "weights", lambda step, K, q: right(replace(step, gain=step.gain**0.5), K, q))


@planted("Attention kernel: weights of the columns in the place of the rows'", written_out)
def _(patch: Patch) -> None:
    right = infinite.Attend.weights

    def wrong(step: Any, K: Array, q: Array) -> Any:
        A, grid = right(step, K, q)
        return A.swapaxes(-1, -2), grid

    patch.setattr(infinite.Attend, "weights", wrong)


# ---------------------------------------------------------------------------------------------- padding


@planted("Masks: padding counts among the keys", padding)
def _(patch: Patch) -> None:
    right = finite.attention
    patch.setattr(finite, "attention", lambda G, zeta, seen: right(G, zeta, None))


@planted("Masks: padding counts among the keys of the kernel", padding)
def _(patch: Patch) -> None:
    right = infinite.Attend.weights
    patch.setattr(infinite.Attend, "weights", lambda step, K, q: right(replace(step, masked=False), K, q))


@planted("MaskedAvgPool kernel: the mean over padding too", written_out)
def _(patch: Patch) -> None:
    def wrong(step: Any, K: Array, q: Array) -> Any:
        return np.full((len(K), 1, q.shape[-1]), 1 / q.shape[-1]), (1, 1)

    patch.setattr(infinite.MaskedMean, "weights", wrong)


# -------------------------------------------------------------------------------------------- LayerNorm


@planted("LayerNorm kernel: eps added to the deviation, not to the variance", normalised)
def _(patch: Patch) -> None:
    patch.setattr(rules.Normalise, "gain", lambda step, q: 1 / (np.sqrt(q) + step.eps) ** 2)


@planted("LayerNorm kernel: Theta is not divided", normalised)
def _(patch: Patch) -> None:
    right = rules.Normalise.rows

    def wrong(step: Any, rows: Any) -> Any:
        after, row = right(step, rows)
        return replace(after, theta=rows.theta), row

    patch.setattr(rules.Normalise, "rows", wrong)


@planted("LayerNorm kernel: all rows are divided by the largest one's root", normalised)
def _(patch: Patch) -> None:
    patch.setattr(rules.Normalise, "gain", lambda step, q: np.where(q > 0, 1 / (q.max() + step.eps), 1.0))


# ---------------------------------------------------------------------------------------------- lifting


@planted("lift: features after Flatten in torch's order (C, H, W)", lifted)
def _(patch: Patch) -> None:
    right = slots.turned
    for module in (lifting, unlifting):
        patch.setattr(module, "turned", lambda a, order, layout, back=False: right(a, None, layout, back=back))


@planted("lift: offset beta of a normalisation left out", lifted)
def _(patch: Patch) -> None:
    right = slots.frozen
    patch.setattr(lifting, "frozen", lambda slot, arrays: right(slot, arrays | {"bias": 0 * arrays["bias"]}))


@planted("lift: a normalisation's variance left out", lifted)
def _(patch: Patch) -> None:
    right = slots.frozen
    patch.setattr(lifting, "frozen", lambda slot, arrays: right(slot, {k: a for k, a in arrays.items() if k != "var"}))


@planted("lift: eps of a normalisation outside the root", lifted)
def _(patch: Patch) -> None:
    right = slots.frozen

    def wrong(slot: Any, arrays: dict[str, Array]) -> Any:
        eps, var = slot.layer.eps if "var" in arrays else 0.0, arrays.get("var", 0.0)
        outside = {"var": var + eps**2 + 2 * eps * var**0.5 - eps} if "var" in arrays else {}
        return right(slot, arrays | outside)

    patch.setattr(lifting, "frozen", wrong)


@planted("lift: the module's run is not looked at", check_refused)
def _(patch: Patch) -> None:
    patch.setattr(lifting, "check_run", lambda *arguments: None)


@planted("lift: gradients of the module's run are not compared", check_refused)
def _(patch: Patch) -> None:
    right = checking.apart
    patch.setattr(checking, "apart", lambda a, b, size=None: right(a, b) if size is None else 0.0)
