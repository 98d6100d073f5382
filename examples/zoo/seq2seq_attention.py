"""A GRU encoder and decoder with additive attention learn to reverse short sequences."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from weights import fill

SOS_TOKEN, EOS_TOKEN, VOCABULARY, LENGTH = 0, 1, 12, 6


class EncoderRNN(nn.Module):
    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(input_size, hidden_size)
        self.gru = nn.GRU(hidden_size, hidden_size, batch_first=True)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.gru(self.embedding(tokens))


class BahdanauAttention(nn.Module):
    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.Wa = nn.Linear(hidden_size, hidden_size)
        self.Ua = nn.Linear(hidden_size, hidden_size)
        self.Va = nn.Linear(hidden_size, 1)

    def forward(self, query: torch.Tensor, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys)))  # [b, t, 1]
        weights = F.softmax(scores.squeeze(2).unsqueeze(1), dim=-1)  # [b, 1, t]
        return torch.bmm(weights, keys), weights


class AttnDecoderRNN(nn.Module):
    def __init__(self, hidden_size: int, output_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(output_size, hidden_size)
        self.attention = BahdanauAttention(hidden_size)
        self.gru = nn.GRU(2 * hidden_size, hidden_size, batch_first=True)
        self.out = nn.Linear(hidden_size, output_size)

    def forward(
        self,
        encoder_outputs: torch.Tensor,
        hidden: torch.Tensor,
        target: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        batch_size = encoder_outputs.size(0)
        token = torch.empty(batch_size, 1, dtype=torch.long).fill_(SOS_TOKEN)
        outputs, attentions = [], []
        for i in range(LENGTH):
            query = hidden.permute(1, 0, 2)  # [1, b, d] -> [b, 1, d]
            context, weights = self.attention(query, encoder_outputs)
            step = torch.cat((self.embedding(token), context), dim=2)
            output, hidden = self.gru(step, hidden)
            logits = self.out(output)
            outputs.append(logits)
            attentions.append(weights)
            if target is not None:
                token = target[:, i].unsqueeze(1)  # teacher forcing
            else:
                _, topi = logits.topk(1)
                token = topi.squeeze(-1).detach()
        outputs = F.log_softmax(torch.cat(outputs, dim=1), dim=-1)
        return outputs, torch.cat(attentions, dim=1)


def main(steps: int = 100) -> list[float]:
    rng = np.random.default_rng(0)
    encoder, decoder = EncoderRNN(VOCABULARY, 24), AttnDecoderRNN(24, VOCABULARY)
    fill(encoder, 1)
    fill(decoder, 2)
    encoder_optimizer = optim.Adam(encoder.parameters(), lr=5e-3)
    decoder_optimizer = optim.Adam(decoder.parameters(), lr=5e-3)
    criterion = nn.NLLLoss()
    losses: list[float] = []
    for step in range(steps):
        numbers = rng.integers(2, VOCABULARY, (16, LENGTH - 1))
        end = np.full((16, 1), EOS_TOKEN)
        source = torch.from_numpy(np.concatenate([numbers, end], axis=1))
        target = torch.from_numpy(np.concatenate([numbers[:, ::-1], end], axis=1))
        encoder_optimizer.zero_grad()
        decoder_optimizer.zero_grad()
        encoder_outputs, encoder_hidden = encoder(source)
        outputs, _ = decoder(encoder_outputs, encoder_hidden, target)
        loss = criterion(outputs.view(-1, outputs.size(-1)), target.view(-1))
        loss.backward()
        encoder_optimizer.step()
        decoder_optimizer.step()
        losses.append(loss.item())
        if step % 50 == 0:
            with torch.no_grad():
                outputs, _ = decoder(encoder_outputs, encoder_hidden)
            right = (outputs.argmax(-1) == target).float().mean().item()
            print(f"step {step} loss {losses[-1]:.4f} right {right:.1%}")
    return losses


if __name__ == "__main__":
    main()
