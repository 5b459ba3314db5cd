"""The settings of a run: one frozen dataclass, which gives the options of ``framestow train`` and settings.json."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from framestow.agents.settings import DQNSettings, LinearSchedule
from framestow.errors import IncompatibleError, InvalidSettingsError
from framestow.replay.byte_amounts import parse_bytes
from framestow.replay.eviction import RETENTIONS, check_retention
from framestow.storage.storages import STORAGES

FILE_NAME = "settings.json"
FORMAT = "framestow run"
VERSION = 1

MAX_EPSILON_STEPS = 250_000  # agent steps: the million emulator frames of Mnih et al. 2015


def setting(default: Any, help_line: str, may_change: bool = False) -> Any:
    """Declare a field with its default, its help line, and whether a resumed run may change it."""
    metadata = {"help": help_line, "may_change": may_change}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a training run: environment, memory, agent and length.

    The agent's defaults are those of CleanRL's ``dqn_atari``, unless a field names another source.

    Raises:
        InvalidSettingsError: a value is out of its range; the message gives name, value and rule.
    """

    game: str = setting("", "Name of the Atari game: Breakout, MsPacman, SpaceInvaders, …")
    preset: str = setting(
        "machado2018",
        "Preset of the environment: machado2018 (sticky actions 0.25), nature, baselines, dopamine or envpool.",
    )
    seed: int = setting(0, "Seed of environments, memory and agent. On the CPU the same seed gives the same run.")
    steps: int = setting(20_000, "Agent steps of the whole run, all environments together.", may_change=True)
    num_envs: int = setting(8, "Number of environments that step together.")
    workers: int = setting(
        0,
        "Worker processes for the environments; 0 runs them in this process. A worker that dies or hangs is replaced.",
        may_change=True,
    )
    memory: int = setting(1_000_000, "Maximum number of transitions in the memory (Mnih et al. 2015).")
    storage: str = setting("packed", "Storage of the frames: packed, or raw (7 GB per million transitions).")
    memory_bytes: str | None = setting(
        None, "Size limit of the memory, such as '1 GiB'. It then stores as many transitions as fit, at most --memory."
    )
    retention: str = setting(
        "fifo", "Which transitions a full memory evicts: fifo (the oldest) or random (a random segment)."
    )
    memory_on_disk: bool = setting(False, "Store the frames in files of the run folder instead of in RAM.")
    stack: int = setting(4, "Frames per observation (Mnih et al. 2015).")
    batch_size: int = setting(32, "Transitions per update (Mnih et al. 2015).")
    train_every: int = setting(4, "Agent steps between two updates (Mnih et al. 2015).")
    warmup: int = setting(1_000, "Agent steps before the first update. The default suits short runs (CleanRL: 80,000).")
    target_every: int = setting(250, "Updates between two copies of the online network to the target network.")
    learning_rate: float = setting(1e-4, "Learning rate of Adam.", may_change=True)
    adam_epsilon: float = setting(1e-8, "Epsilon of Adam (Rainbow: 1.5e-4).")
    discount: float = setting(0.99, "Discount factor (Mnih et al. 2015).")
    double: bool = setting(True, "Double DQN: the online network chooses the next action (van Hasselt et al. 2016).")
    clip_rewards: bool = setting(True, "Clip rewards to -1 … 1 for learning (Mnih et al. 2015), but not the scores.")
    epsilon_start: float = setting(1.0, "Probability of a random action at the start.")
    epsilon_end: float = setting(0.01, "Probability of a random action after --epsilon-steps.")
    epsilon_steps: int | None = setting(
        None, "Agent steps from --epsilon-start to --epsilon-end; None takes half of --steps, at most 250,000."
    )
    checkpoint_every: int = setting(10_000, "Agent steps between two checkpoints.", may_change=True)
    device: str = setting(
        "auto", "Device of PyTorch: auto (CUDA, else MPS, else CPU), cpu, cuda or mps.", may_change=True
    )
    threads: int = setting(0, "CPU threads of PyTorch; 0 takes all cores.", may_change=True)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _checked(field.name, getattr(self, field.name)))
        if self.memory_bytes is not None:
            parse_bytes(self.memory_bytes, "memory_bytes")
        with memory_errors_name_options():
            check_retention(self.retention, self.memory, self.num_envs, self.stack)
        if self.workers > self.num_envs:
            raise InvalidSettingsError(
                f"workers is {self.workers}: each worker needs an environment, and there are {self.num_envs}; give "
                "fewer --workers or more --num-envs"
            )
        if self.epsilon_steps is None:
            object.__setattr__(self, "epsilon_steps", min(self.steps // 2, MAX_EPSILON_STEPS))

    def exploration(self) -> LinearSchedule:
        """Return the schedule of epsilon."""
        assert self.epsilon_steps is not None  # set in __post_init__
        return LinearSchedule(self.epsilon_start, self.epsilon_end, self.epsilon_steps)

    def agent(self) -> DQNSettings:
        """Return the settings of the agent."""
        return DQNSettings(
            learning_rate=self.learning_rate,
            adam_epsilon=self.adam_epsilon,
            target_every=self.target_every,
            double=self.double,
            clip_rewards=self.clip_rewards,
            exploration=self.exploration(),
        )

    def to_json(self) -> str:
        """Return the content of settings.json."""
        document = {"format": FORMAT, "version": VERSION, "settings": dataclasses.asdict(self)}
        return json.dumps(document, indent=2) + "\n"


def read_settings(path: Path) -> Settings:
    """Return the settings of a settings.json file. Every value is checked again.

    Raises:
        IncompatibleError: the file is no settings.json, or this version does not know one of its settings.
        InvalidSettingsError: a value is out of its range.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        found = (document["format"], document["version"])
        values = dict(document["settings"])
    except (ValueError, KeyError, TypeError) as error:
        raise IncompatibleError(
            f"{path} is not a settings.json file ({error}): a run folder needs one; give another run folder"
        ) from error
    if found != (FORMAT, VERSION):
        raise IncompatibleError(
            f"{path} is {found[0]!r} version {found[1]}: this framestow reads {FORMAT!r} version {VERSION}; "
            "use the framestow that wrote it"
        )
    known = {field.name for field in dataclasses.fields(Settings)}
    for name in sorted(values.keys() ^ known):
        problem = "is missing" if name in known else "is unknown"
        raise IncompatibleError(f"{path}: the setting {name} {problem}; use the framestow that wrote it")
    return Settings(**values)


def check_may_resume(run_has: Settings, asked: Settings) -> None:
    """Raise :class:`~framestow.errors.IncompatibleError`, naming every setting that a resumed run cannot change."""
    differences = [
        f"{field.name}: run has {getattr(run_has, field.name)!r}, given {getattr(asked, field.name)!r}"
        for field in dataclasses.fields(Settings)
        if not field.metadata["may_change"] and getattr(run_has, field.name) != getattr(asked, field.name)
    ]
    if differences:
        raise IncompatibleError(
            "the run was trained with other settings: " + "; ".join(differences) + "; omit these options to resume it, "
            "or start a new run without --resume"
        )


@contextmanager
def memory_errors_name_options() -> Iterator[None]:
    """Replace the argument of ``ReplayMemory`` in an ``InvalidSettingsError`` by the option of the command."""
    try:
        yield
    except InvalidSettingsError as error:
        argument, _, rest = str(error).partition(" ")
        name = _SETTING_OF_ARGUMENT.get(argument, argument)
        if name not in Settings.__dataclass_fields__:
            raise
        raise InvalidSettingsError(f"--{_flag(name)} {rest}") from error


_SETTING_OF_ARGUMENT = {"capacity": "memory", "max_bytes": "memory_bytes", "num_envs": "num_envs"}

_Rule = tuple[Callable[[Any], bool], str]


def _at_least(least: int) -> _Rule:
    return lambda value: value >= least, f"must be at least {least}"


def _one_of(*names: str) -> _Rule:
    return lambda value: value in names, f"must be one of {', '.join(names)}"


_PROBABILITY: _Rule = (lambda value: 0.0 <= value <= 1.0, "must be a probability from 0 to 1")
_POSITIVE: _Rule = (lambda value: 0.0 < value < float("inf"), "must be a finite number above 0")

_RULES: dict[str, _Rule] = {
    "seed": _at_least(0),
    "steps": _at_least(1),
    "num_envs": _at_least(1),
    "workers": _at_least(0),
    "memory": _at_least(1),
    "storage": _one_of(*STORAGES),
    "retention": _one_of(*RETENTIONS),
    "stack": _at_least(1),
    "batch_size": _at_least(1),
    "train_every": _at_least(1),
    "warmup": _at_least(1),
    "target_every": _at_least(1),
    "learning_rate": _POSITIVE,
    "adam_epsilon": _POSITIVE,
    "discount": _PROBABILITY,
    "epsilon_start": _PROBABILITY,
    "epsilon_end": _PROBABILITY,
    "epsilon_steps": (lambda value: value is None or value >= 0, "must be at least 0"),
    "checkpoint_every": _at_least(1),
    "device": _one_of("auto", "cpu", "cuda", "mps"),
    "threads": _at_least(0),
}

_TYPES: dict[str, tuple[type[Any], ...]] = {
    "int": (int,),
    "int | None": (int, type(None)),
    "float": (int, float),
    "str": (str,),
    "str | None": (str, type(None)),
    "bool": (bool,),
}


def _checked(name: str, value: Any) -> Any:
    declared = str(Settings.__dataclass_fields__[name].type)
    is_flag_for_number = isinstance(value, bool) and declared != "bool"
    if is_flag_for_number or not isinstance(value, _TYPES[declared]):
        raise InvalidSettingsError(f"{name} is {value!r}: it must be of type {declared}; give another --{_flag(name)}")
    if name in _RULES:
        holds, rule = _RULES[name]
        if not holds(value):
            raise InvalidSettingsError(f"{name} is {value!r}: it {rule}; give another --{_flag(name)}")
    return float(value) if declared == "float" else value


def _flag(name: str) -> str:
    return name.replace("_", "-")
