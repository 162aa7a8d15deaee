"""Compute how a finite network's kernel evolves, and take optimiser steps with a given spectral norm."""
