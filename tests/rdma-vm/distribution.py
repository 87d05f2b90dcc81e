"""The distribution's packages, its unmodified kernel, and the guest's first file system."""

import fcntl
import gzip
import lzma
import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent

# Packages with the programs and libraries of the guest, whose root is this machine's, and of its starter.
PACKAGES = [
    "qemu-system-x86",
    "kmod",
    "iproute2",
    "ibverbs-providers",
    "ibverbs-utils",
    "zstd",
]
# Packages that mean "the kernel", on Debian and on Ubuntu.
KERNELS = ["linux-image-amd64", "linux-image-generic"]
# Modules that the initramfs needs to find its root.
MODULES = ["virtio_pci", "9pnet_virtio", "9p", "overlay"]


class Missing(Exception):
    """A missing part, described in one line."""


def cache_folder():
    """Returns the default folder for downloads, outside the repository."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "ringfold-rdma-vm"


class Kernel:
    """A kernel for QEMU, in a folder that gets its final name once it is complete."""

    def __init__(self, folder):
        self.folder = folder
        self.image, self.initramfs = folder / "image", folder / "initramfs"
        self.modules = folder / "modules"


def ready(cache, install):
    """Returns the kernel, and checks the packages. Installs and downloads missing parts if `install`."""
    for program in ("apt-get", "dpkg-deb"):
        if not shutil.which(program):
            raise Missing(f"{program}: this is for Debian and Ubuntu")
    if os.uname().machine != "x86_64":
        raise Missing(f"a guest for {os.uname().machine}: there is one for x86-64 only")
    absent = _absent(PACKAGES)
    if absent and not install:
        raise Missing(f"packages {' '.join(absent)}; --install gets them")
    if absent:
        _install(absent)
    cache.mkdir(parents=True, exist_ok=True)
    kernel = Kernel(cache / "kernel")
    with open(cache / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kernel.folder.exists():
            if not install:
                raise Missing("a kernel for the guest; --install downloads one")
            _download(cache / "unpacked")
            _prepare(cache / "unpacked", cache / "preparing")
            (cache / "preparing").rename(kernel.folder)
        _write_initramfs(kernel)
    return kernel


def _absent(packages):
    form = "${Package} ${db:Status-Status}\n"
    query = ["dpkg-query", "-W", "-f", form, *packages]
    known = subprocess.run(query, capture_output=True, text=True, check=False).stdout
    return [name for name in packages if f"{name} installed" not in known.splitlines()]


def _install(packages):
    become = [] if os.geteuid() == 0 else ["sudo", "-n"]
    command = [*become, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]
    _try([*command, "update"], "package lists")
    command += ["install", "-y", "--no-install-recommends", *packages]
    _try(command, f"packages {' '.join(packages)}")


def _download(folder):
    """Unpacks the newest kernel of the distribution, and a busybox, which needs no libraries.
    Neither is installed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    names = [*_kernel_packages(), "busybox-static"]
    what = f"download of {' '.join(names)} (are the package lists there? `apt-get update`)"
    # apt's own unprivileged user may not write here, and prints a warning.
    _try(["apt-get", "-q", "-o", "APT::Sandbox::User=", "download", *names], what, cwd=folder)
    for package in folder.glob("*.deb"):
        _try(["dpkg-deb", "-x", package, folder], f"unpacked {package.name}")
        package.unlink()


def _kernel_packages():
    """Returns the packages of the image and its modules, which are separate on Ubuntu."""
    for meta in KERNELS:
        depends = ["apt-cache", "depends", "--recurse", "--important", meta]
        known = subprocess.run(depends, capture_output=True, text=True, check=False).stdout
        kind = r"^ *Depends: (linux-(?:image|modules|modules-extra)-\d\S*)$"
        names = sorted(set(re.findall(kind, known, re.MULTILINE)))
        if names:
            return names
    raise Missing(f"a kernel package: apt knows neither {' nor '.join(KERNELS)}")


def _prepare(unpacked, folder):
    """Makes a `Kernel` folder of the unpacked packages."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    image = next((unpacked / "boot").glob("vmlinuz-*"))
    release = image.name.removeprefix("vmlinuz-")
    # Newer packages have no /lib of their own.
    lib = "lib" if (unpacked / "lib/modules").exists() else "usr/lib"
    (unpacked / lib / "modules").rename(folder / "modules")
    (folder / "release").write_text(release, encoding="ascii")
    # depmod looks for modules below BASE/lib/modules.
    (folder / "lib").mkdir()
    (folder / "lib/modules").symlink_to("../modules")
    _try(["depmod", "-b", folder, release], "depmod")
    (folder / "image").write_bytes(_uncompressed(image.read_bytes()))
    busybox = next(path for path in unpacked.rglob("bin/busybox"))
    shutil.copy(busybox, folder / "busybox")
    shutil.rmtree(unpacked)


def _uncompressed(image):
    """Returns the kernel within a bzImage (Documentation/arch/x86/boot.rst). QEMU boots it by its PVH
    entry, because an emulated processor takes long to unpack a bzImage."""
    sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (sectors + 1) * 512 + offset
    packed = image[start : start + length]
    kernel = _decompressed(packed[:-4])
    return kernel if kernel.startswith(b"\x7fELF") else image


def _decompressed(data):
    """Decompresses by the first bytes. Unknown formats stay unchanged."""
    if data.startswith(b"\xfd7zXZ\0"):
        return lzma.decompress(data)
    if data.startswith(b"\x1f\x8b"):
        return gzip.decompress(data)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        return subprocess.run(["zstd", "-dc"], input=data, capture_output=True, check=True).stdout
    return data


def _write_initramfs(kernel):
    """Writes the initramfs, each time anew: it is small, and `init` may have changed."""
    release = (kernel.folder / "release").read_text(encoding="ascii")
    depends = ["modprobe", "-d", kernel.folder, "-S", release, "-a", "--show-depends", *MODULES]
    listed = _try(depends, "modules of the guest's kernel")
    paths = [line.split()[1] for line in listed.splitlines() if line.startswith("insmod ")]
    modules = {Path(path).name.split(".")[0] + ".ko": Path(path) for path in paths}
    entries = [(name, 0o040755, b"") for name in
               ("bin", "modules", "proc", "sys", "dev", "below", "layer", "new")]
    entries.append(("bin/busybox", 0o100755, (kernel.folder / "busybox").read_bytes()))
    entries.append(("init", 0o100755, (HERE / "guest/init").read_bytes()))
    entries.append(("modules/order", 0o100644, "".join(f"{m}\n" for m in modules).encode()))
    for name, path in modules.items():
        entries.append((f"modules/{name}", 0o100644, _decompressed(path.read_bytes())))
    new = kernel.folder / "initramfs.new"
    new.write_bytes(_cpio(entries))
    new.rename(kernel.initramfs)


def _cpio(entries):
    """Returns an archive in the `newc` format."""
    archive = bytearray()
    for number, (name, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        fields = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        archive += b"070701" + "".join(f"{field:08x}" for field in fields).encode()
        for part in (name.encode() + b"\0", data):
            archive += part
            archive += bytes(-len(archive) % 4)
    return archive


def _try(command, what, cwd=None):
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, cwd=cwd, check=False)
    except OSError as error:
        raise Missing(f"{what}: {error}") from error
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no message"]
        raise Missing(f"{what}: {last[0]}")
    return done.stdout
