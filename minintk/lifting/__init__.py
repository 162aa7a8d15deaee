"""Convert networks trained elsewhere (torch.nn, Flax, or arrays) and convert weights back: `lift` and `unlift`."""
