"""Propagate kernels through the layers.  Layers become steps that act on rows and on pairs of rows.

Reading order:

    state         the state between layers: rows, pairs of rows, steps
    rules         `lower`: the steps of each layer
    duals         ReLU and its family in closed form
    closed_forms  other activations in closed form, and the table of all activations
    scalar_forms  the closed forms for pairs of vectors and of pixels, shared by NumPy, Numba and CUDA
    textbook_dual a user's activation, given by two formulas
    quadrature    any other activation, by a series with a known error
    requests      the inputs and the kernels of one call, and the memory that they need
    range_checks  the valid range of inputs, and errors outside it
    unit_rows     rows as unit vectors near one point
    arcs          arcsines by polynomials, for compiled code
"""
