"""gt.guava trains the usual families of PyTorch's models, whose code knows nothing of workers, by
every kind of split; and goes on with each of them from a checkpoint."""

import copy

import guava_models
import pytest
import torch
from guava_families import FAMILIES
from spread_session import workers
from test_guava_training import trained

SPLITS = [
    ({}, 2),
    ({"tensor_parallel": True}, 1),
    ({"pipeline_parallel": True, "micro_batches": 2}, 2),
]


@pytest.fixture(scope="module")
def two_workers():
    with workers(2):
        yield


@pytest.mark.usefixtures("two_workers")
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_trains_by_every_split(name, tmp_path):
    make, batches_of = FAMILIES[name]
    batches = batches_of(4, 4)
    torch.manual_seed(3)
    first = make()
    for number, (flags, count) in enumerate(SPLITS):
        if name == "convolutional" and "pipeline_parallel" in flags:
            continue  # statistics of a micro-batch are not those of the step's batch
        ours, theirs = copy.deepcopy(first), copy.deepcopy(first)
        folder = tmp_path / str(number)
        metrics = trained(ours, batches, 2, folder, epochs=1, save_interval=1, **flags)
        expected = guava_models.plain_losses(theirs, batches, 1, count)
        assert metrics.losses == pytest.approx(expected, rel=2e-5), flags
    resumed = trained(
        copy.deepcopy(first), batches, 2, tmp_path / "0", epochs=1, resume=tmp_path / "0/step_1"
    )
    whole = trained(copy.deepcopy(first), batches, 2, tmp_path / "whole", epochs=1)
    assert resumed.losses == whole.losses[1:]


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_trains_by_stages_of_tensor_groups(name, tmp_path):
    make, batches_of = FAMILIES[name]
    batches = batches_of(4, 4)
    ours = make()
    theirs = copy.deepcopy(ours)
    with workers(4):
        metrics = trained(ours, batches, 4, tmp_path, tensor_parallel=True, model_parallel=True)
    assert metrics.losses == pytest.approx(
        guava_models.plain_losses(theirs, batches, 2, 1), rel=2e-5
    )
