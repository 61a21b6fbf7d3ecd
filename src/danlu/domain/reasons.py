"""Codes of reasons, and their families. Stable: scripts and consoles read codes, people read sentences.

An engine may add codes of its own, which begin with the name of the engine.
"""

from enum import StrEnum, auto


class ReasonCode(StrEnum):
    # A job waits.
    QUEUED = auto()
    STARTING = auto()
    STARTED = auto()
    PENDING = auto()
    DEPENDENCY = auto()
    ARRAY_LIMIT = auto()
    QUOTA = auto()
    BEHIND = auto()
    RECLAIMING = auto()
    CROWDED = auto()
    NO_GPUS = auto()
    NO_SHARDS = auto()
    NO_CPUS = auto()
    NO_MEMORY = auto()
    NO_NODES = auto()
    NO_ROOM = auto()
    NO_CARDS = auto()
    NO_LICENSES = auto()
    NEVER_FITS = auto()
    NO_QUEUE = auto()
    CLOSED = auto()
    DISABLED = auto()
    LEFT_TEAM = auto()
    HELD = auto()
    BEGIN_TIME = auto()
    RESERVATION = auto()
    ENGINE_DOWN = auto()
    # A job waits again.
    RETRY = auto()
    GIVEN_BACK = auto()
    PREEMPTED = auto()
    # A run is asked to end.
    GIVING_BACK = auto()
    STOPPING = auto()
    STOPPING_NOW = auto()
    STOPPING_KILL = auto()
    # A job has ended.
    SUCCEEDED = auto()
    FAILED = auto()
    EXITED = auto()
    SIGNAL = auto()
    STOPPED = auto()
    TIMED_OUT = auto()
    TIME_LIMIT = auto()
    OUT_OF_MEMORY = auto()
    LOST = auto()
    NOT_PREPARED = auto()
    NOT_STARTED = auto()
    TOO_BIG = auto()
    DEPENDENCY_FAILED = auto()


_Code = ReasonCode
# `plan()` names the missing resource; an engine gives the same reasons in general words.
NO_ROOM = frozenset({_Code.NO_GPUS, _Code.NO_SHARDS, _Code.NO_CPUS, _Code.NO_MEMORY, _Code.NO_NODES})
# The job waits until other jobs free resources: an estimate is a guess about these jobs.
GUESSED = frozenset({_Code.NO_ROOM, _Code.BEHIND, _Code.RECLAIMING}) | NO_ROOM
FOR_ROOM = GUESSED | {_Code.QUOTA}
# No resource that becomes free starts the job.
HOPELESS = frozenset({_Code.NEVER_FITS, _Code.CLOSED, _Code.NO_QUEUE})
# Neither does any change of the ask.
NO_ALTERNATIVE = frozenset({_Code.DEPENDENCY, _Code.ARRAY_LIMIT, _Code.DISABLED, _Code.LEFT_TEAM})
# No other job holds the resources that this one waits for.
WITHOUT_HOLDER = NO_ALTERNATIVE | HOPELESS
# The time of the start cannot be estimated.
WITHOUT_ESTIMATE = HOPELESS | {_Code.DISABLED, _Code.LEFT_TEAM}
