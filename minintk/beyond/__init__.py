"""Go beyond the fixed kernel: compute how a finite network's kernel evolves, and take steps of given spectral norm."""
