"""Beyond the kernel, in finite networks: the tensors that describe its movement, and steps of a given spectral norm."""
