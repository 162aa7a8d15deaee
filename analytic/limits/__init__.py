"""Compute training dynamics beyond the fixed kernel: at infinite width with moving features, and at finite width.

Reading order:

    linear_problem    the parts that the limits share: layers, scales, data, a basis of directions, a solver in time
    two_layer         two linear layers: a closed differential equation
    deep_linear       any number of linear layers: mean-field theory, step by step
    nonlinear         any activation: mean-field theory by samples
    one_finite_layer  the effect of one layer of n neurons at order 1/n
    width_correction  the mean of trained networks to first order in 1/n
    finite_width      exact moments of the tangent kernel at initialisation
"""
