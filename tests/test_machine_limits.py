"""The limits of Linux's control groups, and the cores that a process may use."""

from framestow.process import group_cores, group_headrooms, num_cores

GIB = 2**30


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
