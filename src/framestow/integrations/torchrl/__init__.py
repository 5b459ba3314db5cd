"""A storage for TorchRL's replay buffers that stores each frame once, with lossless compression.

::

    # before
    TensorDictReplayBuffer(storage=LazyTensorStorage(1_000_000), batch_size=32)
    # after
    TensorDictReplayBuffer(storage=FramestowStorage(1_000_000), batch_size=32)

Samples equal those of a ``LazyTensorStorage``, bit for bit. Needs the extra ``framestow[torchrl]``. Tested with torchrl
0.14.1 and tensordict 0.14.3, priorities with PyTorch 2.14. docs/libraries/torchrl.md has differences.
"""

from framestow.integrations.tested_versions import warn_of_untested_version
from framestow.interface import public_names

warn_of_untested_version("torchrl", newest="0.14", oldest="0.14")

from framestow.integrations.torchrl.storage import FramestowStorage  # noqa: E402 -- after the check of the extra

__all__ = ["FramestowStorage"]
__dir__ = public_names(__name__)
