"""Correspondence of PyTorch's dtypes and devices with GT's."""

import torch

from gt import _core

DEVICE_TYPE = "mux"
# PyTorch's dtype -> GT's.
DTYPES: dict[torch.dtype, _core.dtype] = {
    torch.bool: _core.bool,
    torch.uint8: _core.uint8,
    torch.int8: _core.int8,
    torch.int16: _core.int16,
    torch.int32: _core.int32,
    torch.int64: _core.int64,
    torch.float16: _core.float16,
    torch.bfloat16: _core.bfloat16,
    torch.float32: _core.float32,
    torch.float64: _core.float64,
    torch.complex64: _core.complex64,
    torch.complex128: _core.complex128,
}
TORCH_DTYPES = {ours: theirs for theirs, ours in DTYPES.items()}


def dtype_of(dtype: torch.dtype | None) -> _core.dtype:
    """GT's dtype; the default one for None.

    Raises:
        NotImplementedError: GT has no such dtype.
    """
    if dtype is None:
        dtype = torch.get_default_dtype()
    gt_dtype = DTYPES.get(dtype)
    if gt_dtype is None:
        raise NotImplementedError(
            f"{dtype} is no dtype of the device {DEVICE_TYPE}: keep it on cpu"
        )
    return gt_dtype
