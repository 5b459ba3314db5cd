"""Each script of examples/, and the notebook, runs with small numbers and prints its results."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

from framestow import ReplayMemory

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, arguments: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> str:
    """What the example prints when it runs in ``folder``."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", [name, *arguments.split()])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def test_ten_lines_store_and_sample(tmp_path, monkeypatch, capsys):
    printed = run("ten_lines.py", "", tmp_path, monkeypatch, capsys)

    assert printed.splitlines()[0] == "(32, 4, 84, 84)"
    code = (EXAMPLES / "ten_lines.py").read_text(encoding="utf-8").split('"""')[2].splitlines()
    statements = [line for line in code if line.strip() and not line.startswith(("from", "import", "print"))]
    assert len(statements) <= 10


def test_a_whole_dqn_has_eighty_lines_and_updates(tmp_path, monkeypatch, capsys):
    printed = run("dqn_pytorch.py", "--steps 32 --warmup 20 --capacity 1000", tmp_path, monkeypatch, capsys)

    assert re.search(r"32 steps, \d+ games, the last ones scored [\d.]+, loss \d\.\d+", printed)
    assert len((EXAMPLES / "dqn_pytorch.py").read_text(encoding="utf-8").splitlines()) <= 80


def test_an_archive_is_appended_to_and_learned_from(tmp_path, monkeypatch, capsys):
    run("offline_archive.py", "--steps 80 --updates 1", tmp_path, monkeypatch, capsys)
    printed = run("offline_archive.py", "--steps 40 --updates 2", tmp_path, monkeypatch, capsys)

    assert "2 updates, loss " in printed
    assert 100 <= len(ReplayMemory.open(tmp_path / "archive")) <= 120


def test_a_memory_is_written_to_a_plain_file_and_read_back(tmp_path, monkeypatch, capsys):
    printed = run("plain_files.py", "--steps 60", tmp_path, monkeypatch, capsys)

    assert "'observations': (60, 4, 84, 84)" in printed
    assert "60 transitions written, 60 read; the first is the same: True" in printed


def test_demonstrations_on_disk_are_half_of_each_batch(tmp_path, monkeypatch, capsys):
    printed = run("demonstrations.py", "--steps 60", tmp_path, monkeypatch, capsys)

    demonstrated, online = map(int, re.search(r"rows of the batches: \[(\d+), (\d+)\]", printed).groups())
    assert demonstrated + online == 60 * 32
    assert online >= 50 * 16


def test_stable_baselines3_learns_with_priorities_beside_without(tmp_path, monkeypatch, capsys):
    pytest.importorskip("stable_baselines3")
    printed = run("stable_baselines3_prioritized.py", "--steps 120 --seeds 1", tmp_path, monkeypatch, capsys)

    curves = json.loads((tmp_path / "curves.json").read_text())
    assert {"plain": [20], "prioritized": [20]} == {kind: list(map(len, found)) for kind, found in curves.items()}
    assert re.search(r"prioritized: last quarter -?[\d.]+, all", printed)


def test_a_store_is_learned_from_by_workers_of_a_data_loader(tmp_path, monkeypatch, capsys):
    printed = run("data_loader.py", "--steps 70 --epochs 2 --workers 1", tmp_path, monkeypatch, capsys)

    assert re.findall(r"epoch (\d): 70 transitions, loss \d", printed) == ["0", "1"]


def test_a_custom_environment_with_a_dict_of_pixels_is_learned_from(tmp_path, monkeypatch, capsys):
    printed = run("dict_pixels.py", "--steps 103", tmp_path, monkeypatch, capsys)

    assert re.search(r"103 steps: [\d.]+ targets", printed)


def test_a_world_model_learns_from_sequences_in_the_layout_of_dreamer(tmp_path, monkeypatch, capsys):
    printed = run("dreamer_sequences.py", "--steps 200 --updates 6", tmp_path, monkeypatch, capsys)

    first, *_, last = map(float, re.findall(r"loss ([\d.]+)", printed))
    assert last < first


def test_each_image_of_dreamers_layout_has_the_action_and_the_reward_that_led_to_it(monkeypatch):
    example = runpy.run_path(str(EXAMPLES / "dreamer_sequences.py"))
    memory = ReplayMemory(1000, example["FrameSpec"]((2, 2, 3)), 20, stack=1, seed=0)
    frame = example["np"].zeros((1, 2, 2, 3), "uint8")
    number = 0  # of a frame; the step to frame k has action k % 20 and reward k
    for length in (3, 9, 6):
        memory.begin(frame + number)
        for step in range(length):
            number += 1
            memory.append([number % 20], [float(number)], [step == length - 1], [False], frame + number)
        number += 1

    batch = {name: tensor.numpy() for name, tensor in example["dreamer_batch"](memory, 64, 8, 20).items()}

    images, exists = batch["image"][:, :, 0, 0, 0].astype(int), batch["mask"]
    assert batch["is_first"][:, 0].all()
    assert not batch["is_first"][:, 1:].any()
    assert (batch["reward"][:, 1:][exists[:, 1:]] == images[:, 1:][exists[:, 1:]]).all()
    assert (batch["action"].argmax(2)[:, 1:][exists[:, 1:]] == images[:, 1:][exists[:, 1:]] % 20).all()
    assert (batch["is_terminal"][exists] == example["np"].isin(images[exists], [3, 13, 20])).all()
    assert {3, 13, 20} <= set(images[exists].tolist())


def test_the_notebook_has_the_output_of_every_cell_that_prints_or_draws():
    cells = json.loads((EXAMPLES / "million_transitions.ipynb").read_text(encoding="utf-8"))["cells"]
    shows = [cell for cell in cells if cell["cell_type"] == "code" and re.search("print|show", "".join(cell["source"]))]

    assert len(shows) == 4
    assert [cell["id"] for cell in shows if not cell["outputs"]] == []
    assert all(output["output_type"] != "error" for cell in shows for output in cell["outputs"])


def test_the_notebook_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("TRANSITIONS", "400")
    monkeypatch.setenv("UPDATES", "2")
    cells = json.loads((EXAMPLES / "million_transitions.ipynb").read_text(encoding="utf-8"))["cells"]

    names = {"__name__": "__main__"}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"notebook, {cell['id']}", "exec"), names)

    printed = capsys.readouterr().out
    assert re.search(r"^400 transitions in \d+ s", printed, re.MULTILINE)  # full: the oldest are evicted
    assert "2 updates, mean loss" in printed
    assert re.search(r"^\d+ frames are equal to the bit", printed, re.MULTILINE)
    assert "a machine with 12 GB" in [text.get_text() for text in names["axes"].get_legend().get_texts()]
    assert ["framestow, growth of the process", "framestow, memory.nbytes"] == [
        line.get_label() for line in names["axes"].lines[3:5]
    ]
