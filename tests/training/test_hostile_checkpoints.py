"""Whatever the files of a checkpoint have, with right checksums: the run goes on, or an error names the file."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.numpy
import safetensors.torch
import torch

from framestow._core import checksum
from framestow.errors import CheckpointError, DamagedDataError, FramestowError, IncompatibleError
from framestow.training.checkpoint import TREE
from framestow.training.loop import start_run, train
from framestow.training.run import Run
from framestow.training.run_folder import RunFolder
from oracles.hostile_folders import bounded
from training.catch_runs import catch_settings, make_catch

AGENT, STATE = "agent.safetensors", "state.safetensors"
SETTINGS = catch_settings(steps=136, num_envs=2, memory=150)  # some updates
VALUES: list[Any] = [
    None,
    True,
    -1,
    10**30,
    1e308,
    "x",
    [],
    {},
    ["value", [1]],
    ["list", 7],
    ["array", "0"],
    ["bytes", {}],
]
DEEP = "[" * 10_000 + "]" * 10_000


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = RunFolder.create(tmp_path_factory.mktemp("whole") / "run", SETTINGS)
    run = start_run(folder, make_catch)
    train(run, folder)
    run.close()
    return folder.path


@pytest.fixture
def checkpoint(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "run")
    return RunFolder(tmp_path / "run").newest_checkpoint()


def _put(checkpoint: Path, name: str, content: bytes) -> None:
    """Write a file of a checkpoint, and its size and checksum into the manifest."""
    (checkpoint / name).write_bytes(content)
    manifest = _manifest(checkpoint)
    manifest["files"][name] |= {"bytes": len(content), "checksum": checksum(content)}
    _put_manifest(checkpoint, json.dumps(manifest))


def _manifest(checkpoint: Path) -> dict[str, Any]:
    return json.loads((checkpoint / "MANIFEST").read_bytes().partition(b"\n")[2])


def _put_manifest(checkpoint: Path, text: str) -> None:
    (checkpoint / "MANIFEST").write_bytes(b"%08x\n" % checksum(text.encode()) + text.encode())


def _refusal(checkpoint: Path) -> str | None:
    """Return the error of resuming the run, or of its next steps; ``None`` if there is none."""
    with bounded():
        try:
            run = Run.resume(checkpoint, catch_settings(steps=150, num_envs=2, memory=150), make_catch)
        except (CheckpointError, DamagedDataError, IncompatibleError) as error:
            return str(error)
        try:
            list(run.events())
        except FramestowError as error:
            return f"{checkpoint}: {error}"
        finally:
            run.close()
    return None


def _check(checkpoint: Path, *, is_refused: bool = True) -> None:
    """Fail unless resuming is refused with the file, in a line."""
    refusal = _refusal(checkpoint)
    assert refusal is not None or not is_refused
    if refusal is not None:
        assert str(checkpoint) in refusal
        assert refusal.isprintable()
        assert len(refusal) < 1_000


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in a JSON tree, as a container and a key."""
    for key in tree if isinstance(tree, dict) else range(len(tree)):
        yield tree, key
        if isinstance(tree[key], (dict, list)):
            yield from _places(tree[key])


def _tree_and_arrays(name: str, content: bytes) -> tuple[Any, dict[str, Any]]:
    end = 8 + int.from_bytes(content[:8], "little")
    load = safetensors.torch.load if name == AGENT else safetensors.numpy.load
    return json.loads(json.loads(content[8:end])["__metadata__"][TREE]), load(content)


def _packed(name: str, tree: str, arrays: dict[str, Any]) -> bytes:
    return (safetensors.torch.save if name == AGENT else safetensors.numpy.save)(arrays, {TREE: tree})


def test_a_whole_checkpoint_is_taken(checkpoint: Path) -> None:
    for name in (AGENT, STATE):
        tree, arrays = _tree_and_arrays(name, (checkpoint / name).read_bytes())
        _put(checkpoint, name, _packed(name, json.dumps(tree), arrays))

    assert _refusal(checkpoint) is None


@pytest.mark.parametrize("name", [AGENT, STATE])
def test_a_file_that_is_cut_or_has_other_bytes(checkpoint: Path, name: str) -> None:
    content = (checkpoint / name).read_bytes()

    for number in range(12):
        place = number * len(content) // 12
        _put(checkpoint, name, content[:place])
        _check(checkpoint)
        _put(checkpoint, name, content[:place] + random.Random(place).randbytes(40) + content[place + 40 :])
        _check(checkpoint, is_refused=False)


@pytest.mark.parametrize("name", [AGENT, STATE])
def test_any_value_anywhere_in_the_tree(checkpoint: Path, name: str) -> None:
    content = (checkpoint / name).read_bytes()
    num_places = len(list(_places(_tree_and_arrays(name, content)[0])))
    chosen = random.Random(0).sample(range(num_places), min(40, num_places))

    for number, place in enumerate(chosen):
        tree, arrays = _tree_and_arrays(name, content)
        container, key = list(_places(tree))[place]
        container[key] = VALUES[number % len(VALUES)]
        _put(checkpoint, name, _packed(name, json.dumps(tree), arrays))
        _check(checkpoint, is_refused=False)
    for text in (DEEP, "", "7", json.dumps(["dict", {}]), "x" * 5_000_000):
        _put(checkpoint, name, _packed(name, text, arrays))
        _check(checkpoint)


def test_tensors_of_another_shape_type_or_name_and_numbers_that_are_not_finite(checkpoint: Path) -> None:
    tree, tensors = _tree_and_arrays(AGENT, (checkpoint / AGENT).read_bytes())

    for name in random.Random(0).sample(sorted(tensors), 8):
        wrong = {
            "type": tensors[name].to(torch.float16),
            "shape": tensors[name].reshape(-1)[:-1].clone(),
            "not finite": torch.full_like(tensors[name].float(), float("nan")),
        }
        changed = [tensors | {name: tensor} for tensor in wrong.values()]
        changed += [tensors | {"more": torch.ones(2)}, {key: one for key, one in tensors.items() if key != name}]
        for one in changed:
            _put(checkpoint, AGENT, _packed(AGENT, json.dumps(tree), one))
            _check(checkpoint)


@pytest.mark.parametrize("value", [*VALUES, -1, 2**60, "../../keys", "/etc/passwd", "DEEP"], ids=repr)
def test_any_value_in_the_manifest(checkpoint: Path, value: Any) -> None:
    manifest = _manifest(checkpoint)
    for place in range(len(list(_places(manifest)))):
        changed = _manifest(checkpoint)
        container, key = list(_places(changed))[place]
        container[key] = value
        whole = (checkpoint / "MANIFEST").read_bytes()
        _put_manifest(checkpoint, json.dumps(changed).replace('"DEEP"', DEEP))
        _check(checkpoint, is_refused=False)
        (checkpoint / "MANIFEST").write_bytes(whole)


@pytest.mark.parametrize("name", [AGENT, STATE])
def test_a_small_file_that_becomes_large_is_refused_before_it_does(checkpoint: Path, name: str) -> None:
    _, arrays = _tree_and_arrays(name, (checkpoint / name).read_bytes())
    header = json.dumps({"a": {"dtype": "U8", "shape": [2**40], "data_offsets": [0, 2**40]}}).encode()
    first = next(iter(arrays))
    again = ["array" if name == STATE else "tensor", first]
    bombs = {
        "more than the file": len(header).to_bytes(8, "little") + header,
        "a header of 2**60 bytes": (2**60).to_bytes(8, "little"),
        "one array many times": _packed(name, json.dumps(["list", [again] * 10**5]), {first: arrays[first]}),
    }

    for content in bombs.values():
        _put(checkpoint, name, content)
        _check(checkpoint)
    with (checkpoint / name).open("r+b") as file:  # with holes: of no bytes on the disk
        file.truncate(10**12)
    manifest = _manifest(checkpoint)
    manifest["files"][name]["bytes"] = 10**12
    _put_manifest(checkpoint, json.dumps(manifest))
    assert "it has 1,000,000,000,000 bytes: by the settings" in str(_refusal(checkpoint))
