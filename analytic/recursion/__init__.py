"""Propagate kernels through the layers, each of which is a step for pairs of vectors.

Reading order:

    state         the state between layers: rows, pairs of rows, steps
    rules         `lower`: the steps of each layer
    duals         ReLU and its family in closed form
    closed_forms  the other activations, and the table of all
    scalar_forms  their formulas for pairs of vectors and of pixels, shared by NumPy, Numba and CUDA
    textbook_dual a user's activation, given by two formulas
    quadrature    any other activation, by a series with a known error
    requests      the matrices of one call, and their memory
    range_checks  the valid range of inputs, and errors outside it
    unit_rows     rows as unit vectors near one point
    arcs          arcsines by polynomials, for compiled code
"""
