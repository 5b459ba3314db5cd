"""Every error that framestow raises.

Each class also derives from a built-in error, so ``except ValueError`` works too::

    FramestowError
    ├── InvalidSettingsError (ValueError)      an argument is wrong; nothing was changed
    │   └── UnknownGameError                   no game has this name; suggests similar names
    ├── InvalidStepError (ValueError)          a step is wrong; nothing of it was stored
    ├── EnvironmentFailedError (RuntimeError)  an environment raised an error; has its number and the action
    │   └── WorkerLostError                    a worker process died or hangs; has its environments
    ├── StepTimeoutError (TimeoutError)        a step took longer than the timeout; it is still running
    ├── ClosedMemoryError (ValueError)         a step or a flush of a memory that is closed or read-only
    ├── NothingToSampleError (LookupError)     the memory does not have the requested transitions
    ├── DamagedDataError (OSError)             stored bytes differ from what was written
    │   └── DamagedSegmentError                bytes of a segment of frames; has its environment and number
    ├── CheckpointError (OSError)              a checkpoint could not be written or read; no other one was changed
    ├── DivergedError (ArithmeticError)         loss or weights of a training are not finite
    ├── IncompatibleError (ValueError)         a saved memory or run has other settings
    ├── ForkedLoaderError (RuntimeError)       a loader was used in a forked process
    ├── ForkedMemoryError (RuntimeError)       a memory was in a long call of another thread when the process forked
    ├── ActorLostError (ConnectionError)       an actor of a cluster died, or did not answer in time
    └── MissingExtraError (ImportError)        an optional dependency is not installed, or too old

The warning classes are ``ObservationWarning`` and ``UntestedVersionWarning`` (both UserWarning).

A message has the wrong value, the rule, and what to do: ``stack is 0: an observation has 1 to 256 frames``.
"""


class FramestowError(Exception):
    """Base class of all errors of framestow."""


class InvalidSettingsError(FramestowError, ValueError):
    """An argument is wrong. Nothing was changed."""


class UnknownGameError(InvalidSettingsError):
    """No game has this name. The message suggests similar names."""


class InvalidStepError(FramestowError, ValueError):
    """A step is wrong. Nothing of it was stored."""


class EnvironmentFailedError(FramestowError, RuntimeError):
    """An environment raised an error. The message has the number of the environment and the action.

    ``__cause__`` is the error, if the environment is in this process. For a worker process, ``remote_traceback`` has
    its traceback.
    """

    def __init__(self, message: str, environment: int | None = None, remote_traceback: str | None = None) -> None:
        super().__init__(message)
        self.environment = environment
        """Number of the environment that failed; ``None`` if there are several."""
        self.remote_traceback = remote_traceback
        """Traceback in the worker process as text; ``None`` if the environment was in this process."""


class WorkerLostError(EnvironmentFailedError):
    """A worker process died or did not answer in time. The message has its environments and the reason."""


class StepTimeoutError(FramestowError, TimeoutError):
    """A step took longer than the caller's timeout. It is still running; the caller can wait for it again."""


class ClosedMemoryError(FramestowError, ValueError):
    """A step or a flush of a memory that was closed or opened read-only."""


class NothingToSampleError(FramestowError, LookupError):
    """The memory does not have the requested transitions, or none at all."""


class DamagedDataError(FramestowError, OSError):
    """Stored bytes differ from what was written: a checksum, a bound or a header is wrong."""


class DamagedSegmentError(DamagedDataError):
    """The bytes of a segment of frames differ from what was written. The message has the file and offset, if any."""

    def __init__(self, message: str, env_id: int, segment: int) -> None:
        super().__init__(message)
        self.env_id = env_id
        """Number of the environment."""
        self.segment = segment
        """Number of the segment: its first frame's position divided by ``frames_per_segment``."""


class CheckpointError(FramestowError, OSError):
    """A checkpoint could not be written, or has what framestow does not write. No other checkpoint was changed."""


class DivergedError(FramestowError, ArithmeticError):
    """Loss or weights of a training are not finite. The message names the last good checkpoint, which is intact."""


class IncompatibleError(FramestowError, ValueError):
    """A saved memory or run has other settings than the requested ones, or cannot be used here."""


class ForkedLoaderError(FramestowError, RuntimeError):
    """A loader was used in a forked process, which does not have its threads."""


class ForkedMemoryError(FramestowError, RuntimeError):
    """When the process was forked, another thread was in a call of the memory for over a second; it is half changed."""


class ActorLostError(FramestowError, ConnectionError):
    """An actor of a cluster, such as a replay shard, died or did not answer in time. It may be restarting."""

    def __init__(self, message: str, is_silent: bool = False) -> None:
        super().__init__(message)
        self.is_silent = is_silent
        """Whether it may still run, but did not answer in time."""

    def __reduce__(self) -> tuple[type, tuple[str, bool]]:
        return type(self), (str(self), self.is_silent)


class MissingExtraError(FramestowError, ImportError):
    """An optional dependency is not installed, or too old. The message has the ``pip install`` command."""


class ObservationWarning(UserWarning):
    """Steps or a space are unusual: they take more bytes, or do not follow the environment. Warned once each."""


class UntestedVersionWarning(UserWarning):
    """A library has a version that its drop-in was not tested with. Warned once for each library."""
