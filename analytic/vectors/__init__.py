"""The recursion on vectors: fully connected networks, one angle for every pair of inputs.

Reading order:

    state         what is carried through the layers: rows, pairs of rows, steps
    rules         `lower`: the steps of each layer
    duals         ReLU and its family, in closed form
    closed_forms  the others, and the table of all
    scalar_forms  their formulas, for pairs of vectors and of pixels: NumPy, Numba and CUDA get their code from it
    textbook_dual an activation of one's own, by two formulas
    quadrature    any other activation, by a series of known error
    results       the matrices of one call, and the memory for them
    ranges        which inputs are in range, and errors for the others
    unit_rows     rows as unit vectors near one point
    plan          pairs from the first layer to the kernels' entries
    engine        tiles of the Gram matrix, on all cores
    arcs          arcs by polynomials, for compiled code
"""
