"""Run experiments on many networks: theory checks, sweeps and paper scripts.  Also defines the command line."""
