"""Memory, processor time, disk space and cores, as the system and its control groups count them."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from framestow.process import (
    available_bytes,
    available_disk_bytes,
    group_cores,
    group_headrooms,
    live_bytes,
    num_cores,
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


def group(folder, names, limit, usage, cached):
    """Write the files of a control group as the kernel does."""
    folder.mkdir(parents=True, exist_ok=True)
    limit_name, usage_name, cache_name = names
    (folder / limit_name).write_text(f"{limit}\n")
    (folder / usage_name).write_text(f"{usage}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{cache_name} {cached}\nfile 7\n")


VERSION_1 = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
VERSION_2 = "memory.max", "memory.current", "inactive_file"


def test_each_control_group_of_version_2_yields_its_unused_bytes(tmp_path):
    (tmp_path / "cgroup").write_text("0::/batch/job7\n")
    group(tmp_path / "fs" / "batch" / "job7", VERSION_2, 8 * GIB, 3 * GIB, GIB)
    group(tmp_path / "fs" / "batch", VERSION_2, "max", 5 * GIB, GIB)
    (tmp_path / "fs" / "memory.stat").write_text("the root group has no limit")

    assert [6 * GIB] == list(group_headrooms(tmp_path / "cgroup", tmp_path / "fs"))


def test_control_groups_of_version_1_are_read_from_the_memory_controller(tmp_path):
    (tmp_path / "cgroup").write_text("5:cpu,cpuacct:/job\n4:memory:/job\n1:name=systemd:/\n")
    group(tmp_path / "fs" / "memory" / "job", VERSION_1, 2 * GIB, 2 * GIB, 0)
    group(tmp_path / "fs" / "memory", VERSION_1, 9223372036854771712, 5 * GIB, 0)

    assert [0] == list(group_headrooms(tmp_path / "cgroup", tmp_path / "fs"))


def test_a_container_reads_its_group_at_the_top(tmp_path):
    (tmp_path / "cgroup").write_text("0::/../../host/name\n")
    group(tmp_path / "fs", VERSION_2, 4 * GIB, GIB, 0)

    assert [3 * GIB] == list(group_headrooms(tmp_path / "cgroup", tmp_path / "fs"))


def test_without_control_groups_there_is_no_limit(tmp_path):
    assert [] == list(group_headrooms(tmp_path / "none", tmp_path))


def cores(tmp_path):
    return num_cores(tmp_path / "cgroup", tmp_path / "fs")


def test_a_quota_of_control_groups_limits_the_cores(tmp_path, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(8)), raising=False)
    folder = tmp_path / "fs" / "docker" / "abc"
    folder.mkdir(parents=True)
    (tmp_path / "cgroup").write_text("0::/docker/abc\n")
    (folder / "cpu.max").write_text("max 100000\n")
    assert 8 == cores(tmp_path)

    (folder.parent / "cpu.max").write_text("250000 100000\n")
    assert 2 == cores(tmp_path), "two and a half cores are two whole ones"

    (folder / "cpu.max").write_text("50000 100000\n")
    assert 1 == cores(tmp_path), "a process has at least one core"


def test_quotas_of_version_1_are_read_from_the_cpu_controller(tmp_path):
    folder = tmp_path / "fs" / "cpu" / "job"
    folder.mkdir(parents=True)
    (tmp_path / "cgroup").write_text("4:memory:/job\n3:cpu,cpuacct:/job\n")
    for name, number in {"cpu.cfs_quota_us": 300_000, "cpu.cfs_period_us": 100_000}.items():
        (folder / name).write_text(f"{number}\n")
        (folder.parent / name).write_text("-1\n" if "quota" in name else "100000\n")

    assert [3.0] == list(group_cores(tmp_path / "cgroup", tmp_path / "fs"))


def test_without_control_groups_every_core_of_the_affinity_counts(tmp_path, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 3, 5}, raising=False)

    assert 3 == cores(tmp_path)
