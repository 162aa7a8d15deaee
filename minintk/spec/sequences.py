"""Layers for sequences (L, C), which take images (H, W, C) too, as sequences of H W positions.

Padding.  Sequences of unequal lengths stand in one array, filled up with positions whose channels are all 0.  Layers
without a bias, and with phi(0) = 0, keep such positions at 0, and after a convolution those are 0 whose windows hold
padding alone.  `GlobalSelfAttention(masked=True)` and `MaskedAvgPool`, which would mix padding with the rest, leave out
the positions that are 0 where they stand.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from minintk.spec.checks import check_count, check_number, check_scales
from minintk.spec.layers import Activation, Conv1d, Layer

__all__ = ["GlobalSelfAttention", "MaskedAvgPool"]


@dataclass(frozen=True)
class GlobalSelfAttention(Layer):
    """y = [A_1 v_1, ..., A_h v_h] W_o + b,   A = zeta(G),   every position attending to every other one.

    k, q, v are Dense at each position, for each head h by itself: k = x W_k, q = x W_q, v = x W_v.

        scaling="linear"    G = k k' / d_k, W_q = W_k          constant at infinite width: G = qk_std (K(x, x) + P)
        scaling="sqrt"      G = q k' / sqrt(d_k)               random at infinite width, with mean 0

    channels : number of outputs.   heads, key_channels, value_channels : h, d_k and d_v, of one head; d_k and d_v are
        `channels` unless given.   qk_std : sigma_q sigma_k, the scale of G.   w_std : sigma_v sigma_o, that of y.
    b_std : of the bias b.
    zeta : "softmax", over the positions that are attended to, or an activation, entry by entry; with
        mn.Identity() attention is linear in G.
    positions : p, the scale of position embeddings p E, added to what keys and queries read, not to values; E is
        trained and starts with independent channels of covariance P / p^2 = exp(-|s - t| / reach) between positions s
        and t, the identity where reach = 0.  0: none.  Its kernel is that of many channels of x: weights come before.
    masked : leave out positions of x that are all 0, both as keys and as queries, where y = 0; needs b_std = 0.

    The tensors are "key.W", "query.W" (scaling="sqrt"), "value.W", "output.W", "output.b" and "E".

    (N, L, C) -> (N, L, channels).  ValueError for sizes below 1 and scales below 0.
    Hron, Bahri, Sohl-Dickstein, Novak 2020, "Infinite attention", eqs. (1)-(7).

    >>> GlobalSelfAttention(8, heads=2).parts["key"]
    Conv1d(channels=16, kernel_size=1, stride=1, padding='same', w_std=1.0, b_std=0.0, b_init='normal')
    """

    channels: int
    _: KW_ONLY
    heads: int = 1
    key_channels: int | None = None
    value_channels: int | None = None
    scaling: Literal["linear", "sqrt"] = "linear"
    zeta: Literal["softmax"] | Activation = "softmax"
    qk_std: float = 1.0
    w_std: float = 1.0
    b_std: float = 0.0
    positions: float = 0.0
    reach: float = 0.0
    masked: bool = False

    def __post_init__(self) -> None:
        name = "GlobalSelfAttention"
        for size in ("channels", "heads", "key_channels", "value_channels"):
            if getattr(self, size) is not None:
                check_count(name, size, getattr(self, size))
        check_number(name, "qk_std", self.qk_std, 0.0, strict=True)
        check_scales(name, self.w_std, self.b_std, "normal")
        for scale in ("positions", "reach"):
            check_number(name, scale, getattr(self, scale), 0.0)
        if self.scaling not in ("linear", "sqrt"):
            raise ValueError(f"{name}(scaling=...) expects 'linear' or 'sqrt', got {self.scaling!r}")
        if self.zeta != "softmax" and not isinstance(self.zeta, Activation):
            raise ValueError(f"{name}(zeta=...) expects 'softmax' or an activation, mn.Identity(), got {self.zeta!r}")
        if self.masked and self.b_std:
            raise ValueError(f"{name}(masked=True) keeps padding at 0: it expects b_std=0, got {self.b_std!r}")

    @property
    def parts(self) -> dict[str, Conv1d]:
        """What keys, queries, values and the output are computed by, at each position."""
        dk, dv = self.key_channels or self.channels, self.value_channels or self.channels
        key = Conv1d(self.heads * dk, 1, w_std=self.qk_std**0.5)
        query = {"query": key} if self.scaling == "sqrt" else {}
        value = Conv1d(self.heads * dv, 1)
        return {
            "key": key,
            **query,
            "value": value,
            "output": Conv1d(self.channels, 1, w_std=self.w_std, b_std=self.b_std),
        }

    @property
    def inside(self) -> tuple[Layer, ...]:
        return tuple(self.parts.values())


@dataclass(frozen=True)
class MaskedAvgPool(Layer):
    """y = the mean over the positions that are not all 0, and 0 where all are; (N, L, C) -> (N, C).

    `GlobalAvgPool` for padded sequences.
    """
