"""Builds the native module and the programs, and adds them to the wheel."""

import os
import platform
import re
import subprocess
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).resolve().parents[2]
GLIBC = "2.28"
PERF = "allreduce-perf"
# The other perf programs are this one under their names. A compiled sibling takes 400 kB.
SIBLING = f"""#!python
import os, sys
program = os.path.join(os.path.dirname(os.path.realpath(__file__)), "{PERF}")
os.execv(program, sys.argv)
"""


class Version(MetadataHookInterface):
    """Takes the version of the workspace."""

    def update(self, metadata: dict) -> None:
        cargo = (ROOT / "Cargo.toml").read_text()
        metadata["version"] = re.search(r'^version = "(.*)"', cargo, re.MULTILINE)[1]


class Programs(BuildHookInterface):
    """Builds with one command, so that nothing is compiled twice."""

    def initialize(self, version: str, build_data: dict) -> None:
        machine = platform.machine()
        target = f"{machine}-unknown-linux-gnu"
        packages = ["ringfold-python", "ringfold-launcher", "ringfold-cli", "ringfold-bench"]
        names = ["ringrun", "ringfold", PERF]
        folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute()
        command = ["cargo", "zigbuild", "--release", "--target", f"{target}.{GLIBC}", "--lib"]
        command += ["--target-dir", str(folder)]
        command += [word for package in packages for word in ("--package", package)]
        command += [word for name in names for word in ("--bin", name)]
        subprocess.run(command, cwd=ROOT, check=True)
        built = folder / target / "release"
        scripts = {str(built / name): name for name in names}
        for sibling in (ROOT / "bench/src/bin").glob("*-perf.rs"):
            if sibling.stem != PERF:
                script = built / f"{sibling.stem}.py"
                script.write_text(SIBLING)
                script.chmod(0o755)
                scripts[str(script)] = sibling.stem
        build_data["shared_scripts"] = scripts
        module = "ringfold/_ringfold.abi3.so"
        build_data["force_include"] = {str(built / "lib_ringfold.so"): module}
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-manylinux_{GLIBC.replace('.', '_')}_{machine}"
