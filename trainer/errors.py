"""The errors of the trainer: one class per situation, so that callers can catch what they mean.

    TrainerError
    ├── ConfigError (ValueError)            one or more settings are wrong; lists all of them
    │   ├── UnknownSettingError (TypeError, KeyError, AttributeError)   an unknown name
    │   └── FrozenConfigError (AttributeError, TypeError)   a frozen config, or a setting that an
    │                                       object works with already, was to be changed
    ├── EnvError
    │   ├── EnvCreationError                the env could not be made
    │   ├── EnvContractError                the env answered outside the gymnasium contract
    │   │   └── TaskError                   the env cannot be given a task, or refused one
    │   └── UnsupportedSpaceError (ValueError)   no module or connector for this space
    ├── EpisodeError (ValueError)           an episode was used against its invariants
    │   ├── EpisodeIndexError (IndexError)  no item there, or other than one item for each index
    │   └── UnknownOutputError (KeyError)   an extra output that the episode does not have
    ├── MetricsError (ValueError)           a metric was logged with impossible options
    ├── EvaluationError                     a custom evaluation function gave no evaluation
    ├── ModuleError                         a network was used against its contract
    │   └── UnknownModuleError (KeyError)   there is no module of that id
    ├── ReplayError (ValueError)            a replay buffer was used against its contract
    ├── SerializationError (TypeError)      something cannot travel to another process; says what
    ├── ActorError                          something about an actor is wrong
    │   ├── ActorDiedError                  its process is gone; says why
    │   ├── ActorNameError (ValueError)     the name is taken, or unknown
    │   ├── ActorTimeoutError (TimeoutError)   an answer did not come in time
    │   └── ActorUsageError (TypeError, AttributeError)   used like an ordinary class or object
    ├── RunnerError
    │   ├── RunnerLostError                 a process died and may not be replaced
    │   ├── RunnerFailedError               user code raised in a process; chained as cause
    │   ├── EngineError                     workers cannot run where they are to run; says why
    │   ├── DebuggerError                   a debugger was called in a process without a terminal
    │   └── RemoteError                     stands for an error whose own class could not travel
    ├── TuneError                           an experiment cannot be run, restored or read
    │   ├── TuneSettingError (ValueError, TypeError)   an argument or a field of a config is wrong
    │   ├── SearchSpaceError (ValueError)   a search space is written wrongly, or cannot be drawn
    │   ├── JournalError                    the journal of an experiment cannot be read or written
    │   └── TrialError                      a trial failed; has the text of its error
    ├── ReportError (ValueError)            a picture or page of runs cannot be made
    └── AlgorithmStoppedError               an algorithm was used after stop()

`callbacks.errors` and `checkpoints.errors` hold the trees of those packages.
"""

from __future__ import annotations


class TrainerError(Exception):
    """Root of every error that the trainer raises on purpose."""


class ConfigError(TrainerError, ValueError):
    """One or more settings are wrong; the message lists every problem found."""


class UnknownSettingError(ConfigError, TypeError, KeyError, AttributeError):
    """A setting, section argument or dict key that does not exist; names the nearest one."""

    def __str__(self) -> str:
        # KeyError would show the repr of the message.
        return str(self.args[0]) if self.args else ""


class FrozenConfigError(ConfigError, AttributeError, TypeError):
    """A frozen config was to be changed."""


class EnvError(TrainerError):
    """Something about an environment is wrong."""


class EnvCreationError(EnvError):
    """The environment could not be made, or its first reset failed."""


class EnvContractError(EnvError):
    """The environment answered outside the gymnasium contract."""


class TaskError(EnvContractError):
    """The environment cannot be given tasks, or raised when one was set or asked for."""


class UnsupportedSpaceError(EnvError, ValueError):
    """No module or connector exists for this observation or action space."""


class EpisodeError(TrainerError, ValueError):
    """An episode was used against its invariants."""


class EpisodeIndexError(EpisodeError, IndexError):
    """An index outside an episode's data, or another number of new items than of indices."""


class UnknownOutputError(EpisodeError, KeyError):
    """An extra model output that the episode does not have; names those it has."""

    def __str__(self) -> str:
        # KeyError would show the repr of the message.
        return str(self.args[0]) if self.args else ""


class MetricsError(TrainerError, ValueError):
    """A metric was logged with options that cannot be combined."""


class EvaluationError(TrainerError):
    """A custom evaluation function did not give what an evaluation is made of."""


class ModuleError(TrainerError):
    """A network was built or used against its contract."""


class UnknownModuleError(ModuleError, KeyError):
    """There is no module of that id; names the nearest and all there are."""

    def __str__(self) -> str:
        # KeyError would show the repr of the message.
        return str(self.args[0]) if self.args else ""


class ReplayError(TrainerError, ValueError):
    """A replay buffer was used against its contract."""


class SerializationError(TrainerError, TypeError):
    """An object cannot travel to another process; the message names it by path."""


class ActorError(TrainerError):
    """Something about an actor is wrong."""


class ActorDiedError(ActorError):
    """The process of an actor is gone; the message says why, as far as it is known."""


class ActorNameError(ActorError, ValueError):
    """An actor's name is taken already, or no living actor has it."""


class ActorTimeoutError(ActorError, TimeoutError):
    """The answer of an actor did not come in the time allowed; it may still come."""


class ActorUsageError(ActorError, TypeError, AttributeError):
    """An actor was used like an ordinary class or object; the message says what to write."""


class RunnerError(TrainerError):
    """An env runner could not answer."""


class RunnerLostError(RunnerError):
    """The process of an env runner died and the settings do not allow a replacement."""


class RunnerFailedError(RunnerError):
    """User code raised inside an env runner; the original error is the cause."""


class EngineError(RunnerError):
    """Workers cannot run where they are to run, such as on a cluster; the message says why."""


class DebuggerError(RunnerError):
    """A debugger was called in a process of the library, where input is impossible."""


class RemoteError(RunnerError):
    """Stands for an error of another process whose own class could not be sent."""


class TuneError(TrainerError):
    """An experiment of `trainer.tune` cannot be run, restored or read; says what to do."""


class TuneSettingError(TuneError, ValueError, TypeError):
    """An argument of `trainer.tune` is wrong, or does not fit the others; says what is expected."""


class SearchSpaceError(TuneError, ValueError):
    """A search space is written wrongly, or a value cannot be drawn from it."""


class JournalError(TuneError):
    """The journal of an experiment is damaged, impossible, of another version, or not writable."""


class TrialError(TuneError):
    """A trial failed; the message has the type, the text and the traceback of its error."""


class ReportError(TrainerError, ValueError):
    """A picture or page of runs cannot be made: a run is not there, or lacks what was asked for."""


class AlgorithmStoppedError(TrainerError):
    """The algorithm was used after `stop()`."""
