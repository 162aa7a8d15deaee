"""Load data sets (the packaged digits and sentences, MNIST, CIFAR-10), and draw random points.

Reading order:

    dataset        examples with labels, and the transformations for experiments
    packaged       the package's 8 x 8 digits and sentences, word vectors, and points on a sphere or a cube
    published      functions that find, download and read the files of MNIST and CIFAR-10

>>> import minintk as mn
>>> x, y = mn.datasets.digits().parity()
>>> x.shape, y.shape
((1797, 64), (1797, 1))
"""

from minintk.datasets.dataset import Dataset
from minintk.datasets.packaged import Text, cube, digits, sentences, sphere
from minintk.datasets.published import cifar10, mnist

__all__ = ["Dataset", "Text", "cifar10", "cube", "digits", "mnist", "sentences", "sphere"]
