"""Beyond the kernel, in finite networks: the tensors by which it moves, and steps of a given spectral norm."""
