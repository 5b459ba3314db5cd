"""Write what runs did as one HTML page, for ``framestow report``.

The page needs no network and no script: charts are inline SVG, pictures and the video are inside the file.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import imageio_ffmpeg
import numpy as np
import numpy.typing as npt
from PIL import Image

from framestow.agents.dormant_units import DORMANT_SCORE
from framestow.distributed.replay import is_sharded, memory_folders
from framestow.envs import find_preset, make_atari
from framestow.envs.atari.games import list_games
from framestow.errors import DamagedDataError, InvalidSettingsError
from framestow.interface import plural
from framestow.replay.eviction.byte_amounts import format_bytes
from framestow.replay.memory import ReplayMemory
from framestow.replay.reports.facts import OF_A_MEMORY, shown_in
from framestow.replay.reports.inspection import Inspection, Spread, inspect_memory
from framestow.replay.samplers.uniform import Uniform
from framestow.storage.files.file_system import DISK, check_can_write, write_atomically
from framestow.training.checkpoint import newest_checkpoint, read_agent_steps
from framestow.training.listeners import COLUMNS, PROGRESS_COLUMNS, format_duration, read_rows
from framestow.training.playing import Player, action_names, record_game
from framestow.training.report.charts import Band, Dots, Key, Layer, Line, bin_points, chart, read_style
from framestow.training.run import NUM_MEASURED
from framestow.training.run_folder import RunFolder
from framestow.training.scores import RANDOM_AND_HUMAN, averages_of_runs, human_normalized, published_scores
from framestow.training.settings import Change, Settings, learning_settings

ROLLING = 20  # games in a rolling mean
MOST_TIMES_AS_LONG = 2  # as the longest run: a published agent's training, to stand beside it
LAST = 100  # games in the score of a training (Machado et al. 2018)
AVERAGE_COLUMNS = ["", "runs", "score", "95 % interval", "human-normalised"]
GRID = 200  # points of a mean over seeds
MAX_DOTS = 1_500  # of one chart, about: then only every n-th game has one
MAX_CLIP_BYTES = 3_000_000  # a larger video is left out of the page
MOST_EVALUATION_BYTES = 2**20
CLIP_STEPS = 450  # agent steps; 30 s
NUM_TRANSITIONS, NUM_NOTABLE, NUM_DRAWN = 8, 4, 512  # shown, shown with a reward or an end, drawn
MIB = 2.0**20

Numbers = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """What the files of a run folder tell about a run."""

    folder: RunFolder
    name: str  # of the run folder
    settings: Settings
    changes: list[Change]  # of settings, when the run was resumed
    agent_steps: int
    game_steps: Numbers  # agent steps at the end of each game
    scores: Numbers  # of each game
    progress: dict[str, Numbers]  # columns of progress.csv; of dormant_units the layer with the most
    dormant_units: list[float]  # the share of each layer at the end
    evaluation: dict[str, Any] | None  # content of evaluation.json; None without an evaluation

    @classmethod
    def read(cls, path: Path, *, follow_links: bool = False) -> RunRecord:
        """Read the folder of a run, also while it is training. Raises as ``RunFolder.open``, or for damaged files."""
        folder = RunFolder.open(path, follow_links=follow_links)
        games = list(read_rows(folder.episodes, COLUMNS))
        rows = list(read_rows(folder.progress, PROGRESS_COLUMNS))
        progress = {name: np.array([_number(row[name]) for row in rows]) for name in PROGRESS_COLUMNS}
        dormant = [float(share) for row in rows[-1:] for share in row["dormant_units"].split()]
        game_steps = np.array([_number(row["agent_steps"]) for row in games])
        newest = newest_checkpoint(folder.checkpoints)
        reached = [float(read_agent_steps(newest)) if newest else 0.0, *progress["agent_steps"][-1:], *game_steps[-1:]]
        return cls(
            folder=folder,
            name=path.resolve().name,
            settings=folder.settings(),
            changes=folder.changes(),
            agent_steps=int(max(reached)),
            game_steps=game_steps,
            scores=np.array([_number(row["score"]) for row in games]),
            progress=progress,
            dormant_units=dormant,
            evaluation=_evaluation(folder.evaluation),
        )

    def last(self, column: str) -> float | None:
        """Return the last number of a column of progress.csv; ``None`` if there is none."""
        return float(self.progress[column][-1]) if len(self.progress[column]) else None

    def mean_of_last(self, num_games: int) -> float | None:
        """Return the mean score of the last games; ``None`` before the first."""
        return float(self.scores[-num_games:].mean()) if len(self.scores) else None


def write_report(
    paths: Sequence[Path], output: Path, with_clip: bool = True, *, follow_links: bool = False
) -> list[list[str]]:
    """Write the report of one or several runs of the same game; return the rows of its averages over runs.

    The file appears when it is complete.

    Arguments:
        paths: The run folders, each counted once. Runs that differ only in their seed are averaged.
        output: The HTML file.
        with_clip: Show a video: the newest ``GAME-*.mp4`` of the first run, or half a minute recorded now.
        follow_links: Read checkpoints and memories that are links to folders elsewhere.

    Raises:
        InvalidSettingsError: a folder is no run folder, or the runs are of different games; nothing is written.
        DamagedDataError: a file of a run is not as framestow writes it.
        OSError: the file cannot be written, which is found before the report is made.
    """
    different = {path.resolve(): path for path in paths}.values()
    runs = [RunRecord.read(path, follow_links=follow_links) for path in different]
    check_can_write(output)
    by_game = {run.settings.game: run for run in runs}
    if len(by_game) > 1:
        named = " and ".join(f"{game} ({run.folder.path})" for game, run in by_game.items())
        raise InvalidSettingsError(f"the runs are of {named}: a report is about one game; write a report for each game")
    page = _page(runs, with_clip, output.resolve().parent)
    content = page.encode("utf-8", "backslashreplace")  # a folder's name may be no UTF-8
    write_atomically(output, content, is_durable=False)
    return average_rows(runs)


def rolling_mean(scores: Numbers, window: int = ROLLING) -> Numbers:
    """Return for each game the mean of it and the games before, ``window`` at most.

    >>> rolling_mean(np.array([1.0, 3.0, 5.0, 7.0]), 2)
    array([1., 2., 4., 6.])
    """
    sums = np.concatenate([[0.0], np.cumsum(scores)])
    ends = np.arange(1, len(scores) + 1)
    starts = np.maximum(ends - window, 0)
    means: Numbers = (sums[ends] - sums[starts]) / (ends - starts)
    return means


def runs_by_settings(runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Return the runs by settings, without the seed and what a resumed run may change. A key names what differs."""
    decide = [learning_settings(run.settings) for run in runs]
    differing = [name for name in (decide[0] if decide else ()) if len({repr(each[name]) for each in decide}) > 1]
    groups: dict[str, list[RunRecord]] = {}
    for run, each in zip(runs, decide, strict=True):
        groups.setdefault(", ".join(f"{name} {each[name]}" for name in differing), []).append(run)
    return groups


def _learning_curve(runs: Sequence[RunRecord], unit: str) -> str:
    layers: list[Layer] = []
    keys: list[Key] = []
    groups = runs_by_settings(runs)
    for colour, (label, group) in enumerate(groups.items()):
        name = f"{label}: " if label else ""
        curves = [(run.game_steps, rolling_mean(run.scores)) for run in group if len(run.scores)]
        if len(runs) == 1 and curves:
            stride = -(-len(runs[0].scores) // MAX_DOTS)
            layers.append(Dots(runs[0].game_steps[::stride], runs[0].scores[::stride], colour))
            keys.append(Key("a game" if stride == 1 else f"a game (every {stride}th)", colour, "dots"))
        if len(curves) == 1:
            layers.append(Line(*bin_points(*curves[0]), colour, "", group[0].name))
            keys.append(Key(f"{name}mean of {ROLLING} games", colour))
        elif curves:
            layers += _layers_over_seeds(group, curves, colour)
            keys += [Key(f"{name}mean of {len(curves)} runs", colour), Key("a run", colour, "thin")]
            keys += [Key("median of the runs", colour, "dashed")] if len(curves) > 2 else []
            keys += [Key("lowest to highest run", colour, "band")]
    caption = (
        f"Score of a training game, unclipped, as the mean of the last {ROLLING} games at most, over {unit}."
        if len(runs) > 1
        else f"Score of each training game, unclipped, and the mean of the last {ROLLING} at most, over {unit}."
    )
    return chart("Learning curve: score", layers, caption, keys)


def _layers_over_seeds(group: Sequence[RunRecord], curves: list[tuple[Numbers, Numbers]], colour: int) -> list[Layer]:
    first, last = max(steps[0] for steps, _ in curves), min(steps[-1] for steps, _ in curves)
    thin = [
        Line(*bin_points(steps, means), colour, "thin", run.name)
        for run, (steps, means) in zip([run for run in group if len(run.scores)], curves, strict=True)
    ]
    if first >= last:
        return list(thin)
    grid = np.linspace(first, last, GRID)
    values = np.array([np.interp(grid, steps, means) for steps, means in curves])
    middle = [Line(grid, np.median(values, axis=0), colour, "dashed")] if len(curves) > 2 else []
    return [
        Band(grid, values.min(axis=0), values.max(axis=0), colour),
        *thin,
        *middle,
        Line(grid, values.mean(axis=0), colour),
    ]


def _state_charts(runs: Sequence[RunRecord], unit: str) -> str:
    if not any(len(run.progress["agent_steps"]) for run in runs):
        return "<p class='note'>These runs have no progress.csv.</p>"
    longest = max(run.last("wall_s") or 0.0 for run in runs)
    time_unit, seconds = ("hours", 3_600.0) if longest > 7_200 else ("minutes", 60.0)
    over_steps = f"over {unit}"
    over_time = f"over the {time_unit} of training, including earlier parts of resumed runs"
    groups = runs_by_settings(runs).values()

    def lines(column: str, scale: float = 1.0, by_time: bool = False) -> list[Layer]:
        drawn: list[Layer] = []
        for colour, run in ((colour, run) for colour, group in enumerate(groups) for run in group):
            xs = run.progress["wall_s"] / seconds if by_time else run.progress["agent_steps"]
            points = bin_points(xs, run.progress[column] / scale)
            drawn.append(Line(*points, colour, "" if len(runs) == 1 else "thin", run.name))
        return drawn

    stored = [run.last("transitions") for run in runs]
    transitions = f"{int(max(count or 0 for count in stored)):,} transitions at the end"
    charts = "".join(
        [
            chart("Loss", lines("loss"), f"Loss of the last update before each point, {over_steps}."),
            chart("Mean value", lines("mean_value"), f"Mean value of the actions in the last batch, {over_steps}."),
            chart("Epsilon", lines("epsilon"), f"Probability of a random action, {over_steps}."),
            chart("Learning rate", lines("learning_rate"), f"Learning rate of the optimizer, {over_steps}."),
            chart(
                "Dormant units",
                lines("dormant_units", 0.01),
                f"Per cent of the layer that has the most, {over_steps}: units with at most "
                f"{DORMANT_SCORE:.1%} of their layer's mean activity, over {NUM_MEASURED} observations "
                "(Sokar et al. 2023).",
            ),
            chart("Rate", lines("steps_per_s", by_time=True), f"Agent steps per second, {over_time}."),
            *(
                chart(
                    title,
                    lines(fact.homes["progress"], MIB if fact.unit else 1, by_time=True),
                    f"{f'MiB {fact.words}' if fact.unit else fact.words.capitalize()}, {over_time}; {transitions}.",
                )
                for title, fact in shown_in("chart", OF_A_MEMORY)
            ),
            chart(
                "Process",
                lines("process_bytes", MIB, by_time=True),
                f"MiB in RAM of the training process (resident set size), {over_time}.",
            ),
        ]
    )
    note = "<p class='note'>A line for each run, in the colours of the learning curve.</p>" if len(runs) > 1 else ""
    return f"{note}<div class='charts'>{charts}</div>"


def _tiles(runs: Sequence[RunRecord], frame_skip: int | None) -> str:
    """Return the main numbers: of the run, or over all runs."""
    scores = [score for run in runs if (score := run.mean_of_last(ROLLING)) is not None]
    games = plural(min(ROLLING, max(len(run.scores) for run in runs)), "game")
    steps = max(run.agent_steps for run in runs)
    cpu = [run.last("cpu_s") for run in runs]
    wall = [run.last("wall_s") for run in runs]
    rss = [run.progress["process_bytes"].max() for run in runs if len(run.progress["process_bytes"])]
    memory = [run.last("memory_bytes") for run in runs]
    each = "" if len(runs) == 1 else f", mean of {len(scores)} runs"
    longest = "" if len(runs) == 1 else ", longest run"
    most = "" if len(runs) == 1 else ", largest run"
    tiles = [
        (f"{np.mean(scores):.2f}" if scores else "-", f"score of the last {games}{each}"),
        (f"{steps:,}", f"agent steps{longest}" + (f" = {frame_skip * steps:,} emulator frames" if frame_skip else "")),
        (_combine_known(wall, max, format_duration), f"wall time{longest}"),
        (_combine_known(cpu, sum, _core_hours), "core-hours" + ("" if len(runs) == 1 else " of all runs together")),
        (_combine_known(memory, max, format_bytes), f"replay memory{most}"),
        (format_bytes(max(rss)) if rss else "-", f"peak of the process{most}"),
    ]
    cells = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for value, name in tiles)
    return f"<div class='tiles'>{cells}</div>"


def _run_table(runs: Sequence[RunRecord]) -> str:
    columns = ["run", "seed", "agent steps", "games", f"last {ROLLING}", f"last {LAST}", "best", "wall time"]
    columns += ["core-hours", "memory", "peak process", "dormant units"]
    rows = []
    for run in runs:
        rss = run.progress["process_bytes"]
        rows.append(
            [
                run.name,
                str(run.settings.seed),
                f"{run.agent_steps:,}",
                f"{len(run.scores):,}",
                _score(run.mean_of_last(ROLLING)),
                _score(run.mean_of_last(LAST)),
                f"{run.scores.max():g}" if len(run.scores) else "-",
                _combine_known([run.last("wall_s")], max, format_duration),
                _combine_known([run.last("cpu_s")], max, _core_hours),
                _combine_known([run.last("memory_bytes")], max, format_bytes),
                format_bytes(rss.max()) if len(rss) else "-",
                ", ".join(f"{share:.0%}" for share in run.dormant_units) or "-",
            ]
        )
    note = (
        f"Scores: means of the last {ROLLING} and the last {LAST} training games, or of all if there were fewer. "
        "Core-hours: processor time, user and system, of the process and its workers. Dormant units: the share of "
        "each layer at the end."
    )
    changes = [
        f"{run.name} was resumed at step {change.agent_steps:,} with {change.setting} {change.after} instead of "
        f"{change.before}."
        for run in runs
        for change in run.changes
    ]
    return _table(columns, rows) + "".join(f"<p class='note'>{escape(text)}</p>" for text in (note, *changes))


def average_rows(runs: Sequence[RunRecord]) -> list[list[str]]:
    """Return a row of ``AVERAGE_COLUMNS`` for each average over runs that differ in their seed alone."""
    rows, game = [], runs[0].settings.game
    for label, group in runs_by_settings(runs).items():
        scores = [score for run in group if (score := run.mean_of_last(ROLLING)) is not None]
        for name, values in (averages_of_runs(scores) if len(scores) > 1 else {}).items():
            shares = [share for value in values if (share := human_normalized(game, value)) is not None]
            rows.append(
                [
                    f"{label}: {name}" if label else name,
                    str(len(scores)),
                    f"{values[0]:.2f}",
                    "{:.2f} to {:.2f}".format(*values[1:]),
                    "{:.3f}, {:.3f} to {:.3f}".format(*shares) if shares else "-",
                ]
            )
    return rows


def _average_table(runs: Sequence[RunRecord]) -> str:
    rows = average_rows(runs)
    note = (
        f"Averages over the runs of the mean of the last {ROLLING} games of each. The interval is a bootstrap over the "
        "runs (Agarwal et al. 2021); with few runs it is too narrow."
    )
    return _table(AVERAGE_COLUMNS, rows) + f"<p class='note'>{escape(note)}</p>" if rows else ""


def _score_table(runs: Sequence[RunRecord], frame_skip: int | None) -> str:
    """Return this game's scores: of the runs, of random play, of a human, and the published ones."""
    game = runs[0].settings.game
    skip = frame_skip or 0
    rows: list[tuple[str, str, float | None, int | None, int]] = []  # who, how, score, agent steps, frames per step
    for run in runs:
        if run.evaluation:
            rows.append((f"{run.name}, evaluated", *_evaluation_row(run.evaluation), skip))
        num_games = min(LAST, len(run.scores))
        preset = f"preset {run.settings.preset}, seed {run.settings.seed}"
        how = f"mean of the last {plural(num_games, 'training game')}, {preset}"
        rows.append((f"{run.name}, training", how, run.mean_of_last(LAST), run.agent_steps, skip))
    num_own = len(rows)
    if game in RANDOM_AND_HUMAN:
        random, human = RANDOM_AND_HUMAN[game]
        how = "no sticky actions, 1 to 30 no-ops; dqn_zoo's table"
        rows += [("random play", how, random, None, 0), ("human tester", how, human, None, 0)]
    most_steps = MOST_TIMES_AS_LONG * max(run.agent_steps for run in runs)
    for entry in (entry for entry in published_scores(game) if entry.agent_steps <= most_steps):
        how = f"{entry.protocol}; {entry.source}"
        frames_per_step = entry.emulator_frames // entry.agent_steps
        rows.append((entry.agent, how, entry.scores[game], entry.agent_steps, frames_per_step))
    body = []
    for number, (who, how, score, steps, skipped) in enumerate(rows):
        normalized = None if score is None else human_normalized(game, score)
        training = "-" if steps is None else f"{_amount(steps)}" + (f" / {_amount(steps * skipped)}" if skipped else "")
        cells = [_score(score), "-" if normalized is None else f"{100 * normalized:,.0f} %", training]
        numbers = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        own = " class='own'" if number < num_own else ""
        body.append(f"<tr{own}><th>{escape(who)}<small>{escape(how)}</small></th>{numbers}</tr>")
    head = "".join(f"<th>{name}</th>" for name in ("", "score", "human-normalised", "agent steps / emulator frames"))
    return (
        f"<div class='wide'><table class='scores'><tr>{head}</tr>{''.join(body)}</table></div>"
        "<p class='note'>Human-normalised: random play has 0 %, the human tester 100 %. Compare scores only where the "
        "protocols, written below each name, agree. Published agents are shown if they trained at most "
        f"{MOST_TIMES_AS_LONG} times as long.</p>"
    )


def _evaluation_row(evaluation: dict[str, Any]) -> tuple[str, float, int]:
    error = evaluation["standard_error"]
    how = (
        f"mean of {plural(len(evaluation['scores']), 'game')}"
        + ("" if error is None else f", standard error {error:.2f}")
        + f", median {evaluation['median']:g}"
        + (f", protocol {evaluation['protocol']}" if evaluation.get("protocol") else "")
        + f", preset {evaluation['played_preset']}, epsilon {evaluation['epsilon']:g}, seed {evaluation['seed']}"
    )
    return how, float(evaluation["mean"]), int(evaluation["agent_steps"])


def _clip(run: RunRecord) -> str:
    """Return a video of the agent: the newest of the run folder, or one that is recorded now."""
    game, folder = run.settings.file_stem, run.folder.path
    names = [name for name in DISK.names(folder) if name.startswith(f"{game}-") and name.endswith(".mp4")]
    videos = {folder / name: DISK.status(folder / name) for name in names}
    if small := [path for path, status in videos.items() if status.st_size <= MAX_CLIP_BYTES]:
        newest = max(small, key=lambda path: videos[path].st_mtime)
        return _video(DISK.read(newest, MAX_CLIP_BYTES), f"{newest.name} of {run.name}.")
    if newest_checkpoint(run.folder.checkpoints) is None:
        return "<p class='note'>The run has no checkpoint yet.</p>"
    preset = find_preset(run.settings.preset)
    epsilon, seed = preset.evaluation_epsilon, 1_000_000
    env = make_atari(game, 1, preset, seed, render_mode="rgb_array")
    player = Player(run.folder, env, epsilon, seed, stack_padding=preset.stack_padding)
    try:
        with tempfile.TemporaryDirectory() as temporary:
            path = Path(temporary) / "clip.mp4"
            shown, finished = record_game(player, path, 2, CLIP_STEPS, lambda _: None, action_names(game, preset))
            content = path.read_bytes()
    finally:
        player.close()
    if len(content) > MAX_CLIP_BYTES:
        return f"<p class='note'>The clip has {format_bytes(len(content))}, which is too much for this page.</p>"
    ending = f"the whole game, score {finished.score:g}" if finished else f"the first {shown:,} agent steps of a game"
    caption = (
        f"{run.name} after {player.agent_steps:,} agent steps: {ending}, at epsilon {epsilon:g}, at the console's "
        "speed. Right: the value of each action; the action that the agent takes next is marked."
    )
    return _video(content, caption)


def _video(content: bytes, caption: str) -> str:
    source = f"data:video/mp4;base64,{base64.b64encode(content).decode()}"
    return (
        f"<figure><video controls muted loop playsinline{_poster(content)} src='{source}'></video>"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _poster(content: bytes) -> str:
    """Return the attribute with the first frame of a video, which is shown until it plays; empty if it has none."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "clip.mp4"
        path.write_bytes(content)
        command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "quiet", "-i", str(path)]
        command += ["-frames:v", "1", "-f", "image2pipe", "-c:v", "png", "-"]
        first = subprocess.run(command, check=False, capture_output=True)  # of what is no video it writes nothing
    return f" poster='data:image/png;base64,{base64.b64encode(first.stdout).decode()}'" if first.stdout else ""


def _memory_sections(run: RunRecord, beside: Path) -> dict[str, str]:
    """Return the sections about the saved memory, of a distributed run about that of its first shard.

    ``beside`` is the folder of the report, for the link to the page of ``framestow view``.
    """
    if newest_checkpoint(run.folder.checkpoints) is None:
        return dict.fromkeys(("Sampled transitions", "Memory"), "<p class='note'>The run has no checkpoint yet.</p>")
    folder = memory_folders(run.folder.memory)[0]
    memory = ReplayMemory.open(folder, sampler=Uniform())  # the saved sampler may be a class that is not installed here
    tables = _view_link(run, beside) + _memory_tables(run, inspect_memory(folder))
    return {"Sampled transitions": _transitions(run, memory), "Memory": tables}


def _view_link(run: RunRecord, beside: Path) -> str:
    """Return a link to the page of ``framestow view``, or the command that writes it."""
    page = run.folder.memory.resolve().with_name(f"{run.folder.memory.name}.html")
    if page.is_file():
        address = escape(quote(Path(os.path.relpath(page, beside)).as_posix()))
        return f"<p><a href='{address}'>Look inside this memory</a>: its episodes, and what the learner gets.</p>"
    command = f"framestow view {shlex.quote(str(run.folder.path))}"
    return f"<p class='note'><code>{escape(command)}</code> shows its episodes, and what the learner gets.</p>"


def _transitions(run: RunRecord, memory: ReplayMemory) -> str:
    """Return a sheet of transitions from the saved memory."""
    indices = memory.sampleable_indices()
    if not len(indices):
        return "<p class='note'>The memory of the last checkpoint has no transitions.</p>"
    generator = np.random.default_rng(0)
    batch = memory.get(generator.choice(indices, min(NUM_DRAWN, len(indices)), replace=False))
    notable = np.flatnonzero((batch.reward != 0) | batch.terminated | batch.truncated)
    first = np.arange(min(NUM_TRANSITIONS, len(batch)))
    shown = [*first, *[number for number in notable if number not in first][:NUM_NOTABLE]]
    settings = run.settings
    is_game = settings.game in list_games()
    names = action_names(settings.game, find_preset(settings.preset)) if is_game else None
    reward = "reward" if settings.n_step == 1 else f"discounted reward of {settings.n_step} steps"
    figures = []
    for number in shown:
        action = int(batch.action[number])
        ending = " · terminated" if batch.terminated[number] else " · truncated" if batch.truncated[number] else ""
        caption = f"{names[action] if names else f'action {action}'} · {reward} {batch.reward[number]:g}{ending}"
        frames = _png(np.concatenate(list(batch.observation[number]), axis=1))
        following = _png(batch.next_observation[number][-1])
        count = batch.observation.shape[1]
        figures.append(
            f"<figure><div class='strip'><img src='{frames}' alt='observation' style='flex:{count}'>"
            f"<img src='{following}' alt='next frame' style='flex:1'></div>"
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )
    extra = len(shown) - len(first)
    note = (
        f"{len(first)} transitions of {run.name}, drawn uniformly from the {len(indices):,} of its last checkpoint"
        + (f", and {extra} more with a reward or an end" if extra else "")
        + ". Left the frames of the observation, oldest first; right the newest frame of the next observation, "
        + ("1 step later" if settings.n_step == 1 else f"{settings.n_step} steps later, or fewer at an end")
        + (". Rewards are clipped to -1 … 1." if settings.clip_rewards else ".")
    )
    return f"<p class='note'>{escape(note)}</p><div class='sheet'>{''.join(figures)}</div>"


def _memory_tables(run: RunRecord, inspection: Inspection) -> str:
    """Return tables of the saved memory: its episodes by label, and its bytes by kind of file."""
    which = "first shard of the memory" if is_sharded(run.folder.memory) else "memory"
    note = f"The {which} of {run.name} at its last checkpoint. Rewards are those that the agent learns from."
    episodes = [
        [one.label, f"{one.transitions:,}", f"{one.whole_episodes:,}", _spread(one.returns), _spread(one.lengths)]
        for one in inspection.labels
    ]
    transitions = max(1, inspection.transitions)
    sizes = [
        [part, format_bytes(size), f"{size / transitions:,.1f}"]
        for part, size in [*inspection.file_bytes.items(), ("total", inspection.nbytes)]
    ]
    head = ["", "transitions", "whole episodes", "returns, mean (range)", "steps, mean (range)"]
    return (
        f"<p class='note'>{escape(note)}</p>"
        + _table(head, episodes)
        + _table(["files", "size", "bytes per transition"], sizes)
    )


def _spread(spread: Spread | None) -> str:
    return f"{spread.mean:,.4g} ({spread.least:,.4g} to {spread.greatest:,.4g})" if spread else "-"


def _png(frame: npt.NDArray[np.uint8]) -> str:
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(frame)).save(buffer, "PNG", optimize=True)
    return _data(buffer)


def _data(png: io.BytesIO) -> str:
    return f"data:image/png;base64,{base64.b64encode(png.getvalue()).decode()}"


def _settings_table(runs: Sequence[RunRecord], is_atari: bool) -> str:
    rows = []
    for field in dataclasses.fields(Settings):
        values = list(dict.fromkeys(str(getattr(run.settings, field.name)) for run in runs))
        rows.append([field.name, ", ".join(values), str(field.metadata["help"])])
    tables = _table(["setting", "value", "meaning"], rows, "settings")
    if is_atari:
        preset = find_preset(runs[0].settings.preset)
        environment = [[name, str(value)] for name, value in dataclasses.asdict(preset).items()]
        tables += f"<h3>Environment: preset {escape(preset.name)}</h3>"
        tables += _table(["field", "value"], environment, "settings")
    return f"<details><summary>All settings</summary>{tables}</details>"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        f"<tr><th>{escape(row[0])}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in row[1:])}</tr>" for row in rows
    )
    return f"<div class='wide'><table class='{kind}'><tr>{head}</tr>{body}</table></div>"


def _evaluation(path: Path) -> dict[str, Any] | None:
    """Return the content of evaluation.json; ``None`` without one."""
    try:
        content: dict[str, Any] = json.loads(DISK.read(path, MOST_EVALUATION_BYTES))
        _evaluation_row(content)
    except FileNotFoundError:
        return None
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError) as error:
        raise DamagedDataError(f"{path}: it is no evaluation as framestow writes it ({error}); remove it") from error
    return content


def _number(cell: str) -> float:
    """Return the number of a cell, the largest of several, or NaN if the cell is empty."""
    return max((float(text) for text in cell.split()), default=float("nan"))


def _score(score: float | None) -> str:
    return "-" if score is None else f"{score:,.1f}" if abs(score) >= 100 else f"{score:.2f}"


def _amount(number: int) -> str:
    return f"{number / 1e6:g} M" if number >= 1_000_000 else f"{number:,}"


def _core_hours(seconds: float) -> str:
    return f"{seconds / 3_600:.2f}" if seconds >= 360 else f"{seconds / 3_600:.3f}"


def _combine_known(values: Sequence[float | None], combine: Any, written: Any) -> str:
    known = [value for value in values if value is not None]
    return str(written(combine(known))) if known else "-"


def _page(runs: Sequence[RunRecord], with_clip: bool, beside: Path) -> str:
    game, first = runs[0].settings.game, runs[0]
    is_atari = game in list_games()
    skips = {find_preset(run.settings.preset).frame_skip for run in runs} if is_atari else set()
    frame_skip = skips.pop() if len(skips) == 1 else None
    unit = "agent steps" + (f" (1 agent step = {frame_skip} emulator frames)" if frame_skip else "")
    presets = ", ".join(dict.fromkeys(run.settings.preset for run in runs))
    what = f"{len(runs)} runs" if len(runs) > 1 else f"run {first.name}"
    sections = {
        "Runs" if len(runs) > 1 else "Run": _run_table(runs),
        "Scores": _average_table(runs) + _score_table(runs, frame_skip),
        "Learner and process": _state_charts(runs, unit),
    }
    if with_clip and is_atari:
        sections["The agent plays"] = _clip(first)
    sections |= _memory_sections(first, beside)
    sections["Settings"] = _settings_table(runs, is_atari)
    title = f"{game}: {what}"
    body = "".join(f"<section><h2>{escape(name)}</h2>{content}</section>" for name, content in sections.items())
    return (
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{read_style()}</style></head><body>"
        f"<h1>{escape(title)}</h1><div class='note'>preset {escape(presets)} · trained and reported by framestow</div>"
        f"{_tiles(runs, frame_skip)}<div class='main'>{_learning_curve(runs, unit)}</div>{body}</body></html>\n"
    )
