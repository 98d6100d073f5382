"""Operators of GT's own for the generic instruction (gt/aten/own.txt), and their gradients.

A function runs in two ways: without autograd, as fast as it goes, keeping what its gradient reads;
and under autograd, where a gradient of higher order or of another result is asked for, as plain
operators of PyTorch's.
"""

from collections.abc import Callable

from torch import Tensor

from gt.worker import torch_attention, torch_pooling, torch_recurrent

FORWARD: dict[str, Callable[..., Tensor | tuple[Tensor, ...]]] = {
    "attention": torch_attention.attention,
    "lstm_layer": torch_recurrent.lstm_layer,
    "gru_layer": torch_recurrent.gru_layer,
    "rnn_layer": torch_recurrent.rnn_layer,
}
# PyTorch's operators, of the same values, where GT has a faster kernel for some operands.
FASTER: dict[str, Callable[..., Tensor | tuple[Tensor, ...]]] = {
    "max_pool2d_with_indices": torch_pooling.max_pool2d_with_indices,
}
BACKWARD: dict[str, Callable[..., Tensor | tuple[Tensor, ...]]] = {
    "attention_backward": torch_attention.attention_backward,
    "lstm_layer_backward": torch_recurrent.lstm_layer_backward,
    "gru_layer_backward": torch_recurrent.gru_layer_backward,
    "rnn_layer_backward": torch_recurrent.rnn_layer_backward,
}
