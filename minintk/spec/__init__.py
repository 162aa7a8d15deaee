"""What a network is, as data; the finite and the infinite meaning both read this room.

Reading order:

    layers             the layers, frozen dataclasses without arrays; checks has those of their arguments
    activations        phi, as data
    structure          layers side by side, a factor, masks
    sequences          attention, and means over what is no padding
    shapes             the shape of an example after each layer, and which layers come first and last
    variance           how much of the inputs arrives at the outputs
    windows            which pixels a convolution or a pooling reads
    parametrization    how a tensor enters the network, how it is drawn, how fast it learns
    abc_parametrization    the same as powers of the width, and what training then does
    zoo                the networks of the papers
"""

from minintk.spec import activations, layers, sequences, structure, zoo
from minintk.spec.activations import *
from minintk.spec.layers import *
from minintk.spec.sequences import *
from minintk.spec.structure import *

__all__ = [*activations.__all__, *layers.__all__, *sequences.__all__, *structure.__all__]
