"""The recursion through the layers: each layer as a step for pairs of vectors, each activation's expectation.

Reading order:

    state         what is carried through the layers: rows, pairs of rows, steps
    rules         `lower`: the steps of each layer
    duals         ReLU and its family, in closed form
    closed_forms  the others, and the table of all
    scalar_forms  their formulas, for pairs of vectors and of pixels: NumPy, Numba and CUDA get their code from it
    textbook_dual an activation of one's own, by two formulas
    quadrature    any other activation, by a series of known error
    requests      the matrices of one call, and the memory for them
    range_checks  which inputs are in range, and errors for the others
    unit_rows     rows as unit vectors near one point
    arcs          arcs by polynomials, for compiled code
"""
