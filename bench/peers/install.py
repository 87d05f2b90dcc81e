"""Installs the peers with pip, and builds the programs that time them."""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


class Missing(Exception):
    """Raised if something is missing here, with the reason."""


def cache_folder():
    """Returns the default folder of peers, which is outside the repository."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "ringfold-peers"


def environment(folder, packages):
    """Makes a virtual environment in `folder` with `packages`, and returns the folder."""
    python = folder / "bin" / "python"
    if not python.exists():
        _try([sys.executable, "-m", "venv", folder], "no virtual environment")
    done = folder / "installed"
    wanted = " ".join(packages)
    if not done.exists() or done.read_text(encoding="utf-8") != wanted:
        install = [python, "-m", "pip", "install", "--quiet", *packages]
        _try(install, f"cannot install {wanted}")
        done.write_text(wanted, encoding="utf-8")
    return folder


def intel_mpi(folder):
    """Installs Intel MPI. Its newest version may need a libfabric that the index lacks; pip then
    installs an older version in `folder`. In that case the newest version is installed without
    dependencies, and gets the libfabric of the older one."""
    names = ["impi-rt", "impi-devel"]
    older = environment(folder, names)
    newest = environment(folder.with_name(f"{folder.name}-newest"), ["--no-deps", *names])
    if version(newest, names[0]) == version(older, names[0]):
        return older
    for pattern in ("libfabric.so*", "lib*-fi.so"):
        for library in (older / "lib").glob(pattern):
            link = newest / "lib" / library.name
            if not link.exists():
                link.symlink_to(library)
    return newest


def version(folder, package):
    """Returns the version of an installed package."""
    ask = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"
    return _try([folder / "bin" / "python", "-c", ask, package], f"no {package}").strip()


def mpi_program(folder):
    """Builds timing.c against the MPI in `folder`."""
    program = folder / "ringfold-timing"
    library = folder / "lib"
    paths = [f"-I{folder / 'include'}", f"-L{library}", f"-Wl,-rpath,{library}"]
    _compile(["-O2", *paths], HERE / "timing.c", program, ["-lmpi"])
    return program


def mpi_types(program):
    """Returns the types of the MPI of a built timing.c."""
    return tuple(_try([program, "--types"], "no types").split())


def compile_mpi(compiler, program):
    """Builds timing.c with an MPI's own compiler."""
    _try([compiler, "-O2", HERE / "timing.c", "-o", program], "cannot compile timing.c")


def ringfold_version():
    """Returns ringfold's version and commit."""
    text = (ROOT / "Cargo.toml").read_text(encoding="utf-8")
    found = re.search(r'^version = "(.+)"$', text, re.MULTILINE)
    try:
        commit = _try(["git", "-C", ROOT, "describe", "--always", "--dirty"], "no commit").strip()
    except Missing:
        return f"ringfold {found[1]}"
    return f"ringfold {found[1]}, commit {commit}"


def compilers():
    """Returns the versions of the compilers of the programs."""
    found = []
    for words in (["rustc", "--version"], [os.environ.get("CC", "cc"), "--version"]):
        with contextlib.suppress(Missing):
            found.append(_try(words, "no compiler").splitlines()[0])
    return ", ".join(found)


def output(command, what):
    """Returns the output of a command, or raises `Missing`."""
    return _try(command, what)


def own_program(name, cache):
    """Builds one of the C programs of this folder, for this machine only."""
    program = cache / name
    _compile(["-O3", "-march=native", "-pthread"], HERE / f"{name}.c", program, [])
    return program


def ringfold(build, *more):
    """Builds ringfold's binaries from the working tree, with those of `more` packages, and returns
    their folder."""
    if build:
        packages = ["ringfold-bench", "ringfold-launcher", *more]
        words = [word for package in packages for word in ("-p", package)]
        command = ["cargo", "build", "--release", *words]
        if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
            raise Missing("cargo build failed")
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    return with_programs(target / "release", "ringrun", "peer-timing")


def with_programs(folder, *names):
    """Returns the folder if it has these programs, or raises `Missing`."""
    for name in names:
        if not (folder / name).exists():
            raise Missing(f"no {name} in {folder}")
    return folder.resolve()


def _compile(flags, source, program, libraries):
    compiler = os.environ.get("CC", "cc")
    command = [compiler, *flags, source, "-o", program, *libraries]
    _try(command, f"cannot compile {source.name}")


def _try(command, what):
    try:
        words = [str(word) for word in command]
        done = subprocess.run(words, capture_output=True, text=True, timeout=3600, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{what}: {error}") from error
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no message"]
        raise Missing(f"{what}: {last[0]}")
    return done.stdout
