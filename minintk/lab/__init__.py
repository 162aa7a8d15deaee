"""Define the command-line interface, and experiments on many networks: theory checks, sweeps and paper scripts."""
