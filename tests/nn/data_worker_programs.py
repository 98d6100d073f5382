"""Datasets of test_data_workers.py that a process that is not forked reads from a pickle."""

import os
import signal

import numpy as np

import gt


class Items:
    """Eight items that a function makes of their index."""

    def __init__(self, item):
        self.item = item

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.item(index)


class Scaled(gt.utils.data.Dataset):
    """Rows of a tensor, computed with GT's own functions."""

    def __init__(self):
        self.rows = gt.arange(12.0).reshape(6, 2)

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return self.rows[index] * 2, gt.tensor(index), np.full(2, index)


class TwoTexts(Exception):
    """An error whose class cannot be made of a text alone."""

    def __init__(self, first, second):
        super().__init__(first, second)


def exits(index):
    return os._exit(3) if index == 3 else index


def is_killed(index):
    return os.kill(os.getpid(), signal.SIGKILL) if index == 3 else index


def breaks(index):
    return os.kill(os.getpid(), signal.SIGSEGV) if index == 3 else index
