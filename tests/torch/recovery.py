"""The tests of others for groups that survive: torch's own of `reconfigure`, and those of torchft.

They are downloaded when they run, and remain in `target/torch`. torchft makes Gloo's groups in
Python, so its groups of ringfold are made here.
"""

import subprocess
import sys
import urllib.request
from pathlib import Path

DOWNLOADS = Path(__file__).resolve().parents[2] / "target/torch"
TORCHFT = DOWNLOADS / "torchft"

#: The versions whose results docs/pytorch.md names.
TORCH_COMMIT = "032af12a437bbb5f52b2f995d78454e8e79ab926"
TORCHFT_VERSION = "2026.10.26"

SOURCE = "https://raw.githubusercontent.com/pytorch/pytorch"
TEST = "test_c10d_fault_tolerance"

#: The packages that torchft imports beside torch.
NEEDED = ["parameterized", "opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"]


def download():
    """Brings the tests that are not here yet. Returns the reasons why some are missing, by suite."""
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    missing, file = {}, DOWNLOADS / f"{TEST}.py"
    if not file.exists():
        url = f"{SOURCE}/{TORCH_COMMIT}/test/distributed/{TEST}.py"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                file.write_bytes(answer.read())
        except OSError as error:
            missing["reconfigure"] = f"{url}: {error}; put the file into {DOWNLOADS}"
    if not (TORCHFT / "torchft").exists():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", TORCHFT]
        # With its dependencies pip would bring another torch.
        ended = subprocess.run([*install, "--no-deps", f"torchft-nightly=={TORCHFT_VERSION}"])
        if ended.returncode or subprocess.run([*install, *NEEDED]).returncode:
            missing["torchft"] = f"pip could not install torchft-nightly {TORCHFT_VERSION}"
    return missing


def of_torch(backend, _take_over):
    """torch's tests of `reconfigure`. Processes are forked, as in `suite.py`."""
    sys.path.insert(0, str(DOWNLOADS))
    import test_c10d_fault_tolerance as tests
    import torch

    class FaultTolerance(tests._make_fault_tolerance_test_class(backend, "cpu")):
        def _spawn_processes(self):
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return [FaultTolerance, tests.ReconfigureContractTest]


def of_torchft(_backend, take_over):
    """torchft's tests of process groups and of `reconfigure`."""
    sys.path.insert(0, str(TORCHFT))
    from torchft import process_group_test, reconfigure_test

    if take_over:
        import torchft_groups

        for tests in [process_group_test, reconfigure_test]:
            tests.ProcessGroupGloo = torchft_groups.ProcessGroupRingfold
        process_group_test.ProcessGroupBabyGloo = torchft_groups.ProcessGroupBabyRingfold
    groups = process_group_test
    return [
        groups.ProcessGroupTest, groups.NormalGlooMultiPgTest, groups.BabyGlooMultiPgTest,
        reconfigure_test.ReconfigureTest,
    ]
