"""Go beyond the fixed kernel in finite networks: the kernel's evolution, and steps of a given spectral norm."""
