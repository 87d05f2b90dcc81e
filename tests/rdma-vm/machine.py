"""One boot of the guest: QEMU, its job, and the results."""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import distribution

# Exit statuses beside the command's own, as those of timeout(1) and of automake's tests.
TIMED_OUT, DIED, SKIPPED = 124, 125, 77
# A guest that did not come up, which is not an exit status.
HANGING = None

# The time that an idle guest may take where KVM works.
KVM_SECONDS = 20

# The time that a boot may take, emulated and on a busy machine. A boot hangs now and then. Nothing
# has happened in it yet, so it is repeated.
BOOT_SECONDS = 60
BOOTS = 3

ACCELERATORS = {
    "kvm": ["-accel", "kvm", "-cpu", "host"],
    # Everything but five-level page tables, which cost a walk more.
    "tcg": ["-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max,la57=off"],
}

# Quiet. A panic ends the guest. Features without use for a throw-away guest are off.
CMDLINE = "console=ttyS0 loglevel=4 panic=-1 mitigations=off no_timer_check tsc=reliable " \
    "random.trust_cpu=on audit=0 apparmor=0 selinux=0 net.ifnames=0"


@dataclass(frozen=True)
class Plan:
    """The guest's properties and its command."""

    hosts: int
    rails: int
    command: list
    cpus: int
    memory: str
    # Seconds, with the boot.
    limit: float
    # Folders that the command may write to.
    shares: tuple = ()


def accelerator(kernel):
    """Returns "kvm" where KVM works, which a /dev/kvm does not prove. A guest is booted to find out,
    once per boot of this machine."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    known = kernel.folder / "accelerator"
    with contextlib.suppress(OSError, ValueError):
        when, what = known.read_text(encoding="ascii").split()
        if when == boot:
            return what
    probe = Plan(1, 1, ["true"], 1, "512M", KVM_SECONDS)
    found = "kvm" if run(kernel, probe, "kvm", quiet=True) == 0 else "tcg"
    known.write_text(f"{boot} {found}", encoding="ascii")
    return found


def run(kernel, plan, accel, quiet=False):
    """Returns the command's exit status, or one of those above."""
    for boot in range(1, BOOTS + 1):
        with tempfile.TemporaryDirectory(prefix="rdma-vm-") as name:
            job = Path(name)
            _write_job(job, kernel, plan)
            ended = _boot(job, kernel, plan, accel)
            with contextlib.suppress(OSError, ValueError):
                return int((job / "status").read_text(encoding="ascii"))
            if quiet:
                return DIED
            _explain(job, plan, ended)
            if ended != HANGING:
                return TIMED_OUT if ended == TIMED_OUT else DIED
    return DIED


def _boot(job, kernel, plan, accel):
    """Runs a guest to its end. Returns QEMU's status, `TIMED_OUT` or `HANGING`."""
    with open(job / "qemu.log", "wb") as log:
        # The guest ends even if this process is killed.
        limit = ["timeout", "--foreground", "-k", "5", str(plan.limit)]
        words = limit + _qemu(job, kernel, plan, accel)
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            return process.returncode if _relay(job, process) else HANGING
        finally:
            process.terminate()
            process.wait()


def _explain(job, plan, ended):
    """Prints why there is no status of the command."""
    reasons = {
        TIMED_OUT: f"not done after {plan.limit:g} s",
        HANGING: f"the guest did not come up within {BOOT_SECONDS} s",
    }
    reason = reasons.get(ended, "the guest ended by itself")
    print(f"rdma-vm: {reason}", file=sys.stderr)
    if ended == TIMED_OUT and _has_begun(job):
        return
    print("rdma-vm: the end of its log:", file=sys.stderr)
    for log in ("qemu.log", "console.log"):
        with contextlib.suppress(OSError):
            words = (job / log).read_text(encoding="utf-8", errors="replace")
            print("\n".join(words.splitlines()[-8:]), file=sys.stderr)


def _has_begun(job):
    """Returns whether the guest is up and the command has begun."""
    return (job / "begun").exists()


def _write_job(job, kernel, plan):
    """Writes the folder that this process shares with the guest."""
    for name in ("main", "fabric"):
        shutil.copy(distribution.HERE / "guest" / name, job)
    facts = {"HOSTS": plan.hosts, "RAILS": plan.rails, "SHARES": len(plan.shares),
             "MODULES": kernel.modules.resolve()}
    lines = [f"{name}={shlex.quote(str(value))}\n" for name, value in facts.items()]
    (job / "plan").write_text("".join(lines), encoding="utf-8")
    for number, share in enumerate(plan.shares):
        (job / f"share{number}").write_text(str(share), encoding="utf-8")
    # The caller's environment, without names that a shell cannot take.
    variables = [(k, v) for k, v in os.environ.items() if re.fullmatch(r"[A-Za-z_]\w*", k)]
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables]
    lines += [f"cd {shlex.quote(os.getcwd())} || exit\n", f"exec {shlex.join(plan.command)}\n"]
    (job / "command").write_text("".join(lines), encoding="utf-8", errors="surrogateescape")
    for name in ("stdout", "stderr"):
        (job / name).touch()


def _qemu(job, kernel, plan, accel):
    shared = [("root", "/", ",readonly=on,multidevs=remap"), ("job", job, "")]
    shared += [(f"share{n}", share, "") for n, share in enumerate(plan.shares)]
    folders = []
    for tag, path, more in shared:
        # QEMU's way to write a comma.
        path = str(path).replace(",", ",,")
        folders += ["-fsdev", f"local,id={tag},path={path},security_model=none{more}"]
        folders += ["-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
    return [
        "qemu-system-x86_64", *ACCELERATORS[accel],
        "-machine", "q35,usb=off,vmport=off,hpet=off,smm=off",
        "-smp", str(plan.cpus), "-m", plan.memory,
        # No network, no disk, no screen: nothing but the folders.
        "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-nic", "none",
        "-serial", f"file:{str(job).replace(',', ',,')}/console.log",
        "-kernel", str(kernel.image), "-initrd", str(kernel.initramfs), "-append", CMDLINE,
        *folders,
    ]  # fmt: skip


def _relay(job, process):
    """Passes on the command's output until the guest ends. Returns false if it never comes up."""
    until = time.monotonic() + BOOT_SECONDS
    with open(job / "stdout", "rb") as out, open(job / "stderr", "rb") as err:
        pairs = [(out, sys.stdout.buffer), (err, sys.stderr.buffer)]
        ended = False
        while not ended:
            # Output written before the end of the guest is read after it.
            ended = process.poll() is not None
            for source, sink in pairs:
                if some := source.read():
                    sink.write(some)
                    sink.flush()
            if not ended:
                if time.monotonic() > until and not _has_begun(job):
                    return False
                time.sleep(0.02)
    return True
