"""Convert networks from elsewhere (torch.nn, Flax, or arrays) with `lift`, and convert weights back with `unlift`."""
