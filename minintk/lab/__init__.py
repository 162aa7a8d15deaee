"""Experiment on many networks: checks of the theory, sweeps, scripts of papers, and the command line."""
