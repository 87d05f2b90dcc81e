"""Trains a classifier of digits with DDP. The batches do not depend on the number of ranks."""

import torch
import torch.distributed as dist
from common import begin, digits, mean, part, say
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EPOCHS = 5
BATCH = 64
HELD_OUT = 359


def main():
    begin()
    images, labels = digits()
    layers = [nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)]
    # Small buckets, so that several all-reduces run beside the backward pass.
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.005)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train = len(images) - HELD_OUT
    for epoch in range(EPOCHS):
        order = torch.randperm(train, generator=torch.Generator().manual_seed(epoch))
        total = 0.0
        for rows in order[: train // BATCH * BATCH].split(BATCH):
            rows = part(rows)
            loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += mean(loss)
        say(f"loss {total:.9g}")
    right = model(images[train:]).argmax(1).eq(labels[train:]).float().mean()
    say(f"accuracy {right.item():.4f}")
    dist.destroy_process_group()


main()
