"""List the public names and their modules.  `__init__` reads this file and imports each name on first use."""

import pathlib

from . import datasets, diagnostics, more_layers, testing
from .arrays import Array
from .beyond.hierarchy import hierarchy
from .beyond.spectral_descent import Muon, SpectralDescent
from .diagnostics.curvature import max_learning_rate
from .examination.examine import examine
from .lab.experiments.coordinate_check import CoordinateCheck, coordinate_check
from .lab.experiments.lr_transfer import Transfer, learning_rate_transfer
from .lab.experiments.sweeps import Table, sweep
from .large.least_squares import Solution, solve_gram, solve_lsqr
from .lifting.lift import lift
from .lifting.unlift import unlift
from .models.empirical import nngp, ntk, ntk_full
from .models.iterative import IterativelyLinearized, Moved
from .models.model import Model
from .models.network import Network
from .models.wrappers import Centred, Linearized, Taylor
from .spec import zoo
from .spec.abc_parametrization import ABC, exponents
from .spec.activations import (
    GELU,
    ABRelu,
    Abs,
    Cos,
    Erf,
    Exp,
    Gaussian,
    Hermite,
    LeakyReLU,
    Monomial,
    Polynomial,
    Rbf,
    RectifiedMonomial,
    ReLU,
    Sigmoid,
    Sign,
    Sin,
    Softplus,
    Swish,
    Tanh,
)
from .spec.layers import (
    Activation,
    AvgPool,
    BatchNorm,
    Conv1d,
    Conv2d,
    Dense,
    Flatten,
    GlobalAvgPool,
    Identity,
    Layer,
    LayerNorm,
    MaxPool,
    Residual,
    Sequential,
)
from .spec.parametrization import NTK, MeanField, Parametrization, PyTorch, SpectralMuP, Standard
from .spec.sequences import GlobalSelfAttention, MaskedAvgPool
from .spec.shapes import UnsupportedLayer
from .spec.structure import Concat, Dropout, Product, Scale, Sum
from .training import checkpoints
from .training.batches import Shift
from .training.fit import Run, evaluate, fit
from .training.flows import flow, kernel_flow
from .training.history import History
from .training.integrators import Moment, Solver, Steps
from .training.kernel_descent import kernel_descent
from .training.losses import (
    Hinge,
    Logistic,
    Loss,
    MeanSquared,
    SoftmaxCrossEntropy,
    SumOfSquares,
    hinge,
    logistic,
    mse,
    softmax_cross_entropy,
    sum_of_squares,
)
from .training.optimizers import SGD, Adam, Nesterov, Optimizer
from .training.schedules import Cosine, StepDecay, WarmUp
from .training.train import Snapshot, State, train

__version__: str

def other_analytic(home: pathlib.Path = ...) -> str | None: ...

__all__ = [
    "ABC", "GELU", "NTK", "SGD", "ABRelu", "Abs", "Activation", "Adam", "Array", "AvgPool", "BatchNorm", "Centred",
    "Concat", "Conv1d", "Conv2d", "CoordinateCheck", "Cos", "Cosine", "Dense", "Dropout", "Erf", "Exp", "Flatten",
    "Gaussian", "GlobalAvgPool", "GlobalSelfAttention", "Hermite", "Hinge", "History", "Identity",
    "IterativelyLinearized", "Layer", "LayerNorm", "LeakyReLU", "Linearized", "Logistic", "Loss", "MaskedAvgPool",
    "MaxPool", "MeanField", "MeanSquared", "Model", "Moment", "Monomial", "Moved", "Muon", "Nesterov", "Network",
    "Optimizer", "Parametrization", "Polynomial", "Product", "PyTorch", "Rbf", "ReLU", "RectifiedMonomial",
    "Residual", "Run", "Scale", "Sequential", "Shift", "Sigmoid", "Sign", "Sin", "Snapshot", "SoftmaxCrossEntropy",
    "Softplus", "Solution", "Solver", "SpectralDescent", "SpectralMuP", "Standard", "State", "StepDecay", "Steps",
    "Sum", "SumOfSquares", "Swish", "Table", "Tanh", "Taylor", "Transfer", "UnsupportedLayer", "WarmUp",
    "checkpoints", "coordinate_check", "datasets", "diagnostics", "evaluate", "examine", "exponents", "fit", "flow",
    "hierarchy", "hinge", "kernel_descent", "kernel_flow", "learning_rate_transfer", "lift", "logistic",
    "max_learning_rate", "more_layers", "mse", "nngp", "ntk", "ntk_full", "softmax_cross_entropy", "solve_gram",
    "solve_lsqr", "sum_of_squares", "sweep", "testing", "train", "unlift", "zoo",
]  # fmt: skip
