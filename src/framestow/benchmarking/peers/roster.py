"""The peers that there are, and those of them that are installed."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from framestow.benchmarking.peers.cpprb import Cpprb
from framestow.benchmarking.peers.lazy_frames import LazyFramesList
from framestow.benchmarking.peers.sb3_extra_buffers import ExtraBufferWithoutTruncation, ExtraBufferWithTruncation
from framestow.benchmarking.peers.stable_baselines3 import StableBaselines3
from framestow.benchmarking.peers.tianshou import Tianshou
from framestow.benchmarking.peers.torchrl import TorchRL
from framestow.benchmarking.system import System
from framestow.errors import InvalidSettingsError, MissingExtraError


@dataclass(frozen=True)
class Peer:
    """A library, what has to be importable for it, what installs it, and the systems that are measured with it."""

    key: str
    modules: tuple[str, ...]
    requirement: str
    systems: tuple[type[System], ...]

    @property
    def is_installed(self) -> bool:
        """Whether all its modules are there; nothing is imported."""
        return all(find_spec(module) is not None for module in self.modules)

    @property
    def version(self) -> str:
        """Version of the library, empty where it is none of its own."""
        try:
            return version(self.requirement.partition("[")[0]) if self.requirement else ""
        except PackageNotFoundError:
            return ""

    @property
    def install_command(self) -> str:
        """What to type to have it."""
        return f'pip install "{self.requirement}"'


PEERS: dict[str, Peer] = {
    peer.key: peer
    for peer in (
        Peer("stable-baselines3", ("stable_baselines3",), "stable-baselines3", (StableBaselines3,)),
        Peer("tianshou", ("tianshou",), "tianshou", (Tianshou,)),
        Peer("torchrl", ("torchrl", "tensordict"), "torchrl", (TorchRL,)),
        Peer("cpprb", ("cpprb",), "cpprb", (Cpprb,)),
        Peer(
            "sb3-extra-buffers",
            ("sb3_extra_buffers", "lz4"),
            "sb3-extra-buffers[lz4]",
            (ExtraBufferWithTruncation, ExtraBufferWithoutTruncation),
        ),
        Peer("lazy-frames", (), "", (LazyFramesList,)),
    )
}


def chosen_peers(names: Sequence[str]) -> tuple[list[Peer], list[Peer]]:
    """Resolve what ``--peers`` says into the peers to measure and those that are not installed.

    ``["auto"]`` is all that are installed, ``["none"]`` none of them, anything else names of peers. Raises
    ``InvalidSettingsError`` for a name that is none, ``MissingExtraError`` for a named peer that is not installed.
    """
    if list(names) == ["none"]:
        return [], []
    if list(names) == ["auto"]:
        installed = [peer for peer in PEERS.values() if peer.is_installed]
        return installed, [peer for peer in PEERS.values() if peer not in installed]
    named = [_named(name) for name in dict.fromkeys(names)]
    for peer in named:
        if not peer.is_installed:
            raise MissingExtraError(f"peer {peer.key} is not installed: it cannot be measured; {peer.install_command}")
    return named, []


def _named(name: str) -> Peer:
    if name in PEERS:
        return PEERS[name]
    nearest = difflib.get_close_matches(name.lower().replace("_", "-"), PEERS, n=1, cutoff=0.5)
    way_out = f"did you mean {nearest[0]}?" if nearest else f"there are auto, none, {', '.join(PEERS)}"
    raise InvalidSettingsError(f"peers has {name!r}: it names none; {way_out}")
