"""Provide the modules linalg and special of cupyx.scipy for arrays of the stand-in."""
