"""RDMA, without devices."""

import os
import subprocess
import unittest
from pathlib import Path

import command
from programs import pair
from scenarios import rdma

# Outputs of perftest 4.5 and rdma-core 44.
WRITES = """
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      1000             584.11             508.07 		   0.008129
"""
NO_CLOCK = """
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      1000             0.00               0.00   		   0.000000
"""
TRIPS = """
819200 bytes in 0.12 seconds = 55.36 Mbit/sec
100 iters in 0.12 seconds = 1183.82 usec/iter
"""


class Printed(unittest.TestCase):
    """The outputs of the yardsticks."""

    def test_the_average_counts(self):
        self.assertAlmostEqual(pair.microseconds_of_write(WRITES, 65536), 1e6 / 16 / 508.07)

    def test_no_rate_is_no_time(self):
        self.assertIsNone(pair.microseconds_of_write(NO_CLOCK, 65536))
        self.assertIsNone(pair.microseconds_of_write(WRITES, 4096))

    def test_a_round_trip_is_an_iteration(self):
        self.assertEqual(pair.microseconds_of_trip(TRIPS), 1183.82)


class AsHost(unittest.TestCase):
    """A rank gets its own host's devices from any launcher."""

    def run_as(self, rails, **variables):
        script = "echo $RINGFOLD_IB_HCA $RINGFOLD_SOCKET_IFNAME $UCX_NET_DEVICES"
        words = [rdma.AS_HOST, rails, "sh", "-c", script]
        environment = {"PATH": os.environ["PATH"]} | variables
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    def test_devices(self):
        expected = "rxe_h1r =h1r0 rxe_h1r0:1,rxe_h1r1:1\n"
        for name in ("RINGFOLD_RANK", "OMPI_COMM_WORLD_RANK"):
            self.assertEqual(self.run_as("2", **{name: "1"}), (0, expected))

    def test_without_a_launcher_it_refuses(self):
        self.assertNotEqual(self.run_as("1")[0], 0)


class Types(unittest.TestCase):
    """Types of elements reach the timing programs."""

    def jobs(self):
        words = "rdma --what put,all_reduce --hosts 2 --sizes 8 --types f32,bf16"
        return list(rdma.jobs(command.arguments(words.split())))

    def test_collectives_have_a_job_for_each_type(self):
        made = [(job.collective, job.data_type) for job in self.jobs()]
        self.assertEqual(made, [("put", "f32"), ("all_reduce", "f32"), ("all_reduce", "bf16")])

    def test_ringfold_gets_the_type(self):
        ours = rdma.Ringfold("rdma", Path("folder"), 1)
        plain, typed = [ours.command(job, None) for job in self.jobs()[1:]]
        self.assertNotIn("--type", plain)
        self.assertEqual(typed[typed.index("--type") + 1], "bf16")
