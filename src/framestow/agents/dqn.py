"""The DQN agent: it acts, learns from batches, and saves its state.

One agent for the whole family: Double and dueling DQN, n-step returns (the memory computes them), C51, quantile
regression, IQN, Munchausen and noisy networks are settings of it.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from framestow.agents.captured_update import CapturedUpdate
from framestow.agents.dormant_units import dormant_share, record_activations
from framestow.agents.networks import QNetwork, build_network, network_input
from framestow.agents.returns import NextStep, greedy_policy, midpoints, returns_of
from framestow.agents.settings import AgentSettings, EpsilonGreedy, Precision
from framestow.errors import IncompatibleError
from framestow.replay.reading.batch import Batch
from framestow.torch.tensor_batch import TensorBatch, pixels_to_device, to_tensors

# Vieillard et al. 2020: temperature, share of the log-policy in the reward, and its lower limit.
MUNCHAUSEN_TEMPERATURE, MUNCHAUSEN_SHARE, MUNCHAUSEN_LIMIT = 0.03, 0.9, -1.0

# What PyTorch's optimizers keep of each parameter.
OPTIMIZER_STATE = {"adam": ("step", "exp_avg", "exp_avg_sq"), "rmsprop": ("step", "square_avg", "grad_avg")}
MOST_UPDATES = 2**53


@dataclasses.dataclass(frozen=True)
class Update:
    """The numbers of one update, float32, on the agent's device, which may still be computing them."""

    numbers: Tensor  # (2 + batch,): all of the below, so that one copy brings them to the CPU

    @property
    def loss(self) -> Tensor:
        """The loss, a scalar."""
        return self.numbers[0]

    @property
    def mean_value(self) -> Tensor:
        """The mean value of the batch's actions, a scalar."""
        return self.numbers[1]

    @property
    def priority(self) -> Tensor:
        """One number per transition ``(batch,)``, for ``memory.update_priorities``."""
        return self.numbers[2:]

    def fetch(self) -> Callable[[], NDArray[np.float32]]:
        """Start to copy ``numbers`` to the CPU; return a function that waits for the copy and returns it."""
        if self.numbers.device.type != "cuda":
            on_cpu: NDArray[np.float32] = self.numbers.cpu().numpy()
            return lambda: on_cpu
        pinned = torch.empty(self.numbers.shape, dtype=self.numbers.dtype, pin_memory=True)
        pinned.copy_(self.numbers, non_blocking=True)
        copied: Any = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        copied.record()

        def wait() -> NDArray[np.float32]:
            copied.synchronize()
            arrived: NDArray[np.float32] = pinned.numpy()
            return arrived

        return wait


class DQN:
    """Deep Q-learning (Mnih et al. 2015) and its extensions, as ``settings`` choose them.

    Observations are uint8 arrays ``(n, stack, H, W)``. The same seed gives the same agent. The agent does not use
    PyTorch's global random generator. On a CUDA device an update is one CUDA graph, and the random numbers of noisy
    networks and IQN are drawn on the device.
    """

    def __init__(
        self, observation_shape: Sequence[int], num_actions: int, settings: AgentSettings, device: str, seed: int
    ) -> None:
        network_seed, exploration_seed = np.random.SeedSequence(seed).spawn(2)
        self.settings = settings
        self.observation_shape, self.num_actions = tuple(observation_shape), num_actions
        self.device = torch.device(device)
        self.num_updates = 0
        self.precision = usable_precision(settings.precision, self.device)  # of the network's arithmetic
        self._returns = returns_of(settings, self.device)
        on_cuda = self.device.type == "cuda"
        # Draws the noise of noisy layers and the fractions of IQN: on a CUDA device, otherwise on the CPU.
        self._generator = torch.Generator(self.device if on_cuda else "cpu")
        self._generator.manual_seed(int(network_seed.generate_state(2)[1]))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(network_seed.generate_state(1)[0]))
            network = build_network(observation_shape, num_actions, self._returns.num_outputs, settings)
        # The network that acts and learns; and its copy that computes targets, renewed every ``target_every`` updates.
        self._online = network.to(self.device)
        self._target = copy.deepcopy(self._online).requires_grad_(False)
        self._target.torso.eval()  # its spectral norms are those of the online network, copied with the weights
        self._parameters = dict(self._online.named_parameters())
        self._optimizer = _optimizer(self._online, settings, self.device)
        self._exploration = EpsilonGreedy(settings.exploration, num_actions, exploration_seed)
        # Makes an update and returns the numbers of ``Update``.
        self._update = self._capturable() if on_cuda else self._compute_update

    def epsilon(self, agent_steps: int) -> float:
        """Return the probability of a random action after ``agent_steps`` steps."""
        return self.settings.exploration.at(agent_steps)

    def act(self, observations: NDArray[np.uint8], agent_steps: int) -> NDArray[np.int64]:
        """Return one epsilon-greedy action per row, as int64 ``(n,)``. A noisy network draws new noise."""
        self._online.sample_noise(self._generator)
        # A GPU is as quick with all rows; and CUDA chooses its kernels again for each number of rows.
        every_row = self.device.type != "cpu"
        return self._exploration.act(observations, agent_steps, self._choose_greedily, every_row)

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next update."""
        rate, falls_after = self.settings.learning_rate, self.settings.learning_rate_falls_after
        return rate if falls_after is None else rate / max(1.0, self.num_updates / falls_after)

    def choose_greedily(self, observations: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the action with the highest value per row, as int64 ``(n,)``; a noisy network adds no noise."""
        actions: NDArray[np.int64] = self.values(observations).argmax(axis=1)
        return actions

    def values(self, observations: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the mean return of every action, float32 ``(n, num_actions)``; a noisy network adds no noise."""
        self._online.eval()
        try:
            values: NDArray[np.float32] = self._values_of(observations).cpu().numpy()
        finally:
            self._online.train()
        return values

    def dormant_units(self, observations: NDArray[np.uint8]) -> list[float]:
        """Return the share of dormant units of each layer with a ReLU, in the order of the layers."""
        with record_activations(self._online) as activations:
            self.values(observations)
        return [dormant_share(each) for each in activations]

    def _choose_greedily(self, observations: NDArray[np.uint8]) -> NDArray[np.int64]:
        actions: NDArray[np.int64] = self._values_of(observations).argmax(dim=1).cpu().numpy()
        return actions

    @torch.inference_mode()
    def _values_of(self, observations: NDArray[np.uint8]) -> Tensor:
        pixels = pixels_to_device(observations, self.device)
        return self._returns.values(
            self._outputs(self._online, pixels, fixed_fractions(self.settings, len(pixels), self.device))
        )

    def learn(self, batch: Batch | TensorBatch) -> Update:
        """Make one update from ``batch``; every ``target_every`` updates copy the online to the target network.

        A row's loss is multiplied by its importance weight; the update minimises their mean. A ``TensorBatch`` must be
        on the agent's device.
        """
        tensors = batch if isinstance(batch.reward, Tensor) else to_tensors(batch, self.device)
        if self.settings.learning_rate_falls_after is not None:
            self._set_learning_rate()
        if self.num_updates == self.settings.munchausen_after and self.device.type == "cuda":
            self._update = self._capturable()  # the graph until now has no log-policy
        update = Update(self._update(tensors))
        self.num_updates += 1
        if self.num_updates % self.settings.target_every == 0:
            self._target.load_state_dict(self._online.state_dict())
        return update

    def _set_learning_rate(self) -> None:
        for group in self._optimizer.param_groups:
            if isinstance(group["lr"], Tensor):  # a captured update reads it at each replay
                group["lr"].fill_(self.learning_rate)
            else:
                group["lr"] = self.learning_rate

    def _capturable(self) -> Callable[[TensorBatch], Tensor]:
        return CapturedUpdate(self._compute_update, self._generator)

    def _compute_update(self, tensors: TensorBatch) -> Tensor:
        """Update the online network and return the numbers of ``Update``. Does not wait for the device."""
        pixels = self._scale(tensors.observation)  # both networks use them with Munchausen
        target = self._targets(tensors, pixels)
        self._online.sample_noise(self._generator)
        fractions = self._draw_fractions(len(tensors))
        chosen = _of_actions(self._outputs(self._online, pixels, fractions), tensors.action)
        losses = self._returns.loss(chosen, target, fractions)
        loss = (tensors.weight * losses.each).mean()
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.settings.max_grad_norm is not None:
            clip_grad_norm_(self._online.parameters(), self.settings.max_grad_norm)
        self._optimizer.step()
        mean_value = self._returns.values(chosen.detach().unsqueeze(1)).mean()
        return torch.cat([loss.detach().view(1), mean_value.view(1), losses.priority])

    @torch.no_grad()
    def _targets(self, tensors: TensorBatch, pixels: Tensor) -> Tensor:
        """Return what the network should predict for each transition, ``(batch, n)``.

        ``pixels`` are the observations, scaled.
        """
        next_pixels = self._scale(tensors.next_observation)  # both networks use it
        self._target.sample_noise(self._generator)
        next_outputs = self._outputs(self._target, next_pixels, self._draw_fractions(len(tensors)))
        next_values = self._returns.values(next_outputs)
        if self.settings.munchausen_after is not None and self.num_updates >= self.settings.munchausen_after:
            return self._returns.target(self._munchausen_step(tensors, pixels, next_values), next_outputs)
        if self.settings.double:
            self._online.sample_noise(self._generator)
            online_outputs = self._outputs(self._online, next_pixels, self._draw_fractions(len(tensors)))
            next_values = self._returns.values(online_outputs)
        step = NextStep(tensors.reward, tensors.discount, greedy_policy(next_values))
        return self._returns.target(step, next_outputs)

    def _munchausen_step(self, tensors: TensorBatch, pixels: Tensor, next_values: Tensor) -> NextStep:
        """Add the scaled log-policy of the action to the reward, and follow the softmax policy afterwards.

        Vieillard et al. 2020, Munchausen reinforcement learning, equation 1.
        """
        outputs = self._outputs(self._target, pixels, self._draw_fractions(len(tensors)))
        values = self._returns.values(outputs)
        log_policy = torch.log_softmax(values / MUNCHAUSEN_TEMPERATURE, dim=1)
        of_action = MUNCHAUSEN_TEMPERATURE * log_policy.gather(1, tensors.action.unsqueeze(1)).squeeze(1)
        reward = tensors.reward + MUNCHAUSEN_SHARE * of_action.clamp(MUNCHAUSEN_LIMIT, 0.0)
        next_log_policy = torch.log_softmax(next_values / MUNCHAUSEN_TEMPERATURE, dim=1)
        entropy = -MUNCHAUSEN_TEMPERATURE * next_log_policy
        return NextStep(reward, tensors.discount, next_log_policy.exp(), entropy)

    def _scale(self, pixels: Tensor) -> Tensor:
        """Return uint8 pixels as the floats that the network computes with."""
        floats = network_input(pixels)
        return floats.bfloat16() if self.precision == "bfloat16" else floats

    def _outputs(self, network: QNetwork, observations: Tensor, fractions: Tensor | None) -> Tensor:
        """Return the network's outputs, float32, computed in ``precision``."""
        with self._autocast():
            outputs: Tensor = network(observations, fractions)
        return outputs.float()

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.precision == "bfloat16":
            # Without the cache, whose weights would not change when a captured update is replayed.
            return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)
        return contextlib.nullcontext()

    def _draw_fractions(self, num_rows: int) -> Tensor | None:
        """Return new uniform quantile fractions for IQN; ``None`` for others."""
        if self.settings.distribution != "iqn":
            return None
        drawn_on = self._generator.device
        drawn = torch.rand((num_rows, self.settings.atoms), generator=self._generator, device=drawn_on)
        return drawn.to(self.device)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the agent: tensors, numbers and strings in nested dicts.

        The tensors are not copied: save them before the next update.
        """
        of_parameter = self._optimizer.state_dict()["state"]  # by number, in the order of the parameters
        return {
            "online": self._online.state_dict(),
            "target": self._target.state_dict(),
            "optimizer": {name: of_parameter[i] for i, name in enumerate(self._parameters) if i in of_parameter},
            "num_updates": self.num_updates,
            "exploration": self._exploration.state_dict(),
            "generator": self._generator.get_state(),
        }

    @property
    def most_state_bytes(self) -> int:
        """The bytes that ``state_dict`` has at most: two networks, two moments, generators and names."""
        return 4 * sum(int(tensor.nbytes) for tensor in self._online.state_dict().values()) + 2**20

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that ``state_dict`` returned on any device.

        The random generator of another kind of device cannot be restored: this agent's gets a seed from it.

        Raises:
            IncompatibleError: the state has a network of another shape; the agent is unchanged.
            ValueError, TypeError, LookupError, RuntimeError: it is no agent's state.
        """
        for network in ("online", "target"):
            _check_same_shapes(self._online.state_dict(), state[network])
        num_updates = state["num_updates"]
        if type(num_updates) is not int or not 0 <= num_updates < MOST_UPDATES:
            raise ValueError(f"num_updates is {str(num_updates)[:60]}")
        self._load_optimizer(state["optimizer"])
        self._online.load_state_dict(state["online"])
        self._target.load_state_dict(state["target"])
        self.num_updates = num_updates
        for group in self._optimizer.param_groups:  # a resumed run may change it
            group["lr"] = _optimizer_rate(self.learning_rate, self.device)
        self._exploration.load_state_dict(state["exploration"])
        generator = state["generator"].cpu()
        if len(generator) == len(self._generator.get_state()):
            self._generator.set_state(generator)
        else:
            self._generator.manual_seed(int.from_bytes(generator[:8].numpy().tobytes(), "little") >> 1)
        if self.device.type == "cuda":
            self._update = self._capturable()  # the optimizer has new tensors and perhaps another learning rate

    def _load_optimizer(self, saved: dict[str, dict[str, Tensor]]) -> None:
        """Restore what the optimizer has of each parameter; everything else of it is in the settings."""
        if saved and saved.keys() != self._parameters.keys():
            raise ValueError(f"the optimizer lacks or adds {sorted(saved.keys() ^ self._parameters.keys())[:3]}")
        names = OPTIMIZER_STATE[self.settings.optimizer]
        state = {}
        for number, (name, parameter) in enumerate(self._parameters.items() if saved else ()):
            found = {key: (tensor.dtype, tensor.shape) for key, tensor in saved[name].items()}
            if found != {key: (torch.float32, torch.Size() if key == "step" else parameter.shape) for key in names}:
                raise ValueError(f"the optimizer's state of {name} is {found}")
            # Laid out like the parameter, since a fused kernel reads both as rows of numbers.
            state[number] = {
                key: tensor if key == "step" else torch.empty_like(parameter).copy_(tensor)
                for key, tensor in saved[name].items()
            }
        self._optimizer.load_state_dict({"state": state, "param_groups": self._optimizer.state_dict()["param_groups"]})


def usable_precision(asked: Precision, device: torch.device) -> Precision:
    """Return the precision that a network computes in: float32 where the device does not multiply in bfloat16.

    CUDA devices do, and processors with AVX-512 BF16, if PyTorch is new enough to ask them.
    """
    if device.type == "cpu":
        capabilities: Any = getattr(torch.cpu, "get_capabilities", dict)()
        has_bfloat16 = capabilities.get("avx512_bf16", False)
    else:
        has_bfloat16 = device.type == "cuda"
    return asked if has_bfloat16 else "float32"


def _optimizer(network: QNetwork, settings: AgentSettings, device: torch.device) -> torch.optim.Optimizer:
    on_cuda = device.type == "cuda"
    rate = _optimizer_rate(settings.learning_rate, device)
    common: dict[str, Any] = {"lr": rate, "eps": settings.optimizer_epsilon, "capturable": on_cuda}
    if settings.optimizer == "rmsprop":  # Mnih et al. 2015: centred, with a decay of 0.95
        return torch.optim.RMSprop(network.parameters(), alpha=0.95, centered=True, **common)
    # The fused kernel updates all parameters in one pass: 2.5 of an update's 19 ms on two CPU threads.
    return torch.optim.Adam(network.parameters(), fused=on_cuda or device.type == "cpu", **common)


def _optimizer_rate(rate: float, device: torch.device) -> float | Tensor:
    """Return the rate as an optimizer takes it: on CUDA a tensor, because a captured update keeps a number."""
    return torch.tensor(rate, device=device) if device.type == "cuda" else rate


def _of_actions(outputs: Tensor, actions: Tensor) -> Tensor:
    """Return the outputs ``(batch, n)`` of the int64 ``actions`` ``(batch,)``."""
    return outputs[torch.arange(len(outputs), device=outputs.device), actions]


def _check_same_shapes(agent: dict[str, Tensor], saved: dict[str, Tensor]) -> None:
    agent_shapes = {name: tuple(tensor.shape) for name, tensor in agent.items()}
    saved_shapes = {name: tuple(tensor.shape) for name, tensor in saved.items()}
    for name in sorted(agent_shapes.keys() | saved_shapes.keys()):
        if agent_shapes.get(name) != saved_shapes.get(name):
            raise IncompatibleError(
                f"saved network has {name} of shape {saved_shapes.get(name)}: this agent has {agent_shapes.get(name)}; "
                "build the agent with the game, stack, frame size and recipe of the saved one"
            )
        if saved[name].dtype != agent[name].dtype:
            raise ValueError(f"{name} is {saved[name].dtype}")


def fixed_fractions(settings: AgentSettings, num_rows: int, device: torch.device) -> Tensor | None:
    """Return evenly spaced quantile fractions for IQN, with which it acts; ``None`` for others."""
    if settings.distribution != "iqn":
        return None
    return midpoints(settings.atoms, device).expand(num_rows, -1)
