"""What the spectrum of a kernel says about learning.

Reading order:

    modes            eigenvalues on the sphere, on the cube and on a data set
    eigenlearning    what kernel regression learns from n examples
"""
