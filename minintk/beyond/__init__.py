"""Theory beyond the kernel, of finite networks: the hierarchy of tensors by which a kernel moves."""
