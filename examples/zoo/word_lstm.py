"""A word-level language model: an LSTM with truncated backpropagation through a small text."""

import math

import numpy as np
import torch
from torch import nn
from weights import fill

SUBJECTS = ["the cat", "the dog", "a bird", "the old man", "a child"]
VERBS = ["sees", "likes", "follows", "calls", "hears"]
OBJECTS = ["the river", "a tree", "the moon", "a house", "the sea"]


class Corpus:
    """Words and their numbers."""

    def __init__(self, sentences: int, rng: np.random.Generator) -> None:
        words: list[str] = []
        for _ in range(sentences):
            for choice in (SUBJECTS, VERBS, OBJECTS):
                words += choice[rng.integers(len(choice))].split()
            words.append("<eos>")
        self.vocabulary = sorted(set(words))
        index = {word: number for number, word in enumerate(self.vocabulary)}
        self.tokens = torch.tensor([index[word] for word in words])


class RNNModel(nn.Module):
    """Encoder, recurrent layers, decoder with the encoder's weight."""

    def __init__(self, ntoken: int, nhid: int = 32, nlayers: int = 2) -> None:
        super().__init__()
        self.nhid, self.nlayers = nhid, nlayers
        self.drop = nn.Dropout(0.0)
        self.encoder = nn.Embedding(ntoken, nhid)
        self.rnn = nn.LSTM(nhid, nhid, nlayers)
        self.decoder = nn.Linear(nhid, ntoken)
        self.decoder.weight = self.encoder.weight

    def forward(
        self, words: torch.Tensor, hidden: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        emb = self.drop(self.encoder(words))  # [t, b] -> [t, b, d]
        output, hidden = self.rnn(emb, hidden)
        return self.decoder(self.drop(output)), hidden

    def init_hidden(self, bsz: int) -> tuple[torch.Tensor, torch.Tensor]:
        weight = next(self.parameters())
        return (
            weight.new_zeros(self.nlayers, bsz, self.nhid),
            weight.new_zeros(self.nlayers, bsz, self.nhid),
        )


def batchify(data: torch.Tensor, bsz: int) -> torch.Tensor:
    """Columns [t, bsz] of the text, one after another."""
    nbatch = data.size(0) // bsz
    data = data.narrow(0, 0, nbatch * bsz)
    return data.view(bsz, -1).t().contiguous()


def main(steps: int = 100) -> list[float]:
    corpus = Corpus(400, np.random.default_rng(0))
    model = RNNModel(len(corpus.vocabulary))
    fill(model, 1)
    data = batchify(corpus.tokens, 8)
    bptt = 12
    criterion = nn.CrossEntropyLoss()
    hidden = model.init_hidden(8)
    losses: list[float] = []
    model.train()
    for step in range(steps):
        i = step * bptt % (data.size(0) - bptt - 1)
        inputs, targets = data[i : i + bptt], data[i + 1 : i + 1 + bptt].view(-1)
        hidden = tuple(state.detach() for state in hidden)
        model.zero_grad()
        output, hidden = model(inputs, hidden)
        loss = criterion(output.view(-1, output.size(-1)), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-1.0)
        losses.append(loss.item())
        if step % 50 == 0:
            print(f"batch {step:3d} | loss {losses[-1]:5.2f} | ppl {math.exp(losses[-1]):8.2f}")
    return losses


if __name__ == "__main__":
    main()
