"""Evaluate functions of (theta, x) and their Jacobians, for networks and for models built on them.

Reading order:

    model, network              the interface of a model, and the network of a spec
    jacobian, input_jacobian    J v, J' u and J J' without forming J, and products with df/dx
    empirical                   tangent kernels at theta, in blocks under a memory bound, and NNGP kernels
    wrappers                    linearised, alpha-scaled and Taylor-expanded models
    iterative                   models linearised at a point that is updated during training
    power_series                arithmetic of truncated power series
    taylor                      a network along theta_0 + t d, as a power series in t
"""
