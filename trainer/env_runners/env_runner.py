"""What every env runner offers to its users.

These are callbacks, functions given to `foreach_env_runner`, and custom evaluation functions.
"""

from __future__ import annotations

import abc
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from callbacks import CallbackChain
from checkpoints import Checkpointable, HasState, check_shape
from checkpoints.components import naming_component
from checkpoints.nearest_names import did_you_mean
from checkpoints.state_shapes import count, fields
from trainer.env_runners.messages import EnvRunnerSpec
from trainer.envs import VectorEnv
from trainer.errors import ConfigError, EnvError, FrozenConfigError
from trainer.metrics import MetricsLogger
from trainer.modules import ByModule, RLModule
from trainer.runtime.restart_policy import RestartPolicy
from trainer.types import Array, State

# ---- config view
#
# The settings as callbacks see them in a runner: to read, never to change.


class ConfigView(Mapping[str, Any]):
    """Settings by attribute (`config.in_evaluation`) and by key (`config["gamma"]`), read-only."""

    __slots__ = ("_settings",)

    def __init__(self, settings: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_settings", dict(settings))

    def __getitem__(self, key: str) -> Any:
        return self._settings[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __getattr__(self, name: str) -> Any:
        # Pickle and copy ask for special names before the object has its slot.
        if not name.startswith("_") and name in self._settings:
            return self._settings[name]
        if name == "environment":
            raise AttributeError(
                "config.environment() was called on the config of an env runner, which is a copy "
                "to read: a change would be lost when the process is replaced. To give envs "
                "something else to do in the middle of a run, set a task: "
                "`algorithm.env_runner_group.set_task(task)` for an env with `set_task` and "
                "`get_task` (docs/curriculum.md)."
            )
        hint = "" if name.startswith("_") else did_you_mean(name, self._settings)
        raise AttributeError(f"The config of an env runner has no setting {name!r}.{hint}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"config.{name} cannot be set in an env runner: each process has a copy, and a change "
            "in one would be lost at its next start. Set it before the algorithm is built."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return ConfigView, (self._settings,)

    def __repr__(self) -> str:
        return f"ConfigView({self._settings!r})"


class WithFixedSettings:
    """Refuses attributes with the names of settings, once the object has a `config`."""

    config: Any

    def __setattr__(self, name: str, value: Any) -> None:
        known = self.__dict__.get("_no_settings", ())
        if self.__dict__.get("config") is not None and name not in known:
            if name == "config" or name in self.config:
                if not self._may_set(name):
                    raise FrozenConfigError.of_attribute(self, name, value)
            else:  # looked up once: some attributes are set in each round
                self.__dict__.setdefault("_no_settings", set()).add(name)
        super().__setattr__(name, value)

    def _may_set(self, name: str) -> bool:
        """Whether an attribute with the name of a setting is the object's own."""
        raise NotImplementedError


# ---- env runner

_OWN = "env_runner"
"""The component with what a runner remembers besides its parts."""


# What every kind of runner offers; RLlib's name for it, which users' annotations have.
class EnvRunner(WithFixedSettings, Checkpointable, abc.ABC):
    """Steps envs with a module's actions and hands out episodes.

    Life: constructed with a spec and everything it is to be brought up to date with; `sample` again
    and again, with new weights in between; `stop`.

    Its state is its module, its callbacks, and what was logged and not reported yet. Where its envs
    stand is no part of it: the main process keeps the positions of all slots (`env_runners` in the
    checkpoint of an algorithm), because any runner may have to go on with them.

    Attributes:
        spec: what it was made from.
        worker_index: 0 in the main process, 1 … n in processes.
        config: the settings, read-only; `config.in_evaluation` tells evaluation from training.
        env: its sub-envs (`env.envs`, `env.num_envs`).
        module: its network; a `MultiRLModule` if there are several.
        modules: its networks by id.
        metrics: its logger; what is logged here comes out under `env_runners/` of the result.
        weights_version: number of updates behind the weights that it acts with.
    """

    spec: EnvRunnerSpec
    config: ConfigView
    env: VectorEnv
    module: RLModule
    modules: ByModule[RLModule]
    metrics: MetricsLogger
    callbacks: CallbackChain
    weights_version: int

    def _may_set(self, name: str) -> bool:
        return name != "config" and name in EnvRunner.__annotations__

    @property
    def worker_index(self) -> int:
        """Number of this runner: 0 in the main process."""
        return self.spec.worker_index

    @property
    def num_workers(self) -> int:
        """Number of env runner processes of its group."""
        return self.spec.num_workers

    @property
    def num_envs(self) -> int:
        """Number of its sub-envs."""
        return self.spec.num_envs

    @abc.abstractmethod
    def sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool | None = None,
        random_actions: bool = False,
        force_reset: bool = False,
    ) -> list[Any]:
        """Plays and returns episodes; see `PlayingEnvRunner.sample`."""

    def get_checkpointable_components(self) -> Collection[tuple[str, HasState]]:
        """Module, metrics and callbacks."""
        return [
            ("rl_module", self.module),
            ("metrics", self.metrics),
            ("callbacks", self.callbacks),
        ]

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The spec, which is no plain data: `from_checkpoint` wants it again."""
        return (), {"spec": self.spec}

    def _own_state(self) -> State:
        return {_OWN: {"weights_version": self.weights_version}}

    def check_state(self, state: State) -> None:
        """See `Checkpointable`."""
        super().check_state(state)
        if _OWN in state:
            with naming_component(_OWN):
                check_shape(state[_OWN], fields({"weights_version": count}))

    def set_state(self, state: State) -> None:
        """See `Checkpointable`; weights hold until the next ones arrive from the learner."""
        super().set_state(state)
        if _OWN in state:
            self.weights_version = int(state[_OWN]["weights_version"])

    def get_weights(self) -> dict[str, Array]:
        """Copies of the module's weights by name."""
        return self.module.get_state()

    def set_weights(self, weights: Mapping[str, Array]) -> None:
        """Replaces the module's weights, until the next ones arrive from the learner."""
        self.module.set_state(dict(weights))

    def foreach_env(self, func: Callable[[Any], Any]) -> list[Any]:
        """Calls `func(env)` with every sub-env; no results if the runner has no env."""
        return self.env.foreach_env(func) if self.env is not None else []

    def foreach_env_with_context(self, func: Callable[[Any, Any], Any]) -> list[Any]:
        """Calls `func(env, context)` with every sub-env; no results if the runner has no env."""
        return self.env.foreach_env_with_context(func) if self.env is not None else []

    def make_env(self) -> None:
        """Refused: RLlib's way to give a runner another env in the middle of a run.

        Raises:
            EnvError: always; says how a curriculum is written instead.
        """
        raise EnvError(
            f"env_runner.make_env() was called in env runner {self.worker_index}: an env that is "
            "made anew in one process would be gone when the process is replaced, and a "
            "checkpoint would not know it. Give the env `set_task(task)` and `get_task()` "
            "(`trainer.TaskSettableEnv`), which may build another env inside, and call "
            "`algorithm.env_runner_group.set_task(task)` or give an `env_task_fn`: tasks are "
            "saved, and set again wherever an env is made. See docs/curriculum.md."
        )

    def ping(self) -> str:
        """Answers "pong"."""
        return "pong"

    def assert_healthy(self) -> None:
        """Does nothing: a runner that exists is healthy.

        It has its env and its module, or else its constructor would have raised.
        """

    @abc.abstractmethod
    def stop(self) -> None:
        """Closes the sub-envs. Idempotent."""


# ---- global worker
#
# The env runner of this process, for code that is not given one: envs, networks, old callbacks.


class _Process:
    """The runners of this process; global because it is asked from anywhere.

    Attributes:
        runners: in the order in which they were made, without those that were stopped.
        at_work: those that are at work, the innermost last.
    """

    runners: tuple[weakref.ref[EnvRunner], ...] = ()
    at_work: tuple[EnvRunner, ...] = ()


def get_global_worker() -> EnvRunner | None:
    """The env runner of this process; RLlib's name.

    In the main process there may be several, for training and for evaluation. In callbacks and envs
    it is the one that is at work; else the one that was made last and was not stopped.

    Returns:
        None where there is no runner.
    """
    if _Process.at_work:
        return _Process.at_work[-1]
    living = [runner for ref in _Process.runners if (runner := ref()) is not None]
    return living[-1] if living else None


class AtWork:
    """The block of `at_work`."""

    __slots__ = ("_runner",)

    def __init__(self, runner: EnvRunner) -> None:
        """The block has not begun.

        Args:
            runner: is the one of the process while the block lasts.
        """
        self._runner = runner

    def __enter__(self) -> None:
        _Process.at_work = (*_Process.at_work, self._runner)

    def __exit__(self, *_: object) -> None:
        if _Process.at_work[-1] is self._runner:
            _Process.at_work = _Process.at_work[:-1]
            return
        # Calls of several runners may overlap, each in a thread of its own.
        innermost_first = list(reversed(_Process.at_work))
        innermost_first.remove(self._runner)
        _Process.at_work = tuple(reversed(innermost_first))


def at_work(runner: EnvRunner) -> AtWork:
    """In the block, this runner is the one of the process."""
    return AtWork(runner)


def note_made(runner: EnvRunner) -> None:
    """From now on it is the runner of this process, until another one is made or it is stopped."""
    note_stopped(runner)
    _Process.runners = (*_Process.runners, weakref.ref(runner))


def note_stopped(runner: EnvRunner) -> None:
    """It is a runner of this process no more."""
    _Process.runners = tuple(ref for ref in _Process.runners if ref() not in (None, runner))


# ---- direct runners
#
# Env runners that users make without an algorithm, from a config: RLlib's way to try them out.
#
#     runner = SingleAgentEnvRunner(config=PPOConfig().environment("CartPole-v1"))
#     group = EnvRunnerGroup(config=PPOConfig().environment("CartPole-v1"))


@dataclass(frozen=True)
class DirectRunners:
    """What a config says about its env runners.

    Attributes:
        spec: of any of them.
        num_env_runners: processes, ≥ 0.
        policy: what to do about failures.
        stall_limit_s: see `EnvRunnerGroup`.
        start_limit_s: likewise.
    """

    spec: EnvRunnerSpec
    num_env_runners: int
    policy: RestartPolicy
    stall_limit_s: float | None
    start_limit_s: float | None

    @classmethod
    def of(cls, config: Any, rllib_arguments: Mapping[str, Any]) -> DirectRunners:
        """What a config and RLlib's further arguments ask for.

        Args:
            config: an `AlgorithmConfig`; it is checked, and not changed.
            rllib_arguments: those of RLlib's constructors, by name.

        Raises:
            ConfigError: it is no config, or wrong, or an argument asks for what is not offered.
        """
        make = getattr(config, "direct_runners", None)
        if make is None:
            raise ConfigError(
                f"An env runner was to be made from config={config!r:.80}; expected a config, such "
                'as PPOConfig().environment("CartPole-v1").'
            )
        _refuse_what_is_not_offered(rllib_arguments)
        creator: Callable[[Any], Any] | None = rllib_arguments.get("env_creator")
        if creator is not None:
            config = config.copy(copy_frozen=False).environment(env=creator)
        runners: DirectRunners = config.direct_runners()
        if rllib_arguments.get("num_env_runners") is not None:
            runners = replace(runners, num_env_runners=int(rllib_arguments["num_env_runners"]))
        return runners

    def at(self, worker_index: int, num_workers: int | None) -> EnvRunnerSpec:
        """The spec of one runner that stands alone.

        Args:
            worker_index: which of them it is to be.
            num_workers: of how many; None as configured.
        """
        number = self.num_env_runners if num_workers is None else num_workers
        return self.spec.at_place(worker_index, max(number, worker_index))


_NO_EFFECT: Final = frozenset(
    {
        *("num_env_runners", "num_rollout_workers", "num_workers", "worker_index"),
        *("local_env_runner", "recreated_worker", "setup", "spaces", "env_creator", "env_context"),
        *("dataset_shards", "disable_env_checking", "log_dir", "logdir", "tune_trial_id"),
    }
)
_POLICIES: Final = (
    "Policies are networks here: give an own `RLModule` with "
    "`config.rl_module(rl_module_spec=RLModuleSpec(module_class=…))`."
)
_ADVICE: Final = {
    "default_policy_class": _POLICIES,
    "policy_spec": _POLICIES,
    "validate_env": "Check the env where it is made, in its creator.",
}


def _refuse_what_is_not_offered(arguments: Mapping[str, Any]) -> None:
    for name, value in arguments.items():
        if value is None or name in _NO_EFFECT:
            continue
        advice = _ADVICE.get(name, f"There are {', '.join(sorted(_NO_EFFECT | _ADVICE.keys()))}.")
        raise ConfigError(f"`{name}={value!r:.80}` is not offered for env runners. {advice}")
