"""`torch.utils.data.dataloader`'s path to DataLoader; nothing is defined here."""

from gt.compat import misses
from gt.utils.data.collate import default_collate
from gt.utils.data.loader import DataLoader
from gt.utils.data.worker_process import get_worker_info

__all__ = ["DataLoader", "default_collate", "get_worker_info"]


__getattr__ = misses.hook(__name__)
