"""Describe networks as data.  The finite networks and the infinite-width kernels are both computed from a spec.

Reading order:

    layers             the layers as frozen dataclasses (`checks` validates their arguments)
    activations        phi, as data
    structure          branches, a constant factor, dropout masks
    sequences          attention, and means over non-padding positions
    shapes             the shape of an example after each layer, and the first and last weights
    variance           the gain in variance from the inputs to the outputs
    windows            the pixels that a convolution or a pooling layer reads
    parametrization    the multiplier, initial scale and learning rate of each tensor
    abc_parametrization    the powers of the width in a parametrization, and its training regime
    zoo                the networks of published papers
"""

from minintk.spec import activations, layers, sequences, structure, zoo
from minintk.spec.activations import *
from minintk.spec.layers import *
from minintk.spec.sequences import *
from minintk.spec.structure import *

__all__ = [*activations.__all__, *layers.__all__, *sequences.__all__, *structure.__all__]
