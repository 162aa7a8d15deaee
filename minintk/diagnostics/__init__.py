"""Measure properties of networks and kernels with NumPy or CuPy, for one network or (except curvature) an ensemble.

The files are independent, except that kernel_over_time uses kernels, and weight_norms uses layer_io:

    kernels            kernel_movement, weight_movement                   relative change of the kernel and the weights
                       effective_rank                                     the effective number of eigenvalues
                       alignment, target_alignment                        alignment with another kernel or with labels
    kernel_over_time   kernel_over_time, KernelPath                       the kernel in training, and each layer's share
    times              t1, t2                                             times at which the loss is halved, or zero
    curvature          kappa                                              nonlinearity of f on the way to a solution
                       sharpness                                          the largest eigenvalue of the loss's Hessian
    layer_io           trace                                              the input and output of each layer
    weight_norms       spectral_norm(s), natural_norms, gaussian_norms    measured, required and initial norms
                       update_alignment                                   alignment of updates with features
                       spectrally_normalised                              weights that have exactly the norms of muP
    power_laws         power_law                                          exponents with confidence intervals
"""

from minintk.diagnostics.curvature import Kappa, kappa, sharpness
from minintk.diagnostics.kernel_over_time import KernelPath, kernel_over_time
from minintk.diagnostics.kernels import (
    alignment,
    effective_rank,
    kernel_movement,
    relative_distance,
    target_alignment,
    weight_movement,
)
from minintk.diagnostics.layer_io import Passage, trace
from minintk.diagnostics.power_laws import Estimate, PowerLaw, power_law
from minintk.diagnostics.times import t1, t2
from minintk.diagnostics.weight_norms import (
    gaussian_norms,
    natural_norms,
    spectral_norm,
    spectral_norms,
    spectrally_normalised,
    update_alignment,
)

__all__ = [
    "Estimate", "Kappa", "KernelPath", "Passage", "PowerLaw", "alignment", "effective_rank",
    "gaussian_norms", "kappa", "kernel_movement", "kernel_over_time", "natural_norms", "power_law",
    "relative_distance", "sharpness", "spectral_norm", "spectral_norms", "spectrally_normalised", "t1", "t2",
    "target_alignment", "trace", "update_alignment", "weight_movement",
]  # fmt: skip
