"""Provide a strict stand-in for CuPy on a machine without a GPU: arrays never convert to NumPy implicitly.

    from tests.kit.standin import xp                    # the namespace, as array_namespace finds it
    a = xp.asarray(numpy_array)               # to the device, a copy
    a.get()                                   # and back

The code runs as on a GPU (`minintk.arrays.on_host(xp)` is False), except CUDA kernels. The rules are at least as strict
as CuPy's. Arrays do not convert implicitly, do not mix with NumPy's arrays or floats, and have no method that CuPy
lacks. Results of shape () remain arrays, and `cholesky` accepts matrices that are not positive definite. `counting`
counts launches and the operations that would stall a GPU.

The stand-in shows that code is device-agnostic, but not that it is fast or correct on a GPU. benchmarks/gpu.py tests
results and speed on a GPU.
"""

from minintk.arrays import SCIPY, STRIDES
from tests.kit.standin.device import Counts, counting, ndarray
from tests.kit.standin.namespace import xp

SCIPY["standin"] = "tests.kit.standin.scipy"
STRIDES["standin"] = "tests.kit.standin.strides"

__all__ = ["Counts", "counting", "ndarray", "xp"]
