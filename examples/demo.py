"""A tour of tensors: everything here looks and behaves as in PyTorch, and runs on GT's workers."""

import numpy as np

import gt

# Tensors from lists, from numpy, from nothing
a = gt.tensor([1, 2, 3, 4])
b = gt.tensor([5, 6, 7, 8])
print("a + b        ", (a + b).data.numpy())  # [ 6  8 10 12]
print("from numpy   ", gt.from_numpy(np.eye(2, dtype=np.float32)).tolist())
gt.manual_seed(0)
x = gt.randn(2, 3)
print("random       ", x)

# Arithmetic, broadcasting, comparison
print("mixed        ", (a * 2 - b / 4) ** 2)
print("matmul       ", (x @ x.T).shape)
print("broadcast    ", (gt.ones(3, 1) * gt.arange(4)).tolist())
print("where        ", gt.where(x > 0, x, 0.0))

# Reductions and shapes
print("mean by row  ", x.mean(dim=1, keepdim=True).shape)
print("largest      ", x.argmax(dim=1).tolist())
print("reshaped     ", gt.arange(6).reshape(2, 3).T.tolist())
print("joined       ", gt.cat([a, b]).tolist())

# Indexing, and writing through views
grid = gt.zeros(3, 3)
grid[1] = 5.0
grid[:, 0] += 1.0
print("after writing", grid.tolist())
print("by a mask    ", grid[grid > 1].tolist())

# Gradients
w = gt.tensor([1, 2, 3], requires_grad=True)
loss = (w * 2).sum()
loss.backward()
print("gradient     ", w.grad.data.numpy())  # [2. 2. 2.]
with gt.no_grad():
    w -= 0.1 * w.grad
print("after a step ", w.detach())
