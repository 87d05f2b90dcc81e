"""Trains with DDP while worker processes, forked after the group was made, load the data."""

import torch
import torch.distributed as dist
from common import begin, digits, mean, say
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    begin()
    data = TensorDataset(*digits())
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(
        data, 100, sampler=sampler, num_workers=2, multiprocessing_context="fork"
    )
    model = DistributedDataParallel(nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(2):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            say(f"loss {mean(loss):.9g}")
    dist.destroy_process_group()


main()
