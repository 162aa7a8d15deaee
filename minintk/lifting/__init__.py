"""Convert networks of other libraries (torch.nn, Flax) with `lift`, and convert weights back with `unlift`."""
