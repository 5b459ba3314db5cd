"""A storage for TorchRL's replay buffers that keeps every frame once, compressed, losslessly.

::

    from framestow.integrations.torchrl import FramestowStorage

    buffer = TensorDictReplayBuffer(storage=FramestowStorage(1_000_000), batch_size=32)
    for data in collector:
        buffer.extend(data.reshape(-1))
        batch = buffer.sample()  # as it would be from a LazyTensorStorage

Tested with torchrl 0.14.1 and tensordict 0.14.3, priorities with PyTorch 2.14. Needs the extra
``framestow[torchrl]``. docs/libraries.md has what it saves, and what is different.
"""

from framestow.integrations.tested_versions import warn_of_untested_version

warn_of_untested_version("torchrl", "0.14", "0.14")

from framestow.integrations.torchrl.storage import FramestowStorage  # noqa: E402 -- behind the check of the extra

__all__ = ["FramestowStorage"]
