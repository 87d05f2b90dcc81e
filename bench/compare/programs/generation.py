"""Generates tokens with a tensor-parallel Llama of transformers, as one rank.

`generation.py make FOLDER SHAPE` writes a model with random weights; SHAPE is JSON of LlamaConfig.
`generation.py BACKEND FOLDER PROMPT TOKENS [compiled]` is a rank. It makes the process group by the
variables of torchrun, and follows the orders on its standard input. Rank 0 answers each with a line of
JSON. `compiled` runs the model by torch.compile.

| Order | Answer |
|---|---|
| `tokens BATCH` | The tokens of each prompt, and how far the best logit of each step was ahead |
| `time BATCH` | Seconds to the first token, seconds of the others, and their part in all-reduces |
| `steps` | How often the model has run |

A backend `ringfold-windows` reduces in windows: each row-parallel layer leaves its product in one. With
`deepspeed`, DeepSpeed's kernel for shared memory sums the layers' products, and Gloo does the rest."""

import contextlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM, StoppingCriteria
from transformers.distributed import DistributedConfig
from transformers.utils.logging import disable_progress_bar

SEED = 7
#: The rows of the largest product that has its place in a window: those of a step, not of a prompt.
ROWS_MAX = 64


def make(folder, shape):
    """Writes a model with random weights."""
    torch.manual_seed(SEED)
    # No token ends a text.
    ends = {name: None for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    LlamaForCausalLM(LlamaConfig(**shape, **ends)).save_pretrained(folder)


class Reducing:
    """Adds up the time in the layers' all-reduces, which block. Compiled ones have none."""

    def __init__(self):
        self.seconds = 0.0
        self._all_reduce, dist.all_reduce = dist.all_reduce, self.all_reduce

    def all_reduce(self, *arguments, **names):
        """torch.distributed.all_reduce."""
        if torch.compiler.is_compiling():
            return self._all_reduce(*arguments, **names)
        begin = time.perf_counter()
        result = self._all_reduce(*arguments, **names)
        self.seconds += time.perf_counter() - begin
        return result


class Clock(StoppingCriteria):
    """Notes when each token is there, and the time in all-reduces until then."""

    def __init__(self, reducing):
        self.reducing, self.times = reducing, []

    def __call__(self, ids, scores, **_):
        self.times.append((time.perf_counter(), self.reducing.seconds))
        return torch.zeros(ids.shape[0], dtype=torch.bool)


@torch.library.custom_op("example::sum_of_products", mutates_args={"room"})
def sum_of_products(hidden: torch.Tensor, weight: torch.Tensor, room: torch.Tensor) -> None:
    """Writes the sum of all ranks' products to the first rows of a tensor in a window."""
    product = room[: hidden.shape[0]]
    torch.mm(hidden, weight, out=product)
    dist.all_reduce(product)


def use_windows(model):
    """Lets the row-parallel layers leave their products in windows, where they are reduced."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    for name, layer in model.named_modules():
        if name.endswith(("o_proj", "down_proj")):
            width = layer.out_features
            room = backend.allocate_tensor(ROWS_MAX * width).view(ROWS_MAX, width)
            layer.forward = in_window(layer.forward, layer.weight.to_local().t(), room)


def in_window(otherwise, weight, room):
    """The forward of a row-parallel layer of some rows. `otherwise` is that of more."""

    def forward(hidden):
        rows = hidden.numel() // hidden.shape[-1]
        if rows > len(room):
            return otherwise(hidden)
        sum_of_products(hidden.reshape(rows, -1), weight, room)
        return room[:rows].view(*hidden.shape[:-1], -1)

    return forward


def use_deepspeed():
    """Gives blocking all-reduces to DeepSpeed's kernel."""
    # Its messages are no answers.
    with contextlib.redirect_stdout(sys.stderr):
        import deepspeed

        deepspeed.init_distributed(dist_backend="gloo")
    dist.all_reduce = lambda tensor, **_: torch.ops.deepspeed.inference_all_reduce_(tensor)


class Generator:
    """The model, and the orders."""

    def __init__(self, folder, prompt, tokens, *compiled):
        config = DistributedConfig(tp_size=dist.get_world_size())
        self.model = LlamaForCausalLM.from_pretrained(
            folder, distributed_config=config, dtype=torch.float32
        ).eval()
        self.prompt, self.length, self.steps = int(prompt), int(tokens), 0
        self.reducing, self.more = Reducing(), {}
        if compiled:
            self.model.forward = torch.compile(self.model.forward)
            self.more["cache_implementation"] = "static"

    def generate(self, batch, **more):
        """Greedy tokens of as many prompts."""
        random = torch.Generator().manual_seed(SEED)
        words = (batch, self.prompt)
        prompts = torch.randint(self.model.config.vocab_size, words, generator=random)
        self.steps += self.length
        return self.model.generate(
            prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=self.length,
            do_sample=False, **self.more, **more,
        )  # fmt: skip

    def tokens(self, batch):
        """The tokens of each prompt, and how far ahead each was."""
        found = self.generate(batch, output_logits=True, return_dict_in_generate=True)
        best = torch.stack(found.logits).topk(2).values
        ahead = (best[..., 0] - best[..., 1]).t()
        return {"tokens": found.sequences[:, self.prompt :].tolist(), "ahead": ahead.tolist()}

    def time(self, batch):
        """The times of a batch."""
        clock = Clock(self.reducing)
        dist.barrier()
        begin = time.perf_counter()
        self.generate(batch, stopping_criteria=[clock])
        (first, before), *_, (last, after) = clock.times
        return {"first": first - begin, "rest": last - first, "reducing": after - before}

    def follow(self, order, *numbers):
        """The answer to an order."""
        if order == "steps":
            return {"steps": self.steps}
        return {"tokens": self.tokens, "time": self.time}[order](*map(int, numbers))


def main(backend, *model):
    """Follows orders until there are no more."""
    torch.set_num_threads(1)
    disable_progress_bar()
    here = sorted(os.sched_getaffinity(0))
    if int(os.environ["WORLD_SIZE"]) <= len(here):
        # All hosts are this machine.
        os.sched_setaffinity(0, {here[int(os.environ["RANK"])]})
    # transformers uses the group that exists.
    name = "gloo" if backend == "deepspeed" else backend.removesuffix("-windows")
    dist.init_process_group(name)
    if backend == "deepspeed":
        use_deepspeed()
    with torch.inference_mode():
        generator = Generator(*model)
        if backend.endswith("-windows"):
            use_windows(generator.model)
        for line in sys.stdin:
            answer = generator.follow(*line.split())
            if dist.get_rank() == 0:
                print(json.dumps(answer), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], json.loads(sys.argv[3]))
    else:
        main(*sys.argv[1:])
