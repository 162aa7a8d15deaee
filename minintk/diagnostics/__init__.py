"""Diagnostics: what a network did, in numbers.  They take any model, one network or an ensemble, either array library.

kernel_movement, weight_movement                   how far kernel and weights moved
singular_values, effective_rank, condition_number  the spectrum of a kernel
gram_picture, draw_gram                            a kernel with its examples ordered by class
alignment, target_alignment                        kernels with each other, and with the labels
activations, cka, layer_similarity                 layers with each other
ensemble_variance                                  how much the function depends on its initialisation
t1, t2                                             when the loss halves, when it is zero
kappa                                              how much the tangent changes on the way to a solution
trace                                              what enters and leaves each layer
spectral_norm(s), natural_norms, edges             spectral norms of layers, what they should be, Marchenko-Pastur
stable_rank, update_alignment                      how many directions a matrix has; updates against features
spectrally_normalised                              weights of exactly the norms that muP asks for
power_law, crossover                               exponents with intervals, and where two laws meet
"""

from minintk.diagnostics.curvature import Kappa, kappa
from minintk.diagnostics.ensembles import ensemble_variance
from minintk.diagnostics.kernel_spectra import (
    condition_number,
    draw_gram,
    effective_rank,
    gram_picture,
    singular_values,
)
from minintk.diagnostics.layer_io import Passage, trace
from minintk.diagnostics.movement import kernel_movement, relative_distance, weight_movement
from minintk.diagnostics.power_laws import Estimate, PowerLaw, crossover, power_law
from minintk.diagnostics.similarity import activations, alignment, cka, layer_similarity, target_alignment
from minintk.diagnostics.times import t1, t2
from minintk.diagnostics.weight_norms import (
    edges,
    natural_norms,
    spectral_norm,
    spectral_norms,
    spectrally_normalised,
    stable_rank,
    update_alignment,
)

__all__ = [
    "Estimate",
    "Kappa",
    "Passage",
    "PowerLaw",
    "activations",
    "alignment",
    "cka",
    "condition_number",
    "crossover",
    "draw_gram",
    "edges",
    "effective_rank",
    "ensemble_variance",
    "gram_picture",
    "kappa",
    "kernel_movement",
    "layer_similarity",
    "natural_norms",
    "power_law",
    "relative_distance",
    "singular_values",
    "spectral_norm",
    "spectral_norms",
    "spectrally_normalised",
    "stable_rank",
    "t1",
    "t2",
    "target_alignment",
    "trace",
    "update_alignment",
    "weight_movement",
]
