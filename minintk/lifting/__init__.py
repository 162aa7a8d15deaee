"""Networks trained elsewhere, from torch.nn, Flax or arrays, and back: `minintk.lift` and `minintk.unlift`."""
