"""The code that Guava's paper shows, typed as it stands there, with another module in the import.

Beside the import differ, where a test runs it: sizes, which are those of a large GPU there;
addresses, since no test listens on a network; and `DistributedConfig(...)`, whose dots stand for
fields. Names that the paper leaves to its reader (`your_dataloader`, `large_model`, `YourDataset`)
are in `given`.
"""

QUICK_START = """
from gt.guava import DistributedConfig, Orchestrator
import torch.nn as nn

# Your model
class MyTransformer(nn.Module):
    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.transformer = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(d_model, nhead=8),
            num_layers=6
        )
        self.output = nn.Linear(d_model, vocab_size)

    def forward(self, x):
        x = self.embedding(x)
        x = self.transformer(x)
        return self.output(x)

# Configure distributed training
config = DistributedConfig(
    vocab_size=50000,
    d_model=512,
    batch_size=32,
    data_parallel=True,  # Use data parallelism
    num_workers=torch.cuda.device_count()
)

# Create orchestrator
orchestrator = Orchestrator(config)

# Register your model
model = MyTransformer(config.vocab_size, config.d_model)
orchestrator.register_model(model)

# Start training
orchestrator.start_training(your_dataloader, num_epochs=10)
"""

ORCHESTRATOR_NODE = """
from gt.guava import DistributedConfig, Orchestrator

config = DistributedConfig(
    vocab_size=50000,
    d_model=512,
    num_workers=4,  # Total GPUs across all machines
    master_ip="192.168.1.100",
    master_port=29500,
    data_parallel=True
)

orchestrator = Orchestrator(config, mode='orchestrator')
orchestrator.register_model(model)
orchestrator.start_training(dataloader, num_epochs=10)
"""

WORKER_NODE = """
from gt.guava import NetworkWorker, DistributedConfig

config = DistributedConfig.from_env()  # Load from environment

# Start worker process
worker = NetworkWorker(
    gpu_id=0,  # Local GPU ID
    config=config,
    master_ip="192.168.1.100",
    master_port=29500
)

worker.connect_and_train()  # Auto-reconnects on failures
"""

MODEL_PARALLEL = """
config = DistributedConfig(
    vocab_size=50000,
    d_model=4096,  # Large model
    n_layers=48,
    num_workers=4,
    model_parallel=True,  # Split layers across GPUs
    pipeline_parallel=True,  # Enable pipelining
    micro_batches=4  # Pipeline micro-batches
)

orchestrator = Orchestrator(config)
orchestrator.register_model(large_model)
orchestrator.start_training(dataloader, num_epochs=10)
"""

CONFIGURATION = """
from gt.guava import DistributedConfig

config = DistributedConfig(
    # Model architecture
    vocab_size=50257,
    d_model=768,
    n_heads=12,
    n_layers=12,
    d_ff=3072,
    max_seq_len=1024,
    dropout=0.1,

    # Training hyperparameters
    batch_size=16,
    learning_rate=3e-4,
    weight_decay=0.01,
    max_grad_norm=1.0,
    use_amp=False,

    # Distributed setup
    num_workers=4,
    master_ip="localhost",
    master_port=29500,

    # Parallelism strategy
    data_parallel=True,
    model_parallel=False,
    pipeline_parallel=False,
    tensor_parallel=False,

    # Checkpointing
    checkpoint_dir="./checkpoints",
    save_interval=1000,
)

# Auto-adapt to available GPUs
config.adapt_to_gpus(torch.cuda.device_count())
"""

CUSTOM_LOADER = """
from torch.utils.data import DataLoader

# Your custom dataset
dataset = YourDataset(...)
dataloader = DataLoader(dataset, batch_size=32, shuffle=True)

# Use with orchestrator
orchestrator = Orchestrator(config)
orchestrator.register_model(model)
orchestrator.start_training(dataloader, num_epochs=10)
"""

CUSTOM_MODEL = """
from gt.guava import DistributedConfig, Orchestrator

class MyCustomModel(nn.Module):
    def __init__(self):
        super().__init__()
        # Your architecture

    def forward(self, x):
        # Your forward pass
        return output

# Register with framework
model = MyCustomModel()
config = DistributedConfig(...)
orchestrator = Orchestrator(config)
orchestrator.register_model(model)
"""

MEMORY = """
# Enable gradient checkpointing for large models
config = DistributedConfig(
    use_amp=True,  # Mixed precision training
    max_grad_norm=1.0,  # Gradient clipping
)

# Monitor memory usage
orchestrator.enable_memory_profiling()
"""

BATCH_SIZE = """
# Effective batch size in data parallelism
effective_batch_size = config.batch_size * config.num_workers

# For pipeline parallelism
effective_batch_size = config.batch_size * config.micro_batches
"""

CONNECTION = """
# Increase timeouts
config.activation_timeout = 120.0  # 2 minutes
config.ack_timeout = 60.0

# Enable retries
config.max_resends = 5
config.resend_probe_interval = 10.0
"""

OUT_OF_MEMORY = """
# Reduce batch size
config.batch_size = 8

# Enable gradient checkpointing
# (implement in your model)

# Use mixed precision
config.use_amp = True
"""


def executed(block, names):
    exec(compile(block, "the paper", "exec"), names)
    return names


SIZES = {"vocab_size=50000": "vocab_size=128", "d_model=512": "d_model=16"}


def smaller(block, **others):
    for written, used in {**SIZES, **others}.items():
        block = block.replace(written, used)
    return block


def given(lib):
    """Definitions that the paper's reader already has, in `torch` or `gt`."""
    nn, data = lib.nn, lib.utils.data

    class YourDataset(data.Dataset):
        """Tokens [t], each followed by its target."""

        def __init__(self, *_):
            self.rows = [[(start + place) % 128 for place in range(5)] for start in range(64)]

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, place):
            row = self.rows[place]
            return lib.tensor(row[:-1]), lib.tensor(row[1:])

    lib.manual_seed(0)
    model = nn.Sequential(nn.Embedding(128, 16), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 128))
    loader = data.DataLoader(YourDataset(), batch_size=16)
    return {
        "torch": lib,
        "nn": nn,
        "model": model,
        "large_model": model,
        "dataloader": loader,
        "your_dataloader": loader,
        "YourDataset": YourDataset,
    }
