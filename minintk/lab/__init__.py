"""Experiment on many networks: check the theory, run sweeps and the scripts of papers; define the command line."""
