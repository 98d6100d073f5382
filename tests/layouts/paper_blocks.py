"""Code that the papers of the tuning demo and of tensor parallelism show, as it stands there.

Dots there stand for what a reader adds; each test says what it puts in their place.
"""

STAGE = """
# All operations in this scope use pp_stage0 sharding config
with gt.signal.context('pp_stage0'):
    x = layer(x)

# Pipeline boundary - moves data to next stage
with gt.signal.context('stage0_to_stage1'):
    x = x  # Triggers data movement from GPUs 0-1 → GPUs 2-3
"""

PATTERNS = """
# Column-parallel projection
with gt.signal.context('pp_stage0_colpar'):
    qkv = x @ self.qkv_weight

# Row-parallel projection
with gt.signal.context('pp_stage0_rowpar'):
    output = qkv @ self.out_weight
"""

CONFIGURATION = """
import os
os.environ['GT_CONFIG'] = 'examples/tuning_demo/sharding_config.yaml'

import gt
gt.gpu_workers(8)  # Auto-start with 8 GPUs
"""

GROUPS = """
# Pipeline stage 0 - all layers on GPUs 0-1
pp_stage0:
  shard:
    axis: 0
    workers: [0, 1]

# Column parallel - splits output features
pp_stage0_colpar:
  shard:
    axis: 1
    workers: [0, 1]

# Row parallel - splits input features
pp_stage0_rowpar:
  shard:
    axis: 0
    workers: [0, 1]
"""

TWO_STAGES = """
# Stage 0: GPUs 0-3
pp_stage0:
  workers: [0, 1, 2, 3]

# Stage 1: GPUs 4-7
pp_stage1:
  workers: [4, 5, 6, 7]
"""

EIGHT_STAGES = """
pp_stage0:
  workers: [0]  # 1 layer per GPU
pp_stage1:
  workers: [1]
...
pp_stage7:
  workers: [7]
"""

OPTIMIZER = """
# In train.py
class SGD:
    def __init__(self, parameters, lr=0.001):
        self.parameters = parameters
        self.lr = lr

    def step(self):
        for param in self.parameters:
            # param = param - lr * param.grad
            # Requires in-place operations in GT
            pass

optimizer = SGD(model.parameters(), lr=0.0001)
optimizer.step()
"""
