"""`gt.optim.adamw.AdamW`, PyTorch's path to the class, which is in adam.py."""

from gt.optim.adam import AdamW

__all__ = ["AdamW"]
