"""PyTorch's own operator samples (op_db) driven through GT, PyTorch as the oracle; no tests."""
