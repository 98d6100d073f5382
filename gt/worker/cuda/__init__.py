"""GT's CUDA kernels on torch's tensors: which calls they take, and their launches."""
