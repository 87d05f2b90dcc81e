"""Tensor-parallel generation with transformers: the tokens are those over Gloo.

Without transformers or accelerate it is SKIPPED."""

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from launch import LONG_SECONDS, torchrun

ROOT = Path(__file__).resolve().parents[2]
COMPARE = ROOT / "bench/compare"

#: Writes a tokenizer of some words into a folder.
TOKENIZER = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

words = {"An": 0, "all-reduce": 1, "is": 2, **{f"word{at}": at for at in range(3, int(sys.argv[2]))}}
tokenizer = Tokenizer(models.WordLevel(words, unk_token="An"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(sys.argv[1])
"""

#: A model with random weights, and so few that the test is short.
SHAPE = {
    "vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 4,
}  # fmt: skip


class Inference(unittest.TestCase):
    def setUp(self):
        missing = [it for it in ("transformers", "accelerate") if not importlib.util.find_spec(it)]
        if missing:
            print(f"SKIPPED {missing[0]}: it is missing", file=sys.stderr)
            self.skipTest(missing[0])

    def test_tokens_and_counters(self):
        """Both are those that the comparison wants."""
        self.compared([2, 4], ["ringfold", "ringfold-windows"])

    def test_tokens_and_counters_on_two_hosts(self):
        """The hosts are namespaces, which need root."""
        self.compared([2], ["ringfold"], "--hosts=2")

    def compared(self, ranks, cases, *more):
        words = ["--hidden=256", "--layers=2", "--prompt=8", "--tokens=4", "--rounds=0", "--batches=1", *more]
        words.append(f"--ranks={','.join(map(str, ranks))}")
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, COMPARE / "run", "inference", *words, "--out", folder]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=LONG_SECONDS)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        if ended.stderr.startswith("SKIPPED"):
            print(ended.stderr, file=sys.stderr)
            self.skipTest(ended.stderr)
        for number in ranks:
            for case in cases:
                self.assertIn(f"- {number} ranks, {case}: 8 of 8 texts", ended.stdout)
            # A step has two for each layer, and one for the embedding.
            self.assertIn(f"- {number} ranks: ringfold has counted all 20", ended.stdout)

    def test_the_program_of_the_page(self):
        page = (ROOT / "docs/inference.md").read_text()
        whole = re.search(r"```python\n(import sys\n.*?)```", page, re.DOTALL)[1]
        with tempfile.TemporaryDirectory() as folder:
            model, program = Path(folder, "model"), Path(folder, "generate.py")
            for script, shape in (
                [[COMPARE / "programs/generation.py", "make"], json.dumps(SHAPE)],
                [["-c", TOKENIZER], SHAPE["vocab_size"]],
            ):
                command = [sys.executable, *script, model, str(shape)]
                subprocess.run(command, check=True, capture_output=True)
            texts = []
            for name in ("gloo", "ringfold"):
                program.write_text(whole.replace('"ringfold"', f'"{name}"'))
                texts.append(torchrun(2, program, model).splitlines()[-1])
        self.assertTrue(texts[0].startswith("An all-reduce is word"), texts)
        self.assertEqual(*texts)


if __name__ == "__main__":
    unittest.main()
