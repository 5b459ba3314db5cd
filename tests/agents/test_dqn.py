"""The DQN agent: what an update changes, and that its state is all of it."""

import copy
import io
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from agents.agents_and_batches import ATARI, NUM_ACTIONS, TINY, agent_settings, build_agent, random_batch
from framestow.agents.captured_update import ORDINARY_UPDATES
from framestow.agents.dqn import DQN
from framestow.errors import IncompatibleError, InvalidSettingsError
from framestow.training.recipes import RECIPES

FAST = {"learning_rate": 1e-3, "target_every": 3}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """On networks this small a second thread only waits for the first."""
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(usual)


def _weights(agent: DQN, which: str = "online") -> list[torch.Tensor]:
    return [tensor.clone() for tensor in agent.state_dict()[which].values()]


def _equal(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("distribution", ["none", "hl-gauss", "c51", "qr", "iqn"])
def test_values_of_terminated_transitions_converge_to_their_reward(distribution: str) -> None:
    agent = build_agent(distribution=distribution, atoms=11, support=2.0, **FAST)
    batch = random_batch(0, reward=0.75, discount=0.0)

    for _ in range(200):
        update = agent.learn(batch)

    assert update.mean_value.item() == pytest.approx(0.75, abs=0.05)


def test_the_target_network_is_copied_only_every_target_every_updates() -> None:
    agent = build_agent(**FAST)
    start = _weights(agent, "target")

    for update in range(1, 7):
        agent.learn(random_batch(update))
        if update < 3:
            assert _equal(start, _weights(agent, "target"))
        assert (update % 3 == 0) == _equal(_weights(agent), _weights(agent, "target"))


def test_the_learning_rate_stays_then_falls_to_half_a_third_and_a_quarter() -> None:
    falling = {"learning_rate": 1e-3, "learning_rate_falls_after": 40, "train_every": 4, "optimizer": "rmsprop"}
    agent, state = build_agent(**falling), build_agent(**falling).state_dict()
    rates = {1: 1e-3, 10: 1e-3, 20: 1e-3 / 2, 30: 1e-3 / 3, 40: 1e-3 / 4}  # by update; the 10th is step 40

    for update, rate in rates.items():
        constant = build_agent(learning_rate=rate, optimizer="rmsprop")
        for one in (agent, constant):
            one.load_state_dict({**state, "num_updates": update})
        assert agent.learning_rate == pytest.approx(rate)
        for one in (agent, constant):
            one.learn(random_batch(update))
        assert _equal(_weights(agent), _weights(constant))


def test_munchausen_begins_after_as_many_updates_as_the_settings_say() -> None:
    agent, state = build_agent(munchausen_after=8, train_every=4), build_agent().state_dict()

    for update, munchausen_after in {1: None, 2: 0}.items():
        constant = build_agent(munchausen_after=munchausen_after)
        for one in (agent, constant):
            one.load_state_dict({**state, "num_updates": update})
            one.learn(random_batch(update))
        assert _equal(_weights(agent), _weights(constant))


def test_the_first_step_of_adam_is_as_long_as_the_fallen_learning_rate() -> None:
    agent = build_agent(learning_rate=1e-3, learning_rate_falls_after=4, train_every=4, optimizer_epsilon=1e-12)
    state = agent.state_dict()
    agent.load_state_dict({**state, "num_updates": 4})  # the rate is a quarter
    before = _weights(agent)

    agent.learn(random_batch(0))

    longest = max((new - old).abs().max().item() for new, old in zip(_weights(agent), before, strict=True))
    assert longest == pytest.approx(2.5e-4, rel=1e-3)


@pytest.mark.parametrize("has_bfloat16", [True, False])
def test_a_processor_with_bfloat16_computes_nearly_the_same_in_it_and_another_in_float32(
    has_bfloat16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": has_bfloat16}, raising=False)
    rounding, exact = (build_agent("laptop", precision=precision) for precision in ("bfloat16", "float32"))

    rounded, expected = (agent.learn(random_batch(0)).numbers for agent in (rounding, exact))

    assert rounding.precision == ("bfloat16" if has_bfloat16 else "float32")
    torch.testing.assert_close(rounded, expected, rtol=0.02, atol=0.02)
    assert torch.equal(rounded, expected) != has_bfloat16


def test_the_same_seed_gives_the_same_agent_and_another_seed_another() -> None:
    assert _equal(_weights(build_agent(seed=5)), _weights(build_agent(seed=5)))
    assert not _equal(_weights(build_agent(seed=5)), _weights(build_agent(seed=6)))


def test_building_and_learning_do_not_use_pytorchs_global_generator() -> None:
    before = torch.get_rng_state()

    build_agent().learn(random_batch(0))

    assert torch.equal(before, torch.get_rng_state())


def test_learning_does_not_write_to_the_batch() -> None:
    batch, untouched = random_batch(0), random_batch(0)

    build_agent().learn(batch)

    for name, array in vars(untouched).items():
        np.testing.assert_array_equal(array, getattr(batch, name), err_msg=name)


@pytest.mark.parametrize("recipe", RECIPES)
def test_an_agent_restored_from_a_file_continues_bit_for_bit(recipe: str) -> None:
    shape = TINY if recipe != "desktop" else (1, 36, 36)  # smaller frames would not get its network
    agent, resumed = (build_agent(recipe, seed, shape, target_every=3) for seed in (0, 1))
    observations = random_batch(9, shape).observation
    for seed in range(4):
        agent.learn(random_batch(seed, shape, size=4))
        agent.act(observations, agent_steps=50)
    stored = io.BytesIO()
    torch.save(agent.state_dict(), stored)
    stored.seek(0)

    resumed.load_state_dict(torch.load(stored, weights_only=True))

    for seed in range(4, 9):  # over a target copy
        np.testing.assert_array_equal(agent.act(observations, 60), resumed.act(observations, 60))
        agent.learn(random_batch(seed, shape, size=4))
        resumed.learn(random_batch(seed, shape, size=4))
        assert _equal(_weights(agent), _weights(resumed))
        assert _equal(_weights(agent, "target"), _weights(resumed, "target"))


def test_a_state_of_another_network_is_refused_and_changes_nothing() -> None:
    agent = build_agent()
    before = _weights(agent)
    foreign = build_agent(shape=(4, 12, 12)).state_dict()

    with pytest.raises(IncompatibleError, match=r"saved network has torso\.0\.weight of shape \(32, 4, 3, 3\)"):
        agent.load_state_dict(foreign)

    assert _equal(before, _weights(agent))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_an_update_on_the_gpu_agrees_with_one_on_the_cpu() -> None:
    on_cpu = build_agent()
    on_gpu = DQN(TINY, NUM_ACTIONS, agent_settings(), device="cuda", seed=0)

    for seed in range(3):
        cpu_loss, gpu_loss = on_cpu.learn(random_batch(seed)).loss, on_gpu.learn(random_batch(seed)).loss
        assert gpu_loss.item() == pytest.approx(cpu_loss.item(), rel=1e-2)  # TF32 convolutions

    np.testing.assert_array_equal(
        on_cpu.choose_greedily(random_batch(0).observation), on_gpu.choose_greedily(random_batch(0).observation)
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"munchausen_after": 0, "double": True}, "munchausen_after and double are on: Munchausen averages"),
        ({"munchausen_after": 9, "distribution": "c51"}, "munchausen_after is on and distribution is 'c51'"),
        ({"spectral_norm": True}, "spectral_norm is on and network is 'nature'"),
    ],
)
def test_settings_that_contradict_one_another_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidSettingsError, match=message):
        agent_settings("dqn", **changes)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("recipe", RECIPES)
def test_an_update_replayed_as_a_graph_does_what_an_ordinary_one_does(recipe: str) -> None:
    settings = agent_settings(recipe, target_every=5, precision="float32")
    captured, ordinary = (DQN(ATARI, NUM_ACTIONS, settings, device="cuda", seed=0) for _ in range(2))
    ordinary._update = ordinary._compute_update

    for seed in range(12):
        batch = random_batch(seed, ATARI, 8)
        replayed, computed = captured.learn(batch), ordinary.learn(batch)
        torch.testing.assert_close(replayed.numbers, computed.numbers, rtol=2e-2, atol=1e-3)  # TF32 convolutions


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_numbers_of_an_update_stay_when_the_graph_is_replayed() -> None:
    agent = DQN(TINY, NUM_ACTIONS, agent_settings(), device="cuda", seed=0)
    updates = [agent.learn(random_batch(seed)) for seed in range(ORDINARY_UPDATES + 2)]
    losses = [update.loss.item() for update in updates]

    agent.learn(random_batch(99))

    assert [update.loss.item() for update in updates] == losses
    assert len(set(losses)) == len(losses)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_restored_agent_captures_its_update_again() -> None:
    agent, restored = (DQN(TINY, NUM_ACTIONS, agent_settings(), device="cuda", seed=seed) for seed in range(2))
    for seed in range(ORDINARY_UPDATES + 2):
        agent.learn(random_batch(seed))
        restored.learn(random_batch(seed + 50))

    restored.load_state_dict(copy.deepcopy(agent.state_dict()))

    for seed in range(ORDINARY_UPDATES + 2):
        first, second = agent.learn(random_batch(seed)), restored.learn(random_batch(seed))
        torch.testing.assert_close(first.numbers, second.numbers, rtol=2e-2, atol=1e-3)
