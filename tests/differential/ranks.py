"""One rank of a job with random calls. `run` starts it; all ranks make the same calls."""

import argparse
import json
import os
import random
import time
import zlib
from collections import Counter
from pathlib import Path

import numpy

FAULTS_MAX = 20
GROUPS_MAX = 5


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--calls", type=int, required=True)
    parser.add_argument("--hosts", required=True, help="the host of each rank, as in 0,0,1")
    parser.add_argument("--exact", action="store_true", help="partial sums are never rounded")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


class Rank:
    """The state of this rank."""

    def __init__(self, options, comm):
        self.options, self.comm = options, comm
        self.maker = calls.Maker(options.seed)
        # Decisions that all ranks take alike, and this rank's own ones.
        self.random = random.Random(f"steps of {options.seed}")
        self.own = random.Random(f"{options.seed} on {comm.rank}")
        self.hosts = options.hosts.split(",")
        self.groups = [self.group(comm, list(range(comm.size)))]
        self.counts, self.kinds, self.faults, self.share = Counter(), Counter(), [], 0.0
        self.bits = (options.out / f"bits.{comm.rank}").open("w")
        self.number = 0

    def group(self, comm, members):
        me, exact = self.comm.rank, self.options.exact
        group = calls.Group(comm, members, me, self.hosts, exact)
        if self.random.random() < 0.4:
            kind = self.random.choice([it for it in oracle.TYPES if not it.is_bool])
            room = self.random.randrange(1, 200_000 // kind.storage.itemsize)
            windows = [comm.alloc(room, kind.name) for _ in range(2)] if comm else None
            group.windows = (kind, room, windows)
        add = lambda into, other: calls.combine(  # noqa: E731
            numpy.asarray(into).view("float64"), numpy.asarray(other).view("float64")
        )
        group.op = comm.register_op("sum and largest", add, 16) if comm else None
        return group

    def next(self):
        """Returns the number of the next call."""
        self.number += 1
        return self.number

    def check(self, call, number, group):
        """Compares the memory of a call that is done with what it must be."""
        # A call counts on one rank: a message on its receiver, others on the first rank.
        is_received = call.name in ("recv", "recv_any")
        if is_received or (group.rank == 0 and call.name != "send"):
            self.counts[call.name] += 1
            if call.kind:
                self.kinds[call.kind.name] += 1
        for region in call.regions:
            found, rounded = region.faults()
            for share, got in rounded:
                self.share = max(self.share, share)
                if call.name.startswith("all_reduce"):
                    print(f"{number} {zlib.crc32(got):08x} {call.text}", file=self.bits)
            for fault in found:
                self.fault(f"call {number}, {call.text}, group {group.members}: {fault}")

    def fault(self, text):
        self.faults.append(text)
        if len(self.faults) <= FAULTS_MAX:
            print(f"WRONG on rank {self.comm.rank}: {text}", flush=True)

    def delay(self):
        """Lets a rank be late now and then."""
        if self.own.random() < 0.03:
            time.sleep(self.own.random() * 0.004)

    def any_call(self, group, is_in_background=False):
        """Makes a call of any kind. Returns its number and what this rank does for it."""
        number, random, maker = self.next(), self.random, self.maker
        kinds = ["collective"] * 6 + ["uneven"] * 3 + ["function"]
        if group.size > 1:
            kinds += ["message", "exchange"] + ([] if is_in_background else ["any"])
        if group.windows and not is_in_background:
            kinds += ["window"] * 2
        kind = random.choice(kinds)
        if group.rank is None:
            return number, []
        if kind == "message":
            found = maker.message(number, group)
            return number, found if found[0].start else []
        if kind == "function":
            return number, [maker.by_function(number, group, group.op)]
        make = {
            "collective": maker.collective,
            "uneven": maker.uneven,
            "exchange": maker.exchange,
            "any": maker.from_any,
            "window": maker.in_window,
        }[kind]
        return number, [make(number, group)]

    def one(self):
        group = self.random.choice(self.groups)
        number, found = self.any_call(group)
        for call in found:
            call.start(group.comm)
            self.check(call, number, group)

    def background(self):
        """Makes calls of several communicators that run in the background, and some that block."""
        waiting = []
        for _ in range(self.random.randrange(2, 9)):
            group, blocks = self.random.choice(self.groups), self.random.random() < 0.15
            number, found = self.any_call(group, is_in_background=True)
            for call in found:
                self.delay()
                handle = call.start(group.comm, **({} if blocks else {"async_op": True}))
                # A receive that blocks returns its message.
                assert isinstance(handle, ringfold.Handle) != blocks, (handle, call.text)
                handle = None if blocks else handle
                waiting.append((handle, call, number, group))
        self.own.shuffle(waiting)
        for handle, call, number, group in waiting:
            if handle and self.own.random() < 0.3:
                while not handle.is_completed():
                    time.sleep(0)
            if handle:
                handle.wait(300)
            self.check(call, number, group)

    def together(self):
        """Makes a group of calls: messages, and collectives that may be packed."""
        random, maker = self.random, self.maker
        group = random.choice(self.groups)
        pairs = [
            (random.randrange(group.size), random.randrange(group.size))
            for _ in range(random.randrange(6))
        ]
        messages = [(self.next(), pair) for pair in pairs]
        are_alike, is_in_background = random.random() < 0.5, random.random() < 0.3
        choice = maker.choose(random, group.size, 1 << random.randrange(4, 16))
        collectives = []
        for _ in range(random.randrange(1, 13 if are_alike else 5)):
            one = choice if are_alike else maker.choose(random, group.size, 1 << 17)
            collectives.append((self.next(), one))
        if group.rank is None:
            return
        made = []
        for number, pair in messages:
            made += [(number, it) for it in maker.message(number, group, pair) if it.start]
        # This rank adds its messages in an order of its own, in which those of a pair stay in order.
        order = self.own.sample(made, len(made)) if made else []
        turns = {}
        for number, call in made:
            turns.setdefault((call.name, self.peer(call)), []).append((number, call))
        order = [turns[call.name, self.peer(call)].pop(0) for _, call in order]
        order += [
            (number, maker.collective(number, group, one, is_grouped=True))
            for number, one in collectives
        ]
        together = group.comm.group()
        for _, call in order:
            call.start(together)
        handle = together.run(async_op=is_in_background)
        if handle:
            handle.wait(300)
        for number, call in order:
            self.check(call, number, group)

    @staticmethod
    def peer(call):
        """Returns the sender and the receiver of a message."""
        return call.text[call.text.index(" from ") :]

    def change_groups(self):
        """Makes groups of some ranks, and closes others."""
        random, me = self.random, self.comm.rank
        self.next()
        while len(self.groups) > GROUPS_MAX or (len(self.groups) > 1 and random.random() < 0.3):
            group = self.groups.pop(random.randrange(1, len(self.groups)))
            if group.comm:
                group.comm.close()
        parent = random.choice(self.groups)
        kind = random.choice(["split", "split", "duplicate", "subset"])
        self.counts[kind] += int(parent.rank == 0)
        if kind == "split":
            colors = [random.choice([None, 0, 1, 1]) for _ in parent.members]
            keys = [random.randrange(-3, 4) for _ in parent.members]
            made = None
            if parent.comm:
                made = parent.comm.split(colors[parent.rank], keys[parent.rank])
            for color in [0, 1]:
                chosen = [at for at in range(parent.size) if colors[at] == color]
                chosen.sort(key=lambda at: (keys[at], at))
                if chosen:
                    self.add(parent, chosen, made)
        elif kind == "duplicate":
            made = parent.comm.duplicate() if parent.comm else None
            self.add(parent, list(range(parent.size)), made)
        else:
            chosen = random.sample(range(parent.size), random.randint(1, parent.size))
            made = parent.comm.subset(chosen) if parent.comm else None
            self.add(parent, chosen, made)
        assert me == self.comm.rank

    def add(self, parent, chosen, made):
        """Adds a group of the chosen ranks of its parent."""
        members = [parent.members[at] for at in chosen]
        is_member = self.comm.rank in members
        group = self.group(made if is_member else None, members)
        if is_member and (group.comm.rank, group.comm.size) != (group.rank, group.size):
            self.fault(f"rank {group.comm.rank} of {group.comm.size} in {members}")
        self.groups.append(group)

    def run(self):
        steps = [self.one] * 20 + [self.background] * 3 + [self.together] * 3 + [self.change_groups]
        while self.number < self.options.calls and len(self.faults) <= FAULTS_MAX:
            self.delay()
            self.random.choice(steps)()
        for group in reversed(self.groups):
            if group.comm:
                group.comm.close()
        self.bits.close()
        report = {"calls": self.number, "counts": self.counts, "kinds": self.kinds,
            "faults": len(self.faults), "share": self.share, "version": ringfold.__version__,
            "numpy": numpy.__version__}  # fmt: skip
        (self.options.out / f"report.{self.comm.rank}").write_text(json.dumps(report))


if __name__ == "__main__":
    options = arguments()
    own_host = options.hosts.split(",")[int(os.environ["RINGFOLD_RANK"])]
    # The library reads it when it is imported, or later.
    os.environ["RINGFOLD_HOSTID"] = f"host{own_host}"
    import calls
    import oracle
    import ringfold

    Rank(options, ringfold.init()).run()
