"""Convert networks trained elsewhere (torch.nn, Flax or arrays), and back: `minintk.lift` and `minintk.unlift`."""
