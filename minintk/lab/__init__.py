"""The laboratory: checks of the theory, sweeps, papers, and the command line."""
