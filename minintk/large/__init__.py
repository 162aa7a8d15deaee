"""What large problems need: least squares without a Gram matrix."""
