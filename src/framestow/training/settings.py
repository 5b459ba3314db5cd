"""The settings of a run: one frozen dataclass, which gives the options of ``framestow train`` and settings.json."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

from framestow.agents.settings import AgentSettings, Distribution, LinearSchedule, Network, Optimizer, Precision
from framestow.envs.atari.presets import PresetName
from framestow.errors import IncompatibleError, InvalidSettingsError
from framestow.interface import plural
from framestow.process import num_cores
from framestow.replay.eviction.byte_amounts import parse_bytes
from framestow.replay.eviction.retention import Retention, check_retention
from framestow.replay.samplers.prioritized import Prioritized
from framestow.replay.samplers.sampler import Sampler
from framestow.replay.samplers.uniform import Uniform
from framestow.replay.settings.memory_settings import MAX_N_STEP
from framestow.replay.settings.observation_layout import MAX_STACK
from framestow.storage.files.file_system import DISK
from framestow.storage.frame_storage import Storage
from framestow.training.recipes import DEFAULT_RECIPE, RECIPES, RecipeName, find_recipe

Device: TypeAlias = Literal["auto", "cpu", "cuda", "mps"]

FILE_NAME = "settings.json"
FORMAT = "framestow run"  # of the file; another one is refused
VERSION = 1  # of the format
MOST_FILE_BYTES = 2**20

DEFAULT_STEPS = 150_000  # agent steps


Group: TypeAlias = Literal["game", "run", "environment", "memory", "network", "learning", "distributed"]
"""What a setting is about. ``framestow train --help`` shows the options of each group together."""


def setting(group: Group, default: Any, help_line: str, may_change: bool = False) -> Any:
    """Declare a field with its group, default and help line, and whether a resumed run may change it."""
    metadata = {"group": group, "help": help_line, "may_change": may_change}
    return dataclasses.field(default=default, metadata=metadata)


class _FromRecipe:
    """The default of a setting that the recipe decides."""

    def __repr__(self) -> str:
        return "<from the recipe>"


FROM_RECIPE: Any = _FromRecipe()  # default of a setting whose value the recipe gives


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a training run: environment, memory, agent and length.

    The recipe decides every setting that is not given and has no default of its own.

    >>> from framestow.training import Settings
    >>> (
    ...     Settings("Pong", recipe="rainbow-lite").n_step,
    ...     Settings("Pong", recipe="rainbow-lite", n_step=1).n_step,
    ... )
    (3, 1)

    Raises:
        InvalidSettingsError: a value is out of its range, or two contradict one another; the message gives name,
            value and rule.
    """

    game: str = setting("game", "", "Name of the Atari game: Breakout, MsPacman, SpaceInvaders, …")
    recipe: RecipeName = setting(
        "run",
        DEFAULT_RECIPE,
        f"Named values for the other options: {', '.join(RECIPES)} (docs/training.md). Your options override it.",
    )
    preset: PresetName = setting(
        "environment",
        FROM_RECIPE,
        "Preset of the environment: machado2018 (sticky actions 0.25), nature, baselines, dopamine or envpool.",
    )
    seed: int = setting(
        "run", 0, "Seed of environments, memory and agent. On the CPU the same seed and --threads give the same run."
    )
    steps: int = setting(
        "run", DEFAULT_STEPS, "Agent steps of the whole run, all environments together.", may_change=True
    )
    num_envs: int = setting("environment", FROM_RECIPE, "Number of environments that step together.")
    workers: int = setting(
        "environment",
        FROM_RECIPE,
        "Worker processes for the environments; 0 runs them in this process. A worker that dies or hangs is replaced.",
        may_change=True,
    )
    memory: int = setting("memory", 1_000_000, "Maximum number of transitions in the memory (Mnih et al. 2015).")
    storage: Storage = setting(
        "memory", "packed", "Storage of the frames: packed, or raw (7 GB per million transitions)."
    )
    memory_bytes: str | None = setting(
        "memory",
        None,
        "Size limit of the memory, such as '1 GiB'. It then stores as many transitions as fit, at most --memory.",
    )
    retention: Retention = setting(
        "memory", "fifo", "Which transitions a full memory evicts: fifo (the oldest) or random (a random segment)."
    )
    memory_on_disk: bool = setting("memory", False, "Store the frames in files of the run folder instead of in RAM.")
    stack: int = setting("environment", 4, "Frames per observation (Mnih et al. 2015).")
    batch_size: int = setting("learning", FROM_RECIPE, "Transitions per update.")
    train_every: int = setting("learning", FROM_RECIPE, "Agent steps between two updates.")
    warmup: int = setting("learning", FROM_RECIPE, "Agent steps before the first update.")
    actors: int = setting(
        "distributed",
        0,
        "Actors of --distributed, each with --num-envs environments in a process of its own; 0 trains in one process.",
    )
    shards: int = setting(
        "distributed", 1, "Parts of the memory with --actors, each in a process of its own (docs/distributed.md)."
    )
    network: Network = setting(
        "network", FROM_RECIPE, f"Network: {', '.join(get_args(Network))}. Frames under 36 pixels get a tiny one."
    )
    distribution: Distribution = setting(
        "network",
        FROM_RECIPE,
        "What the network predicts of a return: its mean (none, hl-gauss) or distribution (c51, qr, iqn).",
    )
    atoms: int = setting("network", FROM_RECIPE, "Bins of hl-gauss, returns of c51, quantiles of qr and iqn.")
    support: float = setting(
        "network", FROM_RECIPE, "The returns of hl-gauss and c51 are spread over minus to plus this number."
    )
    double: bool = setting(
        "learning", FROM_RECIPE, "Double DQN: the online network chooses the next action (van Hasselt et al. 2016)."
    )
    dueling: bool = setting("network", FROM_RECIPE, "Separate streams for value and advantage (Wang et al. 2016).")
    noisy: bool = setting("network", FROM_RECIPE, "Noisy linear layers for exploration (Fortunato et al. 2018).")
    munchausen_after: int | None = setting(
        "learning",
        FROM_RECIPE,
        "Agent steps after --warmup until the log-policy adds to the reward (Vieillard et al. 2020); None: never.",
        may_change=True,
    )
    spectral_norm: bool = setting(
        "network", FROM_RECIPE, "Normalise the residual blocks of impala (Gogianu et al. 2021)."
    )
    n_step: int = setting("learning", FROM_RECIPE, "Rewards in a return before it bootstraps (Sutton 1988).")
    priority_exponent: float = setting(
        "learning", FROM_RECIPE, "Exponent of the priorities (alpha of Schaul et al. 2016); 0 samples uniformly."
    )
    priority_beta: float = setting(
        "learning", FROM_RECIPE, "Exponent of the importance weights (beta of Schaul et al. 2016)."
    )
    priority_beta_steps: int | None = setting(
        "learning", FROM_RECIPE, "Agent steps after --warmup until --priority-beta reaches 1; None keeps it constant."
    )
    optimizer: Optimizer = setting("learning", FROM_RECIPE, f"Optimizer: {' or '.join(get_args(Optimizer))}.")
    learning_rate: float = setting("learning", FROM_RECIPE, "Learning rate of the optimizer.", may_change=True)
    learning_rate_falls_after: int | None = setting(
        "learning",
        FROM_RECIPE,
        "Agent steps after --warmup at --learning-rate; after twice as many half of it, then a third, …; None: always.",
        may_change=True,
    )
    optimizer_epsilon: float = setting("learning", FROM_RECIPE, "Epsilon of the optimizer.")
    max_grad_norm: float | None = setting(
        "learning", FROM_RECIPE, "Largest norm of an update's gradient; None: no limit."
    )
    precision: Precision = setting(
        "network", FROM_RECIPE, "Arithmetic of the network: float32, or bfloat16 where the device multiplies in it."
    )
    target_every: int = setting(
        "learning", FROM_RECIPE, "Updates between two copies of the online network to the target network."
    )
    discount: float = setting("learning", FROM_RECIPE, "Discount factor of the next step's value.")
    clip_rewards: bool = setting(
        "environment", True, "Clip rewards to -1 … 1 for learning (Mnih et al. 2015), but not the scores."
    )
    epsilon_start: float = setting("learning", FROM_RECIPE, "Probability of a random action at the start.")
    epsilon_end: float = setting("learning", FROM_RECIPE, "Probability of a random action after --epsilon-steps.")
    epsilon_steps: int = setting("learning", FROM_RECIPE, "Agent steps from --epsilon-start to --epsilon-end.")
    checkpoint_every: int = setting("run", 10_000, "Agent steps between two checkpoints.", may_change=True)
    device: Device = setting(
        "run", "auto", "Device of PyTorch: auto (CUDA, else MPS, else CPU), cpu, cuda or mps.", may_change=True
    )
    threads: int = setting("run", FROM_RECIPE, "CPU threads of PyTorch; 0 takes all cores.", may_change=True)

    def __post_init__(self) -> None:
        is_short = isinstance(self.recipe, str) and len(self.recipe) < MOST_SHOWN
        recipe = self.recipe if is_short else _check_field("recipe", self.recipe)
        from_recipe = find_recipe(recipe).values_for(num_cores())
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            value = from_recipe[field.name] if value is FROM_RECIPE else value
            object.__setattr__(self, field.name, _check_field(field.name, value))
        if self.memory_bytes is not None:
            parse_bytes(self.memory_bytes, "memory_bytes")
        with memory_errors_name_options():
            check_retention(self.retention, self.memory, self.num_envs, self.stack)
        if self.workers > self.num_envs:
            raise InvalidSettingsError(
                f"workers is {self.workers}: each worker needs an environment, and there are {self.num_envs}; give "
                "fewer --workers or more --num-envs"
            )
        if self.shards > max(1, self.actors * self.num_envs):
            raise InvalidSettingsError(
                f"shards is {self.shards}: each needs an environment of --actors, which have "
                f"{self.actors * self.num_envs}; give fewer --shards, or more --actors"
            )
        least = self.num_envs * self.n_step - self.train_every  # the first update is train_every steps later
        if self.warmup < least:
            raise InvalidSettingsError(
                f"warmup is {self.warmup}: before the first update each of {plural(self.num_envs, 'environment')} "
                f"needs {plural(self.n_step, 'step')}; give --warmup {least} or more"
            )
        self.agent()  # raises for settings that contradict one another

    @property
    def file_stem(self) -> str:
        """The game as a part of file names: without ``ALE/``."""
        return self.game.removeprefix("ALE/")

    def exploration(self) -> LinearSchedule:
        """Return the schedule of epsilon."""
        return LinearSchedule(self.epsilon_start, self.epsilon_end, self.epsilon_steps)

    def agent(self) -> AgentSettings:
        """Return the settings of the agent."""
        names = [field.name for field in dataclasses.fields(AgentSettings) if field.name != "exploration"]
        values = {name: getattr(self, name) for name in names}
        if self.learning_rate_falls_after is not None:
            updates = max(1, self.learning_rate_falls_after // self.train_every)
            values["learning_rate_falls_after"] = updates
        if self.munchausen_after is not None:
            values["munchausen_after"] = self.munchausen_after // self.train_every
        return AgentSettings(exploration=self.exploration(), **values)

    @property
    def reward_limit(self) -> float | None:
        """Largest size of a reward that the memory stores; ``None``: no limit."""
        return 1.0 if self.clip_rewards else None

    @property
    def gives_priorities(self) -> bool:
        """Whether the memory gets the TD errors of its transitions."""
        return self.priority_exponent > 0

    def sampler(self) -> Sampler:
        """Return a new sampler for the memory."""
        if not self.gives_priorities:
            return Uniform()
        if self.priority_beta_steps is None:
            return Prioritized(self.priority_exponent, self.priority_beta)
        num_updates = max(1, self.priority_beta_steps // self.train_every)
        return Prioritized(self.priority_exponent, self.priority_beta, final_beta=1.0, annealed_over=num_updates)

    def to_json(self, changes: Sequence[Change] = ()) -> str:
        """Return the content of settings.json."""
        document: dict[str, Any] = {"format": FORMAT, "version": VERSION, "settings": dataclasses.asdict(self)}
        document["changes"] = [dataclasses.asdict(change) for change in changes]
        return json.dumps(document, indent=2) + "\n"


MAY_CHANGE_LEARNING = ("learning_rate", "learning_rate_falls_after", "munchausen_after")
"""The settings that a resumed run may change and that decide what it learns."""


def learning_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings that decide what a run learns, without the game and the seed."""
    names = [field.name for field in dataclasses.fields(Settings) if not field.metadata["may_change"]]
    return {name: getattr(settings, name) for name in [*names, *MAY_CHANGE_LEARNING] if name not in ("game", "seed")}


@dataclasses.dataclass(frozen=True)
class Change:
    """A setting that was changed when a run was resumed."""

    agent_steps: int  # of the run when it was resumed
    setting: str
    before: Any
    after: Any


def read_settings(path: Path) -> tuple[Settings, list[Change]]:
    """Return the settings of a settings.json file and how they changed. Every setting is checked again.

    Raises:
        IncompatibleError: the file is no settings.json, or of a version with other settings.
        InvalidSettingsError: a value is out of its range; the message names the file and the setting.
    """
    try:
        document = json.loads(DISK.read(path, MOST_FILE_BYTES))
        found = (document["format"], document["version"])
        values, changes = dict(document["settings"]), list(document.get("changes", ()))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise IncompatibleError(
            f"{path} is not a settings.json file ({error}): a run folder needs one; give another run folder"
        ) from error
    if found != (FORMAT, VERSION):
        raise IncompatibleError(
            f"{path} is {shown(found[0])} version {shown(found[1])}: this framestow reads {FORMAT!r} version "
            f"{VERSION}; use the version of framestow that wrote it"
        )
    known = {field.name for field in dataclasses.fields(Settings)}
    for name in sorted(values.keys() ^ known):
        problem = "is missing" if name in known else "is unknown"
        raise IncompatibleError(
            f"{path}: the setting {shown(name)} {problem}; use the version of framestow that wrote it"
        )
    try:
        return Settings(**values), [_read_change(change) for change in changes]
    except InvalidSettingsError as error:
        raise InvalidSettingsError(f"{path}: {error}") from error


def _read_change(change: Any) -> Change:
    names = {field.name for field in dataclasses.fields(Change)}
    if not isinstance(change, dict) or change.keys() != names:
        raise InvalidSettingsError(f"changes has {shown(change)}: a change has {', '.join(sorted(names))}; remove it")
    steps, name = change["agent_steps"], change["setting"]
    if type(steps) is not int or not 0 <= steps <= MOST_STEPS:
        raise InvalidSettingsError(
            f"changes: agent_steps is {shown(steps)}: it must be from 0 to {MOST_STEPS:,}; remove it"
        )
    if not isinstance(name, str) or name not in Settings.__dataclass_fields__:
        raise InvalidSettingsError(f"changes: setting is {shown(name)}: it must be the name of a setting; remove it")
    return Change(steps, name, *(_check_field(name, change[key]) for key in ("before", "after")))


def changes_on_resume(run_has: Settings, asked: Settings, agent_steps: int) -> list[Change]:
    """Return what changes if a run is resumed at ``agent_steps`` with the settings ``asked``.

    Raises:
        IncompatibleError: a resumed run cannot change one of these settings; the message names all of them.
    """
    changes = [
        Change(agent_steps, field.name, getattr(run_has, field.name), getattr(asked, field.name))
        for field in dataclasses.fields(Settings)
        if getattr(run_has, field.name) != getattr(asked, field.name)
    ]
    refused = [change for change in changes if not Settings.__dataclass_fields__[change.setting].metadata["may_change"]]
    if refused:
        named = "; ".join(f"{each.setting}: run has {each.before!r}, given {each.after!r}" for each in refused)
        raise IncompatibleError(
            f"the run was trained with other settings: {named}; omit these options to resume it, or start a new run "
            "without --resume"
        )
    return changes


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
        rest = rest.replace("max_bytes", "--memory-bytes")
        raise InvalidSettingsError(f"--{_flag(name)} {rest}") from error


# Setting that an error of ``ReplayMemory`` about its argument is about, where the names differ.
_SETTING_OF_ARGUMENT = {"capacity": "memory", "max_bytes": "memory_bytes", "num_envs": "num_envs"}

_Rule = tuple[Callable[[Any], Any], str]
_GAME = re.compile(r"(ALE/)?[\w -]{0,64}")  # becomes a part of file names


def _from(least: float, most: float) -> _Rule:
    return lambda value: least <= value <= most, f"must be from {least:,} to {most:,}"


def _above_0(most: float) -> _Rule:
    return lambda value: 0.0 < value <= most, f"must be above 0 and at most {most:,}"


MOST_STEPS, MOST_SHOWN = 10**12, 80  # agent steps; characters of a value in a message
_PROBABILITY: _Rule = (lambda value: 0.0 <= value <= 1.0, "must be a probability from 0 to 1")

# By setting: a check of its value, and what the error says. Every number has an upper bound, since anyone may
# have made settings.json. ``None`` is allowed where the type of the setting has it.
_RULES: dict[str, _Rule] = {
    "game": (_GAME.fullmatch, "must be at most 64 letters, digits, spaces, - and _, perhaps after ALE/"),
    "seed": _from(0, 2**63 - 1),
    "steps": _from(1, MOST_STEPS),
    "num_envs": _from(1, 1_024),
    "actors": _from(0, 1_024),
    "shards": _from(1, 1_024),
    "workers": _from(0, 1_024),
    "memory": _from(1, 10**10),
    "memory_bytes": (lambda value: len(value) <= 40, "must be a number of bytes such as '1 GiB'"),
    "stack": _from(1, MAX_STACK),
    "batch_size": _from(1, 16_384),
    "train_every": _from(1, MOST_STEPS),
    "warmup": _from(1, MOST_STEPS),
    "target_every": _from(1, MOST_STEPS),
    "learning_rate": _above_0(10**15),
    "learning_rate_falls_after": _from(1, MOST_STEPS),
    "munchausen_after": _from(0, MOST_STEPS),
    "optimizer_epsilon": _above_0(1_000),
    "max_grad_norm": _above_0(10**9),
    "atoms": _from(2, 1_024),
    "support": _above_0(10**9),
    "n_step": _from(1, MAX_N_STEP),
    "priority_exponent": _from(0, 10),
    "priority_beta": _PROBABILITY,
    "priority_beta_steps": _from(1, MOST_STEPS),
    "discount": _PROBABILITY,
    "epsilon_start": _PROBABILITY,
    "epsilon_end": _PROBABILITY,
    "epsilon_steps": _from(0, MOST_STEPS),
    "checkpoint_every": _from(1, MOST_STEPS),
    "threads": _from(0, 1_024),
}

_TYPES: dict[str, tuple[type[Any], ...]] = {
    "int": (int,),
    "int | None": (int, type(None)),
    "float": (int, float),
    "float | None": (int, float, type(None)),
    "str": (str,),
    "str | None": (str, type(None)),
    "bool": (bool,),
}

_CHOICES = {name: get_args(kind) for name, kind in get_type_hints(Settings).items() if get_origin(kind) is Literal}


def _check_field(name: str, value: Any) -> Any:
    declared = "str" if name in _CHOICES else str(Settings.__dataclass_fields__[name].type)
    is_flag_for_number = isinstance(value, bool) and declared != "bool"
    way_out = f"give another --{_flag(name)}"
    if is_flag_for_number or not isinstance(value, _TYPES[declared]):
        raise InvalidSettingsError(f"{name} is {shown(value)}: it must be of type {declared}; {way_out}")
    choices = _CHOICES.get(name, (value,))
    if value not in choices:
        nearest = get_close_matches(value[:MOST_SHOWN], choices, n=1)
        raise InvalidSettingsError(
            f"{name} is {shown(value)}: it must be one of {', '.join(choices)}; {way_out}"
            + "".join(f": did you mean {name!r}?" for name in nearest)
        )
    if name in _RULES and value is not None:
        holds, rule = _RULES[name]
        if not holds(value):
            raise InvalidSettingsError(f"{name} is {shown(value)}: it {rule}; {way_out}")
    return float(value) if declared.startswith("float") and value is not None else value


def shown(value: Any) -> str:
    """Return ``value`` as an error message shows it: however long or deep it is, a little of it."""
    if isinstance(value, (dict, list)):
        return f"a {type(value).__name__}"
    text = repr(value) if not isinstance(value, int) or value.bit_length() < 500 else f"{value:#x}"
    return text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "…"


def _flag(name: str) -> str:
    return name.replace("_", "-")
