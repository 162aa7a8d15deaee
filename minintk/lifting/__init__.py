"""Convert networks from elsewhere (torch.nn, Flax, or arrays) with `lift`; convert weights back with `unlift`."""
