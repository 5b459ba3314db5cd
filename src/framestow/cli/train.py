"""``framestow train``: start a run, or resume one."""

from __future__ import annotations

import argparse
import dataclasses
import typing
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from framestow.training.settings import Settings

HELP = """Train DQN on an Atari game and save a checkpoint every --checkpoint-every agent steps.

Ctrl-C or SIGTERM finishes the step, saves the run and prints the command that resumes it. A second one stops without
saving."""


def train_command(arguments: list[str]) -> type[Any]:
    """Return the class that tyro fills from the arguments: one field per setting, ``run_dir`` and ``resume``.

    With ``--resume RUN`` the defaults are the settings of that run. Omitted options then keep their values, and
    ``train`` can compare the given options with the run.
    """
    resumed = _resumed_settings(arguments)
    types = typing.get_type_hints(Settings)
    fields: list[Any] = []
    for field in dataclasses.fields(Settings):
        kind = _argument(types[field.name], field.metadata["help"])
        if field.name == "game":
            hint = None if resumed else "(required for a new run)"
            game = Annotated[str, tyro.conf.arg(help=field.metadata["help"], metavar="GAME", help_behavior_hint=hint)]
            kind = tyro.conf.Positional[game]
        fields.append((field.name, kind, getattr(resumed, field.name) if resumed else field.default))
    fields += [
        ("run_dir", _argument(Path | None, "Folder of a new run; None takes runs/GAME-PRESET-sSEED-DATE-TIME."), None),
        ("resume", _argument(Path | None, "Folder of a run to resume. It then trains up to --steps."), None),
        ("wandb", _argument(bool, "Send the curves to Weights & Biases too; needs the library wandb."), False),
    ]
    return dataclasses.make_dataclass("Train", fields, frozen=True, namespace={"__doc__": HELP, "run": _run})


def _run(arguments: Any, console: Console) -> int:
    from framestow.cli.training_session import TrainOptions, train  # noqa: PLC0415 -- imports PyTorch

    values = {field.name: getattr(arguments, field.name) for field in dataclasses.fields(Settings)}
    return train(TrainOptions(arguments.resume, arguments.run_dir, Settings(**values), arguments.wandb), console)


def _resumed_settings(arguments: list[str]) -> Settings | None:
    if arguments[:1] != ["train"]:
        return None
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--resume", type=Path, nargs="?")
    path: Path | None = parser.parse_known_args(arguments)[0].resume
    if path is None:
        return None
    from framestow.training.run_folder import RunFolder  # noqa: PLC0415 -- imports PyTorch

    return RunFolder.open(path).settings()


def _argument(kind: Any, help_line: str) -> Any:
    """Return the type annotation of an option with its help line."""
    return Annotated[kind, tyro.conf.arg(help=help_line)]
