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
MODELS = {
    "classifier": (guava_models.classifier, guava_models.points),
    "transformer": (guava_models.transformer, guava_models.tokens),
}


def trained(model, batches, count, folder, *, epochs=EPOCHS, resume=None, **settings):
    """What a run of `count` workers measures."""
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


def twins(make):
    """A model of GT's and one of PyTorch's with the same weights."""
    torch.manual_seed(3)
    theirs = make(torch)
    ours = make(gt)
    ours.load_state_dict(guava_models.same_weights(theirs, gt))
    return ours, theirs


@pytest.mark.parametrize("count", SPLITS)
def test_every_split_gives_the_losses_of_the_plain_loop(count, tmp_path):
    with workers(count):
        for kind, (make, batches_of) in MODELS.items():
            batches = batches_of(7, 6)
            for number, (flags, batches_a_step) in enumerate(SPLITS[count]):
                before = executed()
                ours, theirs = twins(make)
                metrics = trained(ours, batches, count, tmp_path / f"{kind}{number}", **flags)
                busy = [now - then for now, then in zip(executed(), before, strict=True)]
                limit = flags.get("max_grad_norm", 1.0)
                expected = guava_models.plain_losses(
                    theirs, batches, EPOCHS, batches_a_step, limit=limit
                )
                assert metrics.losses == pytest.approx(expected, rel=2e-5), (kind, flags)
                assert expected[-1] < expected[0]
                assert min(busy) > 0.1 * max(busy), (kind, flags, busy)


def executed():
    """Instructions that each worker has executed."""
    return [one["executed"] for one in gt.debug.get_worker_stats()]


def test_a_run_that_goes_on_ends_to_the_bit_as_one_that_was_never_interrupted(tmp_path):
    batches = guava_models.tokens(6, 4)
    with workers(2):
        weights = twins(lambda lib: guava_models.transformer(lib, dropout=0.2))[1].state_dict()

        def run(folder, loader, epochs, **settings):
            gt.manual_seed(5)
            torch.manual_seed(5)
            model = guava_models.transformer(gt, dropout=0.2)
            model.load_state_dict({name: gt.tensor(one.numpy()) for name, one in weights.items()})
            metrics = trained(model, loader, 2, folder, epochs=epochs, **settings)
            return metrics.losses, [one.tolist() for one in model.parameters()]

        loader = torch.utils.data.DataLoader(
            [
                (torch.from_numpy(x), torch.from_numpy(y))
                for batch in batches
                for x, y in zip(*batch, strict=True)
            ],
            batch_size=4,
            shuffle=True,
        )
        whole, ended = run(tmp_path / "whole", loader, 4, batch_size=4)
        begun, _ = run(tmp_path / "cut", loader, 2, batch_size=4, save_interval=5)
        rest, resumed = run(tmp_path / "cut", loader, 4, batch_size=4, resume="latest")
        assert len(whole) == 12
        assert begun == whole[:6]
        assert rest == whole[5:]
        assert resumed == ended
