"""Queries of gt.cuda with and without a GPU: PyTorch's answers where it has them."""

import warnings

import pytest
import torch

import gt

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="PyTorch has a GPU to ask")
# Without a GPU both give the same value, or raise a RuntimeError.
ASKED = """
memory_allocated()
max_memory_allocated()
memory_reserved()
max_memory_reserved(0)
memory_allocated('cuda:0')
memory_stats()
empty_cache()
is_available()
is_bf16_supported()
is_initialized()
device_count()
manual_seed_all(0)
mem_get_info()
get_device_properties(0)
get_device_name(0)
get_device_capability()
set_per_process_memory_fraction(0.5)
current_device()
memory.memory_allocated()
"""


def answer(library, asked):
    try:
        return eval(f"c.{asked}", {"c": library.cuda})
    except RuntimeError:
        return RuntimeError


@NO_GPU
@pytest.mark.parametrize("asked", ASKED.strip().splitlines())
def test_without_a_gpu_as_pytorch(asked: str) -> None:
    assert answer(gt, asked) == answer(torch, asked)


@NO_GPU
def test_a_script_that_never_asks_whether_there_is_a_gpu() -> None:
    gt.cuda.reset_peak_memory_stats()
    gt.cuda.set_device(0)
    before, side = gt.cuda.current_stream(), gt.cuda.Stream(priority=-1)
    side.wait_stream(before)
    with gt.cuda.device(0), gt.cuda.stream(side), gt.cuda.stream(None):
        y = gt.ones(2, device="cuda") * 2
    before.wait_event(side.record_event())
    before.synchronize()
    assert side.query()
    y.record_stream(before)
    assert y.tolist() == [2.0, 2.0]


def test_with_gpus_the_workers_say_what_values_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    before = gt.cuda.memory_allocated()
    x = gt.ones(1000, 1000) + gt.ones(1000)
    assert gt.cuda.memory_allocated() - before >= x.nbytes
    assert gt.cuda.memory_stats()["allocated_bytes.all.current"] - before >= x.nbytes
    del x
    assert gt.cuda.max_memory_allocated(0) - before >= 4_000_000
    with pytest.raises(RuntimeError, match="Invalid device id: 2, of 2"):
        gt.cuda.memory_allocated(2)
    with pytest.warns(UserWarning, match="counts since the worker began"):
        gt.cuda.reset_peak_memory_stats()
    for ask, instead in [
        (gt.cuda.mem_get_info, "memory_allocated"),
        (gt.cuda.get_device_properties, "get_device_name"),
        (gt.cuda.get_device_capability, "get_device_name"),
    ]:
        with pytest.raises(gt.errors.NotSupported, match=f"gt.cuda.{instead}"):
            ask()


def test_the_switches_of_attention_are_set_within_the_older_block() -> None:
    found = []
    for library in (torch, gt):
        cuda = library.backends.cuda
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            with cuda.sdp_kernel(enable_flash=False, enable_cudnn=False):
                inside = cuda.flash_sdp_enabled(), cuda.math_sdp_enabled(), cuda.cudnn_sdp_enabled()
        (warning,) = raised
        found.append((inside, cuda.flash_sdp_enabled(), warning.category, str(warning.message)))
    assert found[0] == found[1]
