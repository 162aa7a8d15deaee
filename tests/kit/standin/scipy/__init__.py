"""Offer what cupyx.scipy offers, for arrays of the stand-in."""
