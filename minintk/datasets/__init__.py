"""Data sets: real digits inside the package, readers for MNIST and CIFAR-10, generators.

>>> import minintk as mn
>>> x, y = mn.datasets.digits().parity()
>>> x.shape, y.shape
((1797, 64), (1797, 1))
"""

from minintk.datasets.dataset import Dataset
from minintk.datasets.embedded import digits
from minintk.datasets.generators import cube, sphere, teacher_student
from minintk.datasets.read_cifar import cifar10
from minintk.datasets.read_mnist import mnist

__all__ = ["Dataset", "cifar10", "cube", "digits", "mnist", "sphere", "teacher_student"]
