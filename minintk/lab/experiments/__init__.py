"""Run experiments on many networks: checks of width scaling, grids of runs, and scripts that reproduce papers.

Reading order:

    layer_sizes         measures features and weights in networks of several widths or depths
    coordinate_check    checks that features and weights keep their size as the width or the depth grows
    lr_transfer         checks that the best learning rate does not change as the width or the depth grows
    sweeps              runs a grid, and saves each run when it is finished
    costs               estimates the remaining time of a sweep
    named               returns networks, parametrizations and data by name, for the command line
    papers, processes   run the scripts of examples/, and sweeps in several processes
"""
