"""gt.guava trains: every split of the workers gives the losses of PyTorch's plain loop, and a run
that goes on from a checkpoint ends as one that was never interrupted."""

import guava_models
import pytest
import torch
from spread_session import workers

import gt
from gt.guava import DistributedConfig, Orchestrator

EPOCHS = 2
# By workers: flags, and the loader's batches that a step takes.
SPLITS = {
    1: [({}, 1)],
    2: [
        ({}, 2),
        ({"model_parallel": True}, 1),
        ({"pipeline_parallel": True, "micro_batches": 3}, 3),
        ({"tensor_parallel": True}, 1),
        ({"gradient_checkpointing": True}, 2),
        ({"max_grad_norm": None}, 2),
    ],
    3: [
        ({}, 3),
        ({"model_parallel": True, "pipeline_parallel": True}, 4),
        ({"tensor_parallel": True, "tensor_parallel_size": 3}, 1),
    ],
    4: [
        ({}, 4),
        ({"model_parallel": True}, 1),
        ({"tensor_parallel": True}, 2),
        ({"tensor_parallel": True, "pipeline_parallel": True, "micro_batches": 2}, 2),
    ],
}
# The library, a model written in it, batches for it.
MODELS = [
    (gt, guava_models.classifier, guava_models.points),
    (torch, guava_models.transformer, guava_models.tokens),
]


def trained(model, batches, count, folder, *, epochs=EPOCHS, resume=None, **settings):
    """Measurements of a run with `count` workers."""
    config = DistributedConfig(
        **{
            "num_workers": count,
            "learning_rate": 1e-2,
            "checkpoint_dir": str(folder),
            "save_interval": 0,
            **settings,
        }
    )
    orchestrator = Orchestrator(config)
    orchestrator.register_model(model)
    return orchestrator.start_training(batches, epochs, resume=resume)


def two_copies(lib, make):
    """A model of `lib` and one of PyTorch's with the same weights."""
    torch.manual_seed(3)
    theirs = make(torch)
    ours = make(lib)
    weights = {name: lib.tensor(value.numpy()) for name, value in theirs.state_dict().items()}
    ours.load_state_dict(weights)
    return ours, theirs


@pytest.mark.parametrize("count", SPLITS)
def test_every_split_gives_the_losses_of_the_plain_loop(count, tmp_path):
    with workers(count):
        for lib, make, batches_of in MODELS:
            batches = batches_of(3, 6)
            for number, (flags, batches_a_step) in enumerate(SPLITS[count]):
                before = executed()
                ours, theirs = two_copies(lib, make)
                folder = tmp_path / f"{lib.__name__}{number}"
                metrics = trained(ours, batches, count, folder, **flags)
                busy = [now - then for now, then in zip(executed(), before, strict=True)]
                limit = flags.get("max_grad_norm", 1.0)
                expected = guava_models.plain_losses(
                    theirs, batches, EPOCHS, batches_a_step, limit=limit
                )
                assert metrics.losses == pytest.approx(expected, rel=2e-5), (lib, flags)
                assert expected[-1] < expected[0]
                assert min(busy) > 0, (lib, flags, busy)


def executed():
    """Instructions that each worker has executed."""
    return [one["executed"] for one in gt.debug.get_worker_stats()]


def test_a_run_that_goes_on_ends_to_the_bit_as_one_that_was_never_interrupted(tmp_path):
    loader = torch.utils.data.DataLoader(Noisy(22), batch_size=4, shuffle=True)
    whole = {}

    def run(lib, folder, count, epochs, **settings):
        """A model with dropout, of other weights each time, on shuffled and noisy samples."""
        torch.manual_seed(5)
        gt.manual_seed(5)
        model = dropped(lib)
        metrics = trained(model, loader, count, folder, epochs=epochs, **settings)
        return metrics.losses, [one.tolist() for one in model.parameters()]

    with workers(2):
        for lib in (gt, torch):
            cut = tmp_path / lib.__name__
            whole[lib], ended = run(lib, tmp_path / "whole", 2, 4)
            begun, _ = run(lib, cut, 2, 2, save_interval=5)
            rest, resumed = run(lib, cut, 2, 4, save_interval=6, resume="latest")
            last, _ = run(lib, cut, 2, 4, resume=cut / "step_12")
            assert len(whole[lib]) == 12  # the last step of each epoch takes what is left
            assert begun == whole[lib][:6]
            assert rest == whole[lib][5:]
            assert resumed == ended
            assert last == []
    with workers(4):
        for lib in (gt, torch):
            saved = tmp_path / lib.__name__ / "step_5"
            other, _ = run(lib, tmp_path / "4", 4, 4, resume=saved, tensor_parallel=True)
            more, _ = run(lib, tmp_path / "4", 4, 2, resume=saved)
            assert other == pytest.approx(whole[lib][5:], rel=2e-5)  # data 2, tensor 2
            assert len(more) == 1  # a step takes four batches, of which two are left


class Noisy(torch.utils.data.Dataset):
    """Samples that draw from PyTorch's generator whenever they are looked at."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, place):
        return torch.full((8,), place / self.count) + 0.1 * torch.rand(8), place % 5


def dropped(lib):
    """A classifier whose masks draw from GT's generator."""
    nn = lib.nn
    return nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.3), nn.GELU(), nn.Linear(32, 5))
