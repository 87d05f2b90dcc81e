"""Every operation on several numbers of ranks, and the errors of a wrong torch."""

import subprocess
import sys
import unittest
from pathlib import Path

from launch import numbers, torchrun

HERE = Path(__file__).parent


class Operations(unittest.TestCase):
    def test_every_operation(self):
        for ranks in [1, 2, 3, 4]:
            text = torchrun(ranks, HERE / "operations.py")
            self.assertEqual(sorted(numbers(text, "right")), list(range(ranks)))

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
