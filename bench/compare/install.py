"""Installs the peers with pip, and builds the programs that time them and ringfold."""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

from processes import Failed

ROOT = Path(__file__).resolve().parents[2]
# The sources of the programs that time others, and those that start them.
PROGRAMS = Path(__file__).resolve().parent / "programs"


class Missing(Exception):
    """Raised if this machine lacks something, with the reason."""


def cache_folder():
    """Returns the default folder of peers, which is outside the repository."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "ringfold-peers"


def environment(folder, packages):
    """Makes a virtual environment in `folder` with `packages`, and returns the folder."""
    python = folder / "bin" / "python"
    if not python.exists():
        output([sys.executable, "-m", "venv", folder], "no virtual environment")
    done = folder / "installed"
    wanted = " ".join(packages)
    if not done.exists() or done.read_text(encoding="utf-8") != wanted:
        install = [python, "-m", "pip", "install", "--quiet", *packages]
        output(install, f"cannot install {wanted}")
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
    return output([folder / "bin" / "python", "-c", ask, package], f"no {package}").strip()


def mpi_program(folder, name="timing"):
    """Builds one of the C programs against the MPI in `folder`."""
    program = folder / f"ringfold-{name}"
    library = folder / "lib"
    paths = [f"-I{folder / 'include'}", f"-L{library}", f"-Wl,-rpath,{library}"]
    compile_c(["-O2", *paths], f"{name}.c", program, ["-lmpi"])
    return program


def mpi_types(program):
    """Returns the types of the MPI of a built timing.c."""
    return tuple(output([program, "--types"], "no types").split())


def ringfold_version():
    """Returns ringfold's version and commit."""
    text = (ROOT / "Cargo.toml").read_text(encoding="utf-8")
    found = re.search(r'^version = "(.+)"$', text, re.MULTILINE)
    try:
        commit = output(["git", "-C", ROOT, "describe", "--always", "--dirty"], "no commit").strip()
    except Missing:
        return f"ringfold {found[1]}"
    return f"ringfold {found[1]}, commit {commit}"


def compilers():
    """Returns the versions of the compilers of the programs."""
    found = []
    for words in (["rustc", "--version"], [os.environ.get("CC", "cc"), "--version"]):
        with contextlib.suppress(Missing):
            found.append(output(words, "no compiler").splitlines()[0])
    return ", ".join(found)


def own_program(name, cache):
    """Builds one of the C programs, for this machine only."""
    program = cache / name
    compile_c(["-O3", "-march=native", "-pthread"], f"{name}.c", program, [])
    return program


def compile_c(flags, source, program, libraries, compiler=os.environ.get("CC", "cc")):
    """Builds one of the C programs."""
    program.parent.mkdir(parents=True, exist_ok=True)
    command = [compiler, *flags, PROGRAMS / source, "-o", program, *libraries]
    output(command, f"cannot compile {source}")


def program_flags(add):
    """Adds the flags that say where ringfold's programs are."""
    add("--bin", type=Path, metavar="FOLDER",
        help="of ringfold's programs (default: build a release)")
    add("--no-build", action="store_true", help="use the programs of an earlier release build")


def ringfold(args, *names, more=(), example=None):
    """Returns the folder of ringfold's programs: the given one, or that of a release build of the
    working tree, with the packages `more` and an example."""
    folder = args.bin or Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "release"
    if not args.bin and not args.no_build:
        packages = ["ringfold-bench", "ringfold-launcher", *more]
        words = [word for package in packages for word in ("-p", package)]
        words += ["--lib", "--bins", "--example", example] if example else []
        command = ["cargo", "build", "--release", *words]
        if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
            raise Failed("cargo build failed")
    return with_programs(folder, *names)


def with_programs(folder, *names):
    """Returns the folder if it has these programs, or raises `Failed`."""
    for name in names:
        program(folder, name)
    return folder.resolve()


def program(folder, name):
    """Returns a program or an example in a folder, or raises `Failed`."""
    for path in (folder / name, folder / "examples" / name):
        if path.exists():
            return path.resolve()
    raise Failed(f"no {name} in {folder}")


def output(command, what):
    """Returns the output of a command, or raises `Missing`."""
    try:
        words = [str(word) for word in command]
        done = subprocess.run(words, capture_output=True, text=True, timeout=3600, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{what}: {error}") from error
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no message"]
        raise Missing(f"{what}: {last[0]}")
    return done.stdout
