"""A BERT-like encoder predicts masked tokens of sequences that follow a rule."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from weights import fill

PAD, MASK, FIRST, VOCABULARY, LENGTH = 0, 1, 2, 20, 12


def sequences(count: int, rng: np.random.Generator) -> np.ndarray:
    """Arithmetic progressions of tokens [count, 12], padded at the end."""
    start, stride = rng.integers(0, 18, (count, 1)), rng.integers(1, 4, (count, 1))
    tokens = FIRST + (start + stride * np.arange(LENGTH)) % 18
    lengths = rng.integers(8, LENGTH + 1, (count, 1))
    return np.where(np.arange(LENGTH) < lengths, tokens, PAD)


def masked(tokens: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """15 % of the tokens hidden, mostly by MASK; labels are -100 elsewhere."""
    chosen = (rng.random(tokens.shape) < 0.15) & (tokens != PAD)
    chosen[:, 1] = True
    labels = np.where(chosen, tokens, -100)
    inputs = np.where(chosen & (rng.random(tokens.shape) < 0.8), MASK, tokens)
    other = chosen & (inputs != MASK) & (rng.random(tokens.shape) < 0.5)
    return np.where(other, rng.integers(FIRST, VOCABULARY, tokens.shape), inputs), labels


class BertEmbeddings(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCABULARY, width, padding_idx=PAD)
        self.position_embeddings = nn.Embedding(LENGTH, width)
        self.LayerNorm = nn.LayerNorm(width, eps=1e-12)
        self.register_buffer("position_ids", torch.arange(LENGTH).expand((1, -1)))

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        position_ids = self.position_ids[:, : input_ids.size(1)]
        embeddings = self.word_embeddings(input_ids) + self.position_embeddings(position_ids)
        return self.LayerNorm(embeddings)


class BertForMaskedLM(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.embeddings = BertEmbeddings(width)
        layer = nn.TransformerEncoderLayer(
            width, heads, dim_feedforward=64, dropout=0.0, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers=layers, enable_nested_tensor=False)
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.bias = nn.Parameter(torch.zeros(VOCABULARY))

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embeddings(input_ids)
        hidden = self.encoder(hidden, src_key_padding_mask=input_ids.eq(PAD))  # [b, t, d]
        return F.linear(
            self.transform(hidden), self.embeddings.word_embeddings.weight, self.bias
        )  # [b, t, d] -> [b, t, v]


def main(steps: int = 100) -> list[float]:
    rng = np.random.default_rng(0)
    model = BertForMaskedLM()
    fill(model, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20))
    loss_fct = nn.CrossEntropyLoss(ignore_index=-100)
    losses: list[float] = []
    model.train()
    for step in range(steps):
        inputs, labels = masked(sequences(16, rng), rng)
        input_ids, labels = torch.tensor(inputs), torch.tensor(labels)
        logits = model(input_ids)
        loss = loss_fct(logits.view(-1, VOCABULARY), labels.view(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        if step % 50 == 0:
            hidden_ones = labels != -100
            right = (logits.argmax(-1)[hidden_ones] == labels[hidden_ones]).float().mean().item()
            print(f"step {step} loss {losses[-1]:.4f} right {right:.1%}")
    return losses


if __name__ == "__main__":
    main()
