"""The native backend: a worker without PyTorch, by numpy's products and gt._kernels."""
