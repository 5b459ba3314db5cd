"""Memory, processor time and disk space, as the operating system counts them."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from framestow.process import (
    available_bytes,
    available_disk_bytes,
    live_bytes,
    processor_seconds,
)

MIB = 2**20
GIB = 2**30


@pytest.mark.skipif("not __import__('psutil').LINUX", reason="only glibc hands freed memory back when asked")
def test_live_bytes_counts_objects_in_reused_memory():
    freed = [bytes(1000) for _ in range(40_000)]
    kept = [bytes(1000)]
    del freed
    before = live_bytes()

    kept += [bytes(1000) for _ in range(40_000)]

    # Of their 38 MiB, some lie in holes of pages that other tests' objects keep resident.
    assert 30 * MIB < live_bytes() - before < 46 * MIB


BUSY = """
import sys, time
while time.process_time() < 0.4:
    pass
print("busy no more", flush=True)
sys.stdin.read()
"""


def test_processor_time_counts_this_process_and_its_children_while_they_live_and_after():
    began, process_began = processor_seconds(), time.process_time()
    while time.process_time() - process_began < 0.2:
        sum(range(10_000))
    own = processor_seconds()

    child = subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    with_living_child = processor_seconds()
    child.communicate()
    with_dead_child = processor_seconds()

    # Counted in ticks of 0.01 s.
    assert 0.18 < own - began < 0.3
    assert 0.38 < with_living_child - own < 0.8
    assert -0.02 < with_dead_child - with_living_child < 0.3


@pytest.mark.skipif("not __import__('psutil').LINUX", reason="only glibc keeps freed memory when asked")
def test_kept_memory_is_used_again_without_page_faults():
    count_faults = (
        "import resource; import numpy as np; from framestow.process import keep_freed_bytes; {setting}\n"
        "for number in range(20):\n"
        "    if number == 10: before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    arrays = [np.ones(3 * 2**20, np.uint8) for _ in range(8)]; del arrays\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)"
    )

    def faults(setting):
        command = [sys.executable, "-c", count_faults.format(setting=setting)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert faults("keep_freed_bytes(64 * 2**20)") < 100
    assert faults("") > 10_000


def test_available_bytes_do_not_exceed_the_memory_of_the_machine():
    assert 0 < available_bytes() <= psutil.virtual_memory().total


@pytest.mark.skipif("sys.platform != 'linux'", reason="other systems do not hold processes to RLIMIT_AS")
def test_available_bytes_respect_a_limit_of_the_address_space():
    asked = (
        "import resource; from framestow.process import available_bytes; import psutil;"
        f"resource.setrlimit(resource.RLIMIT_AS, ({8 * GIB}, {8 * GIB}));"
        "print(available_bytes() + psutil.Process().memory_info().vms)"
    )

    output = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout

    assert int(output) <= 8 * GIB + 64 * MIB  # it may grow between the two questions


def test_available_disk_bytes_accepts_a_folder_that_does_not_exist_yet(tmp_path):
    free = available_disk_bytes(tmp_path / "runs" / "new")

    assert abs(free - os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize) < GIB
