"""``framestow train``: start a run, or resume one."""

from __future__ import annotations

import argparse
import dataclasses
import typing
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Protocol, get_args

import tyro
from rich.console import Console

from framestow.cli.arguments import check_output
from framestow.cli.command_line import EXAMPLE_RUN
from framestow.cli.printing import ProgressDisplay
from framestow.errors import InvalidSettingsError
from framestow.training.recipes import DEFAULT_RECIPE
from framestow.training.settings import Group, Settings

HELP = f"""Train DQN on an Atari game and save a checkpoint every --checkpoint-every agent steps.

  framestow train Breakout
  framestow train Pong --recipe rainbow-lite --steps 1.5M
  framestow train --resume {EXAMPLE_RUN} --steps 1M

Ctrl-C or SIGTERM finishes the step, saves the run and prints the command that resumes it. A second one stops without
saving. The run is also saved when the terminal or the SSH connection closes, or the program that reads the output
ends. Options that count (N) take 150_000, 150k, 1.5M or 1e6."""

DEFAULT_ACTORS = 2
DISTRIBUTED_HELP = (
    "Train on a Ray cluster: actors play, shards store, this process learns. --actors and --shards set their numbers, "
    f"{DEFAULT_ACTORS} and 1 by default. --resume of such a run needs no --distributed."
)
ADDRESS_HELP = "Address of a running Ray cluster, such as 10.0.0.1:6379; None starts one on this machine."
LISTENER_HELP = (
    "A listener of your own, MODULE:NAME, such as my_listeners:StopAt21: a class or function that takes the run. The "
    "module may be in the current folder. None takes framestow's listeners alone."
)
FOLLOW_LINKS_HELP = (
    "Follow checkpoints or a memory in the folder of --resume that are links to folders elsewhere. Only for runs you "
    "trust."
)


def train_command(arguments: list[str]) -> type[Any]:
    """Return the class that tyro fills from the arguments: the game, and a class for each group of options.

    The defaults are the values of ``--recipe``, or with ``--resume RUN`` the settings of that run. Omitted options
    then keep their values, and ``train`` can compare the given options with the run.
    """
    resumed, recipe = _read_resumed_and_recipe(arguments)
    defaults = resumed or Settings(recipe=recipe)  # type: ignore[arg-type]  # Settings checks it
    types = typing.get_type_hints(Settings)
    fields: dict[str, list[Any]] = {group: [] for group in get_args(Group)}
    for field in dataclasses.fields(Settings):
        # Settings refuses a wrong name itself, and suggests the nearest one.
        kind = str if typing.get_origin(types[field.name]) is typing.Literal else types[field.name]
        kind = _argument(kind, field.metadata["help"])
        if field.name == "game":
            hint = None if resumed else "(required for a new run)"
            game = Annotated[str, tyro.conf.arg(help=field.metadata["help"], metavar="GAME", help_behavior_hint=hint)]
            kind = tyro.conf.Positional[game]
        fields[field.metadata["group"]].append((field.name, kind, getattr(defaults, field.name)))
    fields["run"] += [
        ("run_dir", _argument(Path | None, "Folder of a new run; None takes runs/GAME-PRESET-sSEED-DATE-TIME."), None),
        ("resume", _argument(Path | None, "Folder of a run to resume. It then trains up to --steps."), None),
        ("follow_links", _argument(bool, FOLLOW_LINKS_HELP), False),
        ("listener", _argument(str | None, LISTENER_HELP), None),
        ("wandb", _argument(bool, "Send the curves to Weights & Biases too; needs the library wandb."), False),
    ]
    fields["distributed"][:0] = [
        ("distributed", _argument(bool, DISTRIBUTED_HELP), False),
        ("address", _argument(str | None, ADDRESS_HELP), None),
    ]
    options = []
    for group in [group for group in fields if group != "game"]:
        of_group: Any = dataclasses.make_dataclass(group, fields[group], frozen=True)
        kind = Annotated[of_group, tyro.conf.arg(name=group), tyro.conf.OmitArgPrefixes]
        options.append((f"{group}_options", kind, of_group()))
    command = [*fields["game"], *options]
    return dataclasses.make_dataclass("Train", command, frozen=True, namespace={"__doc__": HELP, "run": _run})


class _Arguments(Protocol):
    """What the class of ``train_command`` has beside the settings, of all its groups."""

    game: str
    run_dir: Path | None
    resume: Path | None
    distributed: bool
    address: str | None
    follow_links: bool
    listener: str | None
    wandb: bool


def _run(command: Any, console: Console) -> int:
    groups = [getattr(command, field.name) for field in dataclasses.fields(command) if field.name != "game"]
    arguments: _Arguments = SimpleNamespace(game=command.game)
    for group in groups:
        vars(arguments).update(dataclasses.asdict(group))
    values = {field.name: getattr(arguments, field.name) for field in dataclasses.fields(Settings)}
    if not values["game"]:
        raise InvalidSettingsError("game is missing: a new run needs a game; try: framestow train Breakout")
    from framestow.envs.atari.games import find_rom, title  # noqa: PLC0415 -- --help must not load the emulator
    from framestow.envs.atari.old_names import check_old_name  # noqa: PLC0415
    from framestow.envs.atari.presets import find_preset  # noqa: PLC0415

    check_old_name(values["game"], find_preset(values["preset"]))
    rom = find_rom(values["game"])  # refuses a wrong name before PyTorch is loaded
    of_run = type(command).game  # of --resume: it keeps its spelling
    values["game"] = of_run if of_run and find_rom(of_run) == rom else title(rom)
    if arguments.distributed and not values["actors"]:
        values["actors"] = DEFAULT_ACTORS
    if arguments.address is not None and not values["actors"]:
        raise InvalidSettingsError(
            f"address is {arguments.address}: only a distributed run uses a cluster; give --distributed too"
        )
    settings = Settings(**values)
    if arguments.run_dir and not arguments.resume:
        check_output("run-dir", arguments.run_dir, is_folder=True)
    with ProgressDisplay(console, "loading PyTorch"):
        from framestow.cli.training_session import TrainOptions, train  # noqa: PLC0415

    options = TrainOptions(
        arguments.resume,
        arguments.run_dir,
        settings,
        arguments.wandb,
        arguments.address,
        arguments.follow_links,
        arguments.listener,
    )
    return train(options, console)


def _read_resumed_and_recipe(arguments: list[str]) -> tuple[Settings | None, str]:
    """Return the settings of the run that ``--resume`` names, if it is given, and the name of the recipe."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--resume", type=Path, nargs="?")
    parser.add_argument("--recipe", nargs="?", default=DEFAULT_RECIPE)
    given = parser.parse_known_args(arguments)[0]
    recipe = given.recipe or DEFAULT_RECIPE  # a missing value is tyro's to refuse
    if given.resume is None:
        return None, recipe
    from framestow.training.run_folder import RunFolder  # noqa: PLC0415 -- imports PyTorch

    # Here only settings.json is read, which is never a link.
    return RunFolder.open(given.resume, follow_links=True).settings(), recipe


def _argument(kind: Any, help_line: str) -> Any:
    """Return the type annotation of an option with its help line."""
    return Annotated[kind, tyro.conf.arg(help=help_line)]
