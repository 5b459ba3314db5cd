"""Every error that framestow raises on purpose.

The tree; each class also derives from the builtin that a caller would guess::

    FramestowError
    ├── InvalidSettingsError (ValueError)      an argument that cannot work, refused at construction
    │   └── UnknownGameError                   no such game; names the nearest ones
    ├── InvalidStepError (ValueError)          a step refused before anything of it was stored
    ├── EnvironmentFailedError (RuntimeError)  an environment raised; names which one, and the action
    │   └── WorkerLostError                    a worker process died or hangs; names its environments
    ├── StepTimeoutError (TimeoutError)        a step that is not done in the time given; it goes on
    ├── ClosedMemoryError (ValueError)         a step or a flush of a memory that is closed, or opened to be read
    ├── NothingToSampleError (LookupError)     a sample was asked of a memory without transitions
    ├── DamagedDataError (OSError)             bytes that are not what was written
    │   └── DamagedSegmentError                those of a segment of frames; says of which stream, and which one
    ├── CheckpointError (OSError)              a checkpoint not written; the one before it is still there
    ├── IncompatibleError (ValueError)         a saved memory or run that belongs to other settings
    ├── ForkedLoaderError (RuntimeError)       a loader asked for a batch in a process that was forked after it
    └── MissingExtraError (ImportError)        a part of framestow whose extra is not installed

A warning has one class of its own: ``UntestedVersionWarning`` (UserWarning).

Messages read ``what: rule; way out`` and carry the value and its place.
"""


class FramestowError(Exception):
    """Root of the tree: catches whatever framestow raises on purpose."""


class InvalidSettingsError(FramestowError, ValueError):
    """An argument that cannot work, refused before anything is built."""


class UnknownGameError(InvalidSettingsError):
    """No game of that name; the message names the nearest ones."""


class InvalidStepError(FramestowError, ValueError):
    """A step that breaks a rule, refused before anything of it was stored."""


class EnvironmentFailedError(FramestowError, RuntimeError):
    """An environment raised; the message names which one and the action.

    In this process ``__cause__`` is what it raised; in a worker process ``remote_traceback`` tells where.
    """

    def __init__(self, message: str, environment: int | None = None, remote_traceback: str | None = None) -> None:
        super().__init__(message)
        self.environment = environment
        """Number of the environment that failed; ``None`` where it is not one alone."""
        self.remote_traceback = remote_traceback
        """Traceback of the worker process as text; ``None`` where the environment was in this process."""


class WorkerLostError(EnvironmentFailedError):
    """A worker process died or gave no answer in time; the message names its environments and why."""


class StepTimeoutError(FramestowError, TimeoutError):
    """A step is not done in the time that the caller gave; it goes on, and may be waited for again."""


class ClosedMemoryError(FramestowError, ValueError):
    """A step or a flush of a memory that was closed, or that was opened only to be read."""


class NothingToSampleError(FramestowError, LookupError):
    """A sample was asked of a memory that holds no transition yet."""


class DamagedDataError(FramestowError, OSError):
    """Bytes that are not what was written: a checksum, a bound or a header does not hold."""


class DamagedSegmentError(DamagedDataError):
    """Bytes of a segment of frames that are not what was written; the message names the file and offset, if any."""

    def __init__(self, message: str, stream: int, segment: int) -> None:
        super().__init__(message)
        self.stream = stream
        """Number of the stream whose frames are lost."""
        self.segment = segment
        """Number of the segment: its first position divided by the storage's ``frames_per_segment``."""


class CheckpointError(FramestowError, OSError):
    """A checkpoint that could not be written; what was saved before it is untouched."""


class IncompatibleError(FramestowError, ValueError):
    """A saved memory or run that belongs to other settings than those asked for."""


class ForkedLoaderError(FramestowError, RuntimeError):
    """A loader that was asked for a batch in a forked process: its threads stayed in the one that made it."""


class MissingExtraError(FramestowError, ImportError):
    """A part of framestow whose extra is not installed; the message gives the ``pip install`` line."""


class UntestedVersionWarning(UserWarning):
    """A library of another version than those that its drop-in was tested with; given once a library."""
