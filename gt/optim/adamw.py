"""`gt.optim.adamw.AdamW`: PyTorch's path to it; the class stands in adam.py."""

from gt.optim.adam import AdamW

__all__ = ["AdamW"]
