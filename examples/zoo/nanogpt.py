"""A character-level GPT, trained with weight decay groups, warm-up and accumulated gradients."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from weights import fill


@dataclass
class GPTConfig:
    block_size: int = 16
    vocab_size: int = 27
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 32


class CausalSelfAttention(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=False)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=False)
        self.n_head, self.n_embd = config.n_head, config.n_embd

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, C = x.size()  # noqa: N806
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q, k, v = (
            one.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for one in (q, k, v)
        )  # [b, t, d] -> [b, h, t, k]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.mlp = nn.Sequential(
            nn.Linear(config.n_embd, 4 * config.n_embd),
            nn.GELU(),
            nn.Linear(4 * config.n_embd, config.n_embd),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocab_size, config.n_embd),
                "wpe": nn.Embedding(config.block_size, config.n_embd),
                "h": nn.ModuleList([Block(config) for _ in range(config.n_layer)]),
                "ln_f": nn.LayerNorm(config.n_embd),
            }
        )
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        params = {name: p for name, p in self.named_parameters() if p.requires_grad}
        groups = [
            {"params": [p for p in params.values() if p.dim() >= 2], "weight_decay": 0.1},
            {"params": [p for p in params.values() if p.dim() < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95))


def get_lr(it: int, steps: int) -> float:
    if it < 5:
        return 3e-3 * (it + 1) / 5
    return 3e-4 + 0.5 * (1 + math.cos(math.pi * (it - 5) / max(steps - 5, 1))) * 27e-4


def main(steps: int = 100) -> list[float]:
    text = "the quick brown fox jumps over the lazy dog and runs away from the old grey bear " * 8
    data = np.array([max(ord(one) - 96, 0) for one in text], dtype=np.uint16)
    rng = np.random.default_rng(0)
    config = GPTConfig()
    model = GPT(config)
    fill(model, 1)
    optimizer = model.configure_optimizers()
    losses: list[float] = []
    for it in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = get_lr(it, steps)
        for _ in range(2):
            ix = rng.integers(0, len(data) - config.block_size, 8)
            x, y = (
                torch.stack(
                    [
                        torch.from_numpy(data[i + shift : i + shift + 16].astype(np.int64))
                        for i in ix
                    ]
                )
                for shift in (0, 1)
            )
            loss = model(x, y) / 2
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item() * 2)
        if it % 50 == 0:
            print(f"iter {it}: loss {losses[-1]:.4f}")
    return losses


if __name__ == "__main__":
    main()
