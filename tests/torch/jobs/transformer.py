"""Trains a small transformer with DDP to continue sequences. Every second step accumulates gradients
without communication, and one layer's parameters have no gradient in odd steps."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from common import begin, mean, part, say
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORDS, WIDTH, LENGTH, BATCH, STEPS = 17, 32, 12, 16, 12


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.place = nn.Parameter(torch.randn(LENGTH, WIDTH) / 10)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.extra = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, words, with_extra):
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        hidden = self.layers(self.embedding(words) + self.place, mask=mask, is_causal=True)
        if with_extra:
            hidden = hidden + self.extra(hidden)
        return self.out(hidden)


def main():
    begin()
    model = DistributedDataParallel(
        Model(), bucket_cap_mb=0.02, gradient_as_bucket_view=True, find_unused_parameters=True
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(3)
    for step in range(STEPS):
        start = torch.randint(WORDS, (BATCH, 1), generator=generator)
        stride = torch.randint(1, 5, (BATCH, 1), generator=generator)
        words = part((start + stride * torch.arange(LENGTH + 1)) % WORDS)
        is_last = step % 2 == 1
        with nullcontext() if is_last else model.no_sync():
            logits = model(words[:, :-1], with_extra=step % 4 < 2)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())
            loss.backward()
        say(f"loss {mean(loss):.9g}")
        if is_last:
            optimizer.step()
            optimizer.zero_grad()
    dist.destroy_process_group()


main()
