"""minintk: a neural network in every form the theory of wide networks talks about, by hand, in NumPy or CuPy."""

import warnings
from pathlib import Path

from minintk import datasets, diagnostics, testing
from minintk.arrays import Array
from minintk.diagnostics.curvature import max_learning_rate
from minintk.experiments.coordinate_check import CoordinateCheck, coordinate_check
from minintk.experiments.lr_transfer import Transfer, learning_rate_transfer
from minintk.experiments.sweeps import Table, sweep
from minintk.fast.door import open_door
from minintk.models.empirical import nngp, ntk, ntk_full
from minintk.models.iterative import IterativelyLinearized, Moved
from minintk.models.lift import lift, unlift
from minintk.models.network import Model, Network
from minintk.models.wrappers import Centred, Linearized, Taylor
from minintk.spec import zoo
from minintk.spec.abc_parametrization import ABC, exponents
from minintk.spec.activations import *
from minintk.spec.layers import *
from minintk.spec.parametrization import NTK, MeanField, Parametrization, PyTorch, SpectralMuP, Standard
from minintk.spec.sequences import *
from minintk.spec.shapes import UnsupportedLayer
from minintk.spec.structure import *
from minintk.training import checkpoints
from minintk.training.batches import Shift
from minintk.training.fit import Run, evaluate, fit
from minintk.training.flows import flow, kernel_flow
from minintk.training.hierarchy import hierarchy
from minintk.training.history import History
from minintk.training.integrators import Moment, Solver, Steps
from minintk.training.kernel_descent import kernel_descent
from minintk.training.least_squares import Solution, solve_gram, solve_lsqr
from minintk.training.losses import (
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
from minintk.training.optimizers import SGD, Adam, Nesterov, Optimizer
from minintk.training.schedules import Cosine, StepDecay, WarmUp
from minintk.training.spectral_descent import Muon, SpectralDescent
from minintk.training.train import Snapshot, State, train


def other_analytic(home: Path = Path(__file__).parents[1]) -> str | None:
    """What is wrong with the package `analytic` beside minintk, and the remedy; None where it is this distribution's.

    Another one of that name, installed over ours, puts its `__init__.py` there, and takes it along when it is removed.

    >>> other_analytic() is None
    True
    """
    face = home / "analytic" / "__init__.py"
    there = face.exists()
    try:
        if not face.parent.is_dir() or (there and b"from analytic.kernel import" in face.read_bytes()):
            return None  # ours, or minintk was taken along by itself
    except OSError:
        return None  # files may not be read here, as in a process that grades
    what = "is of another distribution, installed over minintk's" if there else "is missing: another one was removed"
    return f"{face} {what}: pip uninstall -y analytic, then pip install --force-reinstall --no-deps minintk"


if (_problem := other_analytic()) is not None:
    warnings.warn(_problem, RuntimeWarning, stacklevel=2)

__version__ = "0.1.0"  # as in pyproject.toml

open_door()  # networks run by the cheaper ways of minintk.fast from here on

__all__ = [
    "ABC", "GELU", "NTK", "SGD", "ABRelu", "Abs", "Activation", "Adam", "Array", "AvgPool", "BatchNorm", "Centred",
    "Concat", "Conv1d", "Conv2d", "CoordinateCheck", "Cos", "Cosine", "Dense", "Dropout", "Erf", "Exp", "Flatten",
    "Gaussian", "GlobalAvgPool", "GlobalSelfAttention", "Hermite", "Hinge", "History", "Identity",
    "IterativelyLinearized", "Layer", "LayerNorm", "LeakyReLU", "Linearized", "Logistic", "Loss", "MaskedAvgPool",
    "MaxPool", "MeanField", "MeanSquared", "Model", "Moment", "Monomial", "Moved", "Muon", "Nesterov", "Network",
    "Optimizer", "Parametrization", "Polynomial", "Product", "PyTorch", "Rbf", "ReLU", "RectifiedMonomial", "Residual",
    "Run", "Scale", "Sequential", "Shift", "Sigmoid", "Sign", "Sin", "Snapshot", "SoftmaxCrossEntropy", "Softplus",
    "Solution", "Solver", "SpectralDescent", "SpectralMuP", "Standard", "State", "StepDecay", "Steps", "Sum",
    "SumOfSquares", "Swish", "Table", "Tanh", "Taylor", "Transfer", "UnsupportedLayer", "WarmUp", "checkpoints",
    "coordinate_check", "datasets", "diagnostics", "evaluate", "exponents", "fit", "flow", "hierarchy", "hinge",
    "kernel_descent", "kernel_flow", "learning_rate_transfer", "lift", "logistic", "max_learning_rate", "mse", "nngp",
    "ntk", "ntk_full", "softmax_cross_entropy", "solve_gram", "solve_lsqr", "sum_of_squares", "sweep", "testing",
    "train", "unlift", "zoo",
]  # fmt: skip
