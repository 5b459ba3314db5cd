"""Record the frames of ViZDoom, Crafter, Super Mario Bros, MiniWorld and dm_control for packing.py.

    make scenes                                     all, in an environment of requirements-scenes.txt
    python benchmarks/record_scenes.py --scenes crafter

Random play: each action is drawn uniformly and repeated with probability 0.75 per step, so that the player moves on.
ViZDoom (Kempka et al. 2016) gives the last of four tics at 160x120, Super Mario Bros (Kauten 2018) the last of four
frames at 256x240; both are resized to 84x84 with OpenCV's INTER_AREA, in colour and in grey. Crafter (Hafner 2021) is
recorded at its 64x64 and skips no frames, MiniWorld's four rooms (Chevalier-Boisvert et al. 2023) at 84x84 likewise,
without a display (EGL: Debian's libegl1). The same seed gives the same frames, except for Crafter: it iterates Python
sets of its creatures, whose order differs between processes. Four tasks of dm_control (Tunyasuvunakool et al. 2020)
are rendered at 84x84 after every second step by OSMesa (Debian's libosmesa6), with actions drawn uniformly from their
box. Needs neither framestow nor ale-py: these environments need older packages than the others.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from recorded_frames import CONTROL_FRAMES, CONTROL_TASKS, NUM_FRAMES, Recording, frames_path, save_recording

FRAME_SKIP = 4  # tics or screens per agent step
CONTROL_SKIP = 2  # steps of dm_control per agent step
FRAME_SIDE = 84  # pixels
PERSISTENCE = 0.75  # probability that the last action is kept for another step
DOOM_BUTTONS = ("ATTACK", "MOVE_FORWARD", "MOVE_LEFT", "MOVE_RIGHT", "TURN_LEFT", "TURN_RIGHT")
Scene = Iterator[tuple[NDArray[np.uint8], bool]]  # a screen, which may be overwritten later; whether an episode begins


class PersistentActions:
    """Random numbers from 0 to ``num_actions`` - 1, each repeated for some steps."""

    def __init__(self, num_actions: int, generator: np.random.Generator) -> None:
        self._num_actions, self._generator = num_actions, generator
        self._action = 0

    def draw(self) -> int:
        """Return the action of the next step."""
        if self._generator.random() >= PERSISTENCE:
            self._action = int(self._generator.integers(self._num_actions))
        return self._action


def doom(scenario: str, seed: int) -> Scene:
    """Yield screens ``(120, 160, 3)`` of a scenario of ViZDoom."""
    import vizdoom

    game = vizdoom.DoomGame()
    game.load_config(str(Path(vizdoom.scenarios_path) / f"{scenario}.cfg"))
    game.set_available_buttons([getattr(vizdoom.Button, name) for name in DOOM_BUTTONS])
    game.set_screen_format(vizdoom.ScreenFormat.RGB24)
    game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
    game.set_window_visible(False)
    game.set_doom_config_path(str(Path(tempfile.gettempdir()) / "vizdoom.ini"))  # not the working folder
    game.set_seed(seed)
    game.init()
    buttons = np.eye(len(DOOM_BUTTONS), dtype=int).tolist()
    actions = PersistentActions(len(buttons), np.random.default_rng(seed))
    while True:
        game.new_episode()
        is_first = True
        while not game.is_episode_finished():
            yield game.get_state().screen_buffer, is_first
            is_first = False
            game.make_action(buttons[actions.draw()], FRAME_SKIP)


def crafter(seed: int) -> Scene:
    """Yield pictures ``(64, 64, 3)`` of Crafter."""
    from crafter import Env

    env = Env(seed=seed)
    actions = PersistentActions(env.action_space.n, np.random.default_rng(seed))
    while True:
        yield env.reset(), True
        has_ended = False
        while not has_ended:
            picture, _, has_ended, _ = env.step(actions.draw())
            yield picture, False


def super_mario(seed: int) -> Scene:
    """Yield screens ``(240, 256, 3)`` of Super Mario Bros, played with the seven actions of SIMPLE_MOVEMENT."""
    from gym_super_mario_bros import SuperMarioBrosEnv
    from gym_super_mario_bros.actions import SIMPLE_MOVEMENT
    from nes_py.wrappers import JoypadSpace

    env = JoypadSpace(SuperMarioBrosEnv(), SIMPLE_MOVEMENT)
    actions = PersistentActions(len(SIMPLE_MOVEMENT), np.random.default_rng(seed))
    while True:
        yield env.reset(), True
        has_ended = False
        while not has_ended:
            action = actions.draw()
            for _ in range(FRAME_SKIP):
                screen, _, has_ended, _ = env.step(action)
                if has_ended:
                    break
            yield screen, False


def mini_world(seed: int) -> Scene:
    """Yield pictures ``(84, 84, 3)`` from within MiniWorld's four rooms."""
    import pyglet

    pyglet.options["headless"] = True  # read when MiniWorld is imported
    from miniworld.envs import FourRooms

    env = FourRooms(obs_width=FRAME_SIDE, obs_height=FRAME_SIDE)
    actions = PersistentActions(int(env.action_space.n), np.random.default_rng(seed))
    picture, _ = env.reset(seed=seed)
    while True:
        yield picture, True
        has_ended = False
        while not has_ended:
            picture, _, terminated, truncated, _ = env.step(actions.draw())
            has_ended = terminated or truncated
            yield picture, False
        picture, _ = env.reset()


def control(domain: str, task: str, seed: int) -> Scene:
    """Yield pictures ``(84, 84, 3)`` of a task of dm_control."""
    os.environ.setdefault("MUJOCO_GL", "osmesa")  # read when dm_control is imported
    from dm_control import suite

    env = suite.load(domain, task, task_kwargs={"random": seed})
    lowest, highest = env.action_spec().minimum, env.action_spec().maximum
    generator = np.random.default_rng(seed)
    action = generator.uniform(lowest, highest)
    while True:
        step, is_first = env.reset(), True
        while is_first or not step.last():
            yield env.physics.render(FRAME_SIDE, FRAME_SIDE, camera_id=0), is_first
            is_first = False
            if generator.random() >= PERSISTENCE:
                action = generator.uniform(lowest, highest)
            for _ in range(CONTROL_SKIP):
                step = env.step(action)
                if step.last():
                    break


SCENES: dict[str, Callable[[int], Scene]] = {
    "doom_deathmatch": lambda seed: doom("deathmatch", seed),
    "doom_gathering": lambda seed: doom("health_gathering_supreme", seed),
    "crafter": crafter,
    "super_mario": super_mario,
    "mini_world": mini_world,
    **{domain: partial(control, domain, task) for domain, task in CONTROL_TASKS.items()},
}
OWN_PICTURES = ("crafter", "mini_world", *CONTROL_TASKS)  # recorded as they are, in colour alone


def record(name: str, num_frames: int, seed: int) -> None:
    """Play a scene and save its frames in colour, and resized ones in grey too."""
    episode_starts = []
    for index, (screen, is_first) in enumerate(islice(SCENES[name](seed), num_frames)):
        picture = screen if name in OWN_PICTURES else resized(screen)
        if index == 0:
            colour = np.empty((num_frames, *picture.shape), np.uint8)
        colour[index] = picture
        if is_first:
            episode_starts.append(index)
        if (index + 1) % 5_000 == 0:
            print(f"{name}: {index + 1:,} of {num_frames:,} frames", flush=True)
    if name not in OWN_PICTURES:
        grey = np.stack([cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY) for picture in colour])
        save_recording(f"{name}_grey", Recording(grey, episode_starts), seed)
    save_recording(f"{name}_colour", Recording(colour, episode_starts), seed)


def resized(screen: NDArray[np.uint8]) -> NDArray[np.uint8]:
    small: NDArray[np.uint8] = cv2.resize(screen, (FRAME_SIDE, FRAME_SIDE), interpolation=cv2.INTER_AREA)
    return small


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", nargs="+", choices=SCENES, default=list(SCENES))
    arguments = parser.parse_args()
    for name in arguments.scenes:
        num_frames = CONTROL_FRAMES if name in CONTROL_TASKS else NUM_FRAMES
        if frames_path(f"{name}_colour", num_frames, 0).exists():
            print(f"{name}: recorded before")
        else:
            record(name, num_frames, seed=0)


if __name__ == "__main__":
    main()
