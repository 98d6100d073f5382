"""The worker: start-up, and the kernels that its loop in gt._core calls."""
