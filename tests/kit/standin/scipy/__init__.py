"""Provide the modules of cupyx.scipy for arrays of the stand-in."""
