"""Define further layers that `minintk.lift` needs for models from other libraries.

Each file defines layers as data, with their shape rules and finite rules, as your own package would:

    activations      Hardtanh, Hardswish, Hardsigmoid, ELU, the tanh form of GELU
    grouped_conv     convolutions with groups (depthwise) and with dilation
    adaptive_pool    averages over any number of windows
    group_norm       LayerNorm over groups of channels

`analytic` computes kernels for the activations, in closed form or by quadrature.  It rejects the other layers.

>>> import minintk as mn
>>> net = mn.Network(mn.Sequential(GroupedConv2d(8, groups=4), ReLU6(), mn.GlobalAvgPool(), mn.Dense(1)), (6, 6, 4))
>>> net.layout
Layout(0.W (3, 3, 1, 8), 3.W (8, 1); P = 80)
"""

from minintk.more_layers.activations import ELU, Hardsigmoid, Hardswish, Hardtanh, ReLU6, TanhGELU
from minintk.more_layers.adaptive_pool import AdaptiveAvgPool
from minintk.more_layers.group_norm import GroupNorm
from minintk.more_layers.grouped_conv import GroupedConv2d

__all__ = [
    "ELU", "AdaptiveAvgPool", "GroupNorm", "GroupedConv2d", "Hardsigmoid", "Hardswish", "Hardtanh", "ReLU6", "TanhGELU",
]  # fmt: skip
