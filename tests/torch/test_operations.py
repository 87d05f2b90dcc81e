"""Every operation on several numbers of ranks, and the errors of a wrong torch."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from launch import numbers, torchrun

HERE = Path(__file__).parent


#: Prints which backend the group has, before the group ends.
SAY = """
backend = dist.group.WORLD._get_backend(torch.device("cpu"))
print(f"performed by {backend.name()}", flush=True)
dist.destroy_process_group()
"""


class Operations(unittest.TestCase):
    def test_every_operation(self):
        for ranks in [1, 2, 3, 4]:
            text = torchrun(ranks, HERE / "operations.py")
            self.assertEqual(sorted(numbers(text, "right")), list(range(ranks)))

    def test_tensors_of_a_gpu(self):
        ask = "import sys, torch; sys.exit(not torch.cuda.is_available())"
        if subprocess.run([sys.executable, "-c", ask]).returncode:
            print("SKIPPED gpu: torch sees none")
            self.assertNotIn("gpu", os.environ.get("RINGFOLD_TEST_REQUIRE", "").split(","))
            return
        text = torchrun(2, HERE / "gpu.py")
        self.assertEqual(sorted(numbers(text, "right")), [0, 1])

    def test_the_program_of_the_page(self):
        page = (HERE.parents[1] / "docs/pytorch.md").read_text()
        programs = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        whole = [program for program in programs if program.startswith("import")]
        self.assertEqual(len(whole), 1)
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "train.py")
            program.write_text(whole[0])
            self.assertIn("2 ranks, loss", torchrun(2, program))
            # An unmodified program runs over ringfold too.
            unmodified = whole[0].replace('"ringfold"', '"gloo"')
            program.write_text(unmodified.replace("\ndist.destroy_process_group()\n", SAY))
            for take_over, name in [(False, "gloo"), (True, "ringfold")]:
                text = torchrun(2, program, take_over=take_over)
                self.assertIn(f"performed by {name}", text)

    def test_an_early_torch_is_refused_by_its_version(self):
        program = (
            "import torch; torch.__version__ = '2.13.1'\n"
            "from ringfold.torch import autoload; autoload.load()\n"
            "import torch.distributed as dist\n"
            "store = dist.HashStore()\n"
            "dist.init_process_group('ringfold', store=store, rank=0, world_size=1)"
        )
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("ringfold needs torch 2.14 or later", ended.stderr)
        self.assertIn("this is torch 2.13.1", ended.stderr)


if __name__ == "__main__":
    unittest.main()
