"""PyTorch's own operator samples (op_db) driven through GT, with PyTorch as the oracle; no tests here."""
