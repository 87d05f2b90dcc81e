"""Trains a classifier of digits with accelerate, or with the Trainer of transformers.

`--make-group` makes the process group first. Otherwise they make it, under the name of their choice.
"""

import argparse
import tempfile

import torch
import torch.distributed as dist
from common import digits
from torch import nn

BATCH = 32
STEPS = 8


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, images, labels):
        found = self.layers(images)
        return {"loss": nn.functional.cross_entropy(found, labels), "logits": found}


def by_accelerate(rows):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(rows, batch_size=BATCH)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for _, batch in zip(range(STEPS), loader):
        loss = model(**batch)["loss"]
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        losses.append(accelerator.gather(loss.detach().reshape(1)).mean().item())
    return losses


def by_trainer(rows):
    from transformers import Trainer, TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, use_cpu=True, max_steps=STEPS, per_device_train_batch_size=BATCH,
            logging_steps=1, save_strategy="no", report_to=[], disable_tqdm=True, optim="sgd",
        )
        trainer = Trainer(Classifier(), arguments, train_dataset=rows)
        trainer.train()
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=["accelerate", "trainer"])
    parser.add_argument("--make-group")
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    if options.make_group:
        dist.init_process_group(options.make_group)
    images, labels = digits()
    rows = [{"images": image, "labels": label} for image, label in zip(images, labels)]
    losses = by_accelerate(rows) if options.way == "accelerate" else by_trainer(rows)
    if dist.get_rank() == 0:
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        print(f"performed by {backend.name()}")
        for loss in losses:
            print(f"loss {loss:.6g}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
