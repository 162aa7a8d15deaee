"""Go beyond the kernel in finite networks: tensors that describe its movement, and steps of a given spectral norm."""
