"""minintk: a neural network in every form the theory of wide networks talks about, by hand, in NumPy or CuPy."""

from minintk import checkpoints, datasets, diagnostics, zoo
from minintk.abc_parametrization import ABC, exponents
from minintk.arrays import Array
from minintk.augment import Shift
from minintk.coordinates import CoordinateCheck, coordinate_check
from minintk.fitting import Run, evaluate, fit
from minintk.flows import flow, kernel_flow
from minintk.history import History
from minintk.kernels import nngp, ntk, ntk_full
from minintk.losses import (
    Hinge,
    Logistic,
    MeanSquared,
    SoftmaxCrossEntropy,
    SumOfSquares,
    hinge,
    logistic,
    mse,
    softmax_cross_entropy,
    sum_of_squares,
)
from minintk.models import Centred, IterativelyLinearized, Linearized, Moved, Taylor
from minintk.motion import Moment, Solver, Steps
from minintk.network import Model, Network
from minintk.optimizers import SGD, Adam, Nesterov
from minintk.parametrization import NTK, MeanField, PyTorch, SpectralMuP, Standard
from minintk.schedules import Cosine, StepDecay, WarmUp
from minintk.solve import Solution, solve_gram, solve_lsqr
from minintk.spec import (
    GELU,
    Abs,
    AvgPool,
    BatchNorm,
    Conv1d,
    Conv2d,
    Dense,
    Erf,
    Flatten,
    GlobalAvgPool,
    Identity,
    LayerNorm,
    LeakyReLU,
    MaxPool,
    ReLU,
    Residual,
    Sequential,
    Sigmoid,
    Sin,
    Softplus,
    Tanh,
)
from minintk.spectral_descent import SpectralDescent
from minintk.structure import UnsupportedLayer
from minintk.sweeps import Table, sweep
from minintk.training import Snapshot, State, train
from minintk.transfer import Transfer, learning_rate_transfer

__all__ = [
    "ABC",
    "GELU",
    "NTK",
    "SGD",
    "Abs",
    "Adam",
    "Array",
    "AvgPool",
    "BatchNorm",
    "Centred",
    "Conv1d",
    "Conv2d",
    "CoordinateCheck",
    "Cosine",
    "Dense",
    "Erf",
    "Flatten",
    "GlobalAvgPool",
    "Hinge",
    "History",
    "Identity",
    "IterativelyLinearized",
    "LayerNorm",
    "LeakyReLU",
    "Linearized",
    "Logistic",
    "MaxPool",
    "MeanField",
    "MeanSquared",
    "Model",
    "Moment",
    "Moved",
    "Nesterov",
    "Network",
    "PyTorch",
    "ReLU",
    "Residual",
    "Run",
    "Sequential",
    "Shift",
    "Sigmoid",
    "Sin",
    "Snapshot",
    "SoftmaxCrossEntropy",
    "Softplus",
    "Solution",
    "Solver",
    "SpectralDescent",
    "SpectralMuP",
    "Standard",
    "State",
    "StepDecay",
    "Steps",
    "SumOfSquares",
    "Table",
    "Tanh",
    "Taylor",
    "Transfer",
    "UnsupportedLayer",
    "WarmUp",
    "checkpoints",
    "coordinate_check",
    "datasets",
    "diagnostics",
    "evaluate",
    "exponents",
    "fit",
    "flow",
    "hinge",
    "kernel_flow",
    "learning_rate_transfer",
    "logistic",
    "mse",
    "nngp",
    "ntk",
    "ntk_full",
    "softmax_cross_entropy",
    "solve_gram",
    "solve_lsqr",
    "sum_of_squares",
    "sweep",
    "train",
    "zoo",
]
