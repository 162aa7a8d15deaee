"""Define layers for sequences (L, C).  Images (H, W, C) are treated as sequences of H W positions.

Sequences of different lengths share one array, padded with positions whose channels are all 0.  Activations with
phi(0) = 0 keep the padding at 0, and convolutions without a bias do so where their windows cover only padding.
`GlobalSelfAttention(masked=True)` and `MaskedAvgPool` ignore padding.  Other layers treat padding as data.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from minintk.spec.checks import check_scales
from minintk.spec.layers import Activation, Conv1d, Conv2d, Convolution, Layer
from minintk.validate import number, whole

__all__ = ["GlobalSelfAttention", "MaskedAvgPool"]


@dataclass(frozen=True)
class GlobalSelfAttention(Layer):
    """y = (A_1 v_1, ..., A_h v_h) W_o + b with A = zeta(G).  Each position attends to all positions.

    Each head computes k = x W_k, q = x W_q and v = x W_v at each position.  With d_k channels of k,

        scaling="linear"    G = k k' / d_k, W_q = W_k        constant at infinite width, G = qk_std K(x, x)
        scaling="sqrt"      G = q k' / sqrt(d_k)             random at infinite width; the usual choice

    With "sqrt", `analytic` has a kernel only for zeta = mn.Identity(), in the limit of many heads.

    channels : the number of channels of y.  heads : h.  key_channels, value_channels : channels per head, by default
    `channels`.  zeta : "softmax" or a pointwise activation.  With mn.Identity(), attention is linear in G.
    qk_std : sigma_q sigma_k, the scale of G.   w_std : sigma_v sigma_o, the scale of y.   b_std : the scale of b.
    masked : if True, ignore padding in keys and queries and set y = 0 at padding.  This requires b_std = 0.
    Tensors: "in.0.W", ... for keys, queries (if scaling="sqrt") and values; "output.W" for W_o and "output.b" for b.

    (N, L, C) -> (N, L, channels).  Raises ValueError for sizes < 1, qk_std <= 0, w_std <= 0 or b_std < 0.
    See Hron, Bahri, Sohl-Dickstein, Novak 2020, "Infinite attention: NNGP and NTK for deep attention networks".

    >>> GlobalSelfAttention(8, heads=2, masked=True).parts((24, 16))[-1]
    Conv1d(channels=8, kernel_size=1, stride=1, padding='same', w_std=1.0, b_std=0.0, b_init='normal')
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
    masked: bool = False

    def __post_init__(self) -> None:
        name = "GlobalSelfAttention"
        (d_k, d_v), h = self.sizes, self.heads
        for size, value in (("channels", self.channels), ("heads", h), ("key_channels", d_k), ("value_channels", d_v)):
            whole(f"{name}({size}=...)", value)
        number(f"{name}(qk_std=...)", self.qk_std)
        check_scales(name, self.w_std, self.b_std, "normal")
        if self.scaling not in ("linear", "sqrt"):
            raise ValueError(f"{name}(scaling=...) expects 'linear' or 'sqrt', got {self.scaling!r}")
        if self.zeta != "softmax" and not isinstance(self.zeta, Activation):
            raise ValueError(f"{name}(zeta=...) expects 'softmax' or an activation, mn.Identity(), got {self.zeta!r}")
        if self.masked and self.b_std:
            raise ValueError(f"{name}(masked=True) keeps padding at 0: it expects b_std=0, got {self.b_std!r}")

    @property
    def sizes(self) -> tuple[int, int]:
        """Return the numbers of channels of keys and of values in one head."""
        given = self.key_channels, self.value_channels
        return tuple(self.channels if size is None else size for size in given)  # type: ignore[return-value]

    def parts(self, shape: tuple[int, ...]) -> tuple[Convolution, ...]:
        """Return the 1 x 1 convolutions that compute keys, queries (scaling="sqrt"), values and y."""
        Conv = Conv2d if len(shape) == 3 else Conv1d
        d_k, d_v = (int(self.heads) * int(size) for size in self.sizes)
        key = Conv(d_k, 1, w_std=self.qk_std**0.5)
        out = Conv(self.channels, 1, w_std=self.w_std, b_std=self.b_std)
        return *((key,) if self.scaling == "linear" else (key, key)), Conv(d_v, 1), out

    @property
    def inside(self) -> tuple[Layer, ...]:
        return self.parts(())


@dataclass(frozen=True)
class MaskedAvgPool(Layer):
    """y = the mean over positions with a nonzero channel, or 0 if there are none; (N, L, C) -> (N, C)."""
