"""Within the guest: measures everything in turn, and writes the report."""

import json
import os
import platform
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "peers"))

# From ../peers.
import builds  # noqa: E402
import command  # noqa: E402
import libraries  # noqa: E402
import measure  # noqa: E402
import processes  # noqa: E402
import report  # noqa: E402
import sizes  # noqa: E402
import yardsticks  # noqa: E402

PUT = [64 << 10 << step for step in range(7)]
ROUND_TRIP = [4 << 10]
# The most calls of a batch.
CALLS_MOST = 500
# Collectives whose type matters; the others move bytes of one message.
TYPED = {"all_reduce", "reduce_scatter", "reduce", "all_gather"}
CALLS = {"put": 2000, "broadcast": 2000, "round_trip": 1000}


def say(message):
    """Prints progress for the user."""
    print(message, file=sys.stderr, flush=True)


def compared(plan):
    """Returns the programs that are installed here."""
    folder = Path(plan["binaries"])
    put, rails = Path(plan["put"]), plan["rails"]
    found = [yardsticks.Ringfold(name, folder, put, rails) for name in plan["transports"]]
    if plan["mpi"]:
        found.append(yardsticks.OpenMpiUcx(plan["mpi_title"], Path(plan["mpi"]), plan["rails"]))
    else:
        say("Open MPI: left out")
    for program, make in (("ib_write_bw", yardsticks.write_bandwidth),
                          ("ibv_rc_pingpong", yardsticks.pingpong)):  # fmt: skip
        if shutil.which(program):
            found.append(make())
        else:
            say(f"{program}: left out: not installed")
    return found


def jobs(plan):
    """Returns the measurements, in this order."""
    if plan["builds"]:
        wanted, collectives = [("put", 2, PUT[::3])], command.COLLECTIVES
    else:
        wanted, collectives = [("put", 2, PUT), ("broadcast", 2, PUT)], ["all_reduce"]
    wanted += [("round_trip", 2, ROUND_TRIP)]
    wanted += [(what, hosts, plan["sizes"]) for hosts in plan["hosts"] for what in collectives]
    cores = len(os.sched_getaffinity(0))
    for what, ranks, some in wanted:
        if what in plan["what"]:
            some = some[:1] if what == "barrier" else some
            types = plan["types"] if what in TYPED else ["f32"]
            cells = tuple((size, sizes.calls(size, CALLS.get(what, CALLS_MOST))) for size in some)
            for data_type in types:
                yield libraries.Job(
                    what, ranks, "out", cells, plan["seconds"], 5, cores,
                    data_type=data_type, transport="rdma",
                )  # fmt: skip


def compare_builds(plan):
    """Returns the exit status: 0 if the second build is not slower."""
    rails = plan["rails"]
    three = builds.three(
        lambda folder: yardsticks.Ringfold("rdma", folder, folder / "put", rails),
        *map(Path, plan["builds"]),
    )
    comparison = builds.Comparison(
        about(plan), plan["rounds"], plan["time"], plan["patience"], say
    )
    series = [(label(job), three, job) for job in jobs(plan)]
    return comparison.all(series, Path(plan["out"]))


def label(job):
    """Returns the label of a job in the comparison of builds."""
    return "rdma" if job.data_type == "f32" else f"rdma, {job.data_type}"


def about(plan):
    """Returns the head of the report."""
    cores = len(os.sched_getaffinity(0))
    return plan["about"] | {"guest": f"{platform.release()}, {cores} cores"}


def main(plan):
    """Returns the exit status: 0 if every measurement is complete."""
    processes.adopt_orphans()
    if plan["builds"]:
        return compare_builds(plan)
    everything = compared(plan)
    all_series, text = [], ""
    for job in jobs(plan):
        if not any(library.runs(job) for library in everything):
            continue
        series = measure.Series(job, say, plan["patience"])
        series.measure(everything, plan["rounds"])
        all_series.append(series)
        written = report.Report(about(plan), everything, all_series)
        written.write(Path(plan["out"]))
        text = written.markdown()
        say(f"{job.collective} x {job.ranks}, {job.data_type}: done")
    print(text, end="")
    return int(not all_series or any(series.failures for series in all_series))


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
