"""spectra."""
