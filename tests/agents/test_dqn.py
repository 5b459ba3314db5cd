"""The DQN agent: what an update changes, and that its state is all of it."""

import copy
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from framestow.agents.dqn import DQN
from framestow.agents.networks import build_network
from framestow.agents.settings import DQNSettings, LinearSchedule
from framestow.errors import IncompatibleError
from framestow.replay.batch import Batch

SHAPE = (2, 12, 12)
SETTINGS = DQNSettings(
    learning_rate=1e-3,
    adam_epsilon=1e-8,
    target_every=3,
    double=True,
    clip_rewards=True,
    exploration=LinearSchedule(1.0, 0.1, 100),
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """On networks this small a second thread only waits for the first."""
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(usual)


def _agent(seed: int = 0, shape: tuple[int, int, int] = SHAPE, **changes: Any) -> DQN:
    settings = DQNSettings(**{**vars(SETTINGS), **changes})
    return DQN(shape, num_actions=3, settings=settings, device="cpu", seed=seed)


def _batch(seed: int, reward: float | None = None, discount: float = 0.9, size: int = 16) -> Batch:
    generator = np.random.default_rng(seed)
    windows = generator.integers(0, 256, (size, SHAPE[0] + 1, *SHAPE[1:]), dtype=np.uint8)
    rewards = generator.normal(size=size) if reward is None else np.full(size, reward)
    return Batch(
        observation=windows[:, :-1],
        action=generator.integers(3, size=size),
        reward=rewards.astype(np.float32),
        discount=np.full(size, discount, np.float32),
        next_observation=windows[:, 1:],
        index=np.arange(size),
        weight=np.ones(size, np.float32),
        terminated=np.zeros(size, bool),
        truncated=np.zeros(size, bool),
    )


def _weights(agent: DQN, which: str = "online") -> list[torch.Tensor]:
    return [tensor.clone() for tensor in agent.state_dict()[which].values()]


def _equal(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_values_of_terminated_transitions_converge_to_their_reward() -> None:
    agent = _agent()
    batch = _batch(0, reward=0.75, discount=0.0)

    for _ in range(200):
        update = agent.learn(batch)

    assert update.mean_value.item() == pytest.approx(0.75, abs=0.02)  # Adam at 1e-3 still jitters by about 0.01
    assert update.loss.item() < 1e-3


def test_an_update_equals_one_written_out_plainly() -> None:
    agent = _agent()
    online = build_network(SHAPE, num_actions=3)
    online.load_state_dict(agent.state_dict()["online"])
    target = copy.deepcopy(online)
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3, eps=1e-8, foreach=False)

    for seed in range(2):
        batch = _batch(seed)
        update = agent.learn(batch)
        rows = torch.arange(len(batch))
        with torch.no_grad():
            best = online(torch.from_numpy(batch.next_observation)).argmax(1)
            next_values = target(torch.from_numpy(batch.next_observation))[rows, best]
            aim = torch.from_numpy(batch.reward).clamp(-1, 1) + torch.from_numpy(batch.discount) * next_values
        values = online(torch.from_numpy(batch.observation))[rows, torch.from_numpy(batch.action)]
        loss = torch.nn.functional.smooth_l1_loss(values, aim)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        torch.testing.assert_close(update.loss, loss.detach())
        torch.testing.assert_close(update.td_error, (aim - values).detach())
    for own, plain in zip(_weights(agent), online.state_dict().values(), strict=True):
        torch.testing.assert_close(own, plain, rtol=1e-4, atol=1e-6)  # the fused Adam rounds in another order


def test_without_double_q_learning_no_target_is_lower_and_some_are_higher() -> None:
    double, plain = _agent(double=True, target_every=100), _agent(double=False)
    for seed in range(1, 9):  # until online and target network prefer other actions somewhere
        double.learn(_batch(seed))
    plain.load_state_dict(double.state_dict())

    difference = plain.learn(_batch(0)).td_error - double.learn(_batch(0)).td_error

    assert (difference >= 0).all()
    assert (difference > 0).any()


def test_the_target_network_is_copied_only_every_target_every_updates() -> None:
    agent = _agent(target_every=3)
    start = _weights(agent, "target")

    for update in range(1, 7):
        agent.learn(_batch(update))
        if update < 3:
            assert _equal(start, _weights(agent, "target"))
        assert (update % 3 == 0) == _equal(_weights(agent), _weights(agent, "target"))


def test_rewards_are_clipped_only_when_asked() -> None:
    large, one = _batch(0, reward=50.0), _batch(0, reward=1.0)

    assert _agent(clip_rewards=True).learn(large).loss.item() == _agent(clip_rewards=True).learn(one).loss.item()
    assert _agent(clip_rewards=False).learn(large).loss.item() > 40


def test_importance_weights_scale_the_loss() -> None:
    batch = _batch(0)
    halved = Batch(**{**vars(batch), "weight": np.full(len(batch), 0.5, np.float32)})

    assert _agent().learn(batch).loss.item() == pytest.approx(2 * _agent().learn(halved).loss.item())


def test_the_same_seed_gives_the_same_agent_and_another_seed_another() -> None:
    assert _equal(_weights(_agent(seed=5)), _weights(_agent(seed=5)))
    assert not _equal(_weights(_agent(seed=5)), _weights(_agent(seed=6)))


def test_building_and_learning_do_not_use_pytorchs_global_generator() -> None:
    before = torch.get_rng_state()

    _agent().learn(_batch(0))

    assert torch.equal(before, torch.get_rng_state())


def test_learning_does_not_write_to_the_batch() -> None:
    batch, untouched = _batch(0), _batch(0)

    _agent().learn(batch)

    for name, array in vars(untouched).items():
        np.testing.assert_array_equal(array, getattr(batch, name), err_msg=name)


def test_an_agent_restored_from_a_file_continues_bit_for_bit() -> None:
    agent, resumed = _agent(seed=0), _agent(seed=1)
    observations = _batch(9).observation
    for seed in range(4):
        agent.learn(_batch(seed))
        agent.act(observations, agent_steps=50)
    stored = io.BytesIO()
    torch.save(agent.state_dict(), stored)
    stored.seek(0)

    resumed.load_state_dict(torch.load(stored, weights_only=True))

    for seed in range(4, 9):  # over a target copy
        np.testing.assert_array_equal(agent.act(observations, 60), resumed.act(observations, 60))
        agent.learn(_batch(seed))
        resumed.learn(_batch(seed))
        assert _equal(_weights(agent), _weights(resumed))
        assert _equal(_weights(agent, "target"), _weights(resumed, "target"))


def test_a_state_of_another_network_is_refused_and_changes_nothing() -> None:
    agent = _agent()
    before = _weights(agent)
    foreign = _agent(shape=(4, 12, 12)).state_dict()

    with pytest.raises(IncompatibleError, match=r"saved network has torso\.0\.weight of shape \(32, 4, 3, 3\)"):
        agent.load_state_dict(foreign)

    assert _equal(before, _weights(agent))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_an_update_on_the_gpu_agrees_with_one_on_the_cpu() -> None:
    on_cpu = _agent()
    on_gpu = DQN(SHAPE, num_actions=3, settings=SETTINGS, device="cuda", seed=0)

    for seed in range(3):
        cpu_loss, gpu_loss = on_cpu.learn(_batch(seed)).loss, on_gpu.learn(_batch(seed)).loss
        assert gpu_loss.item() == pytest.approx(cpu_loss.item(), rel=1e-2)  # TF32 convolutions

    np.testing.assert_array_equal(
        on_cpu.choose_greedily(_batch(0).observation), on_gpu.choose_greedily(_batch(0).observation)
    )
