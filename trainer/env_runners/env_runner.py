"""The life of an env runner: is made, is brought up to date, answers, ends.

`answer` is pure: it depends on the runner's position, its weights and the request, on nothing else.
A runner that dies is made again from the same values and gives the same answer.

There are two kinds, for one agent (`single_agent_env_runner`) and for several
(`multi_agent_env_runner`). Each makes its own envs, modules and player; neither knows the other.
"""

from __future__ import annotations

import abc
import contextlib
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

import gymnasium

from callbacks import CallbackChain
from checkpoints import Checkpointable, HasState, check_shape
from checkpoints.components import naming_component
from trainer.connectors import ConnectedLayer, ConnectorFactories
from trainer.env_runners.episode_player import EpisodePlayer, chunks_until_end
from trainer.env_runners.messages import (
    MAKING,
    NOTHING,
    ActivityNotes,
    EnvRunnerSpec,
    PlayCounts,
    SampleReply,
    SampleRequest,
    SlotPosition,
    Sync,
    Weights,
    share_out,
)
from trainer.env_runners.policy_mapping import PolicyMapping
from trainer.env_runners.trajectories import SAMPLE_EVENT, fire_sample_end
from trainer.envs import VectorEnv
from trainer.envs.multi_agent_env import EnvAgents
from trainer.envs.tasks import TaskInForce
from trainer.episodes.episode_block import TravellingEpisodes
from trainer.errors import ConfigError, EnvError, TrainerError
from trainer.metrics import EpisodeRecord, MetricsLogger
from trainer.modules import ByModule, ModuleTable, RLModule, RLModuleSpec
from trainer.old_names import OLD_NAMES
from trainer.runtime.engine import Signals
from trainer.runtime.restart_policy import RestartPolicy
from trainer.runtime.threads import single_threaded_blas, sparing_old_objects
from trainer.types import AgentId, Array, ModuleId, State
from trainer_toolkit.arguments import argument_error, takes
from trainer_toolkit.checks import COUNT, boolean, fields, integer, optional
from trainer_toolkit.nearest_names import did_you_mean

# ---- config view


class ConfigView(Mapping[str, Any]):
    """Settings by attribute (`config.in_evaluation`) and by key (`config["gamma"]`), read-only."""

    __slots__ = ("_settings",)

    def __init__(self, settings: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_settings", dict(settings))

    @property
    def in_evaluation(self) -> bool:
        """Whether the runner that holds it plays evaluation episodes."""
        # Declared, since `isinstance(config, callbacks.ConfigView)` asks the class for it.
        return bool(self.__getattr__("in_evaluation"))

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


# ---- global worker


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
    """A block in which a runner is the one of the process."""

    __slots__ = ("_runner",)

    def __init__(self, runner: EnvRunner) -> None:
        """The block has not begun."""
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
    """

    spec: EnvRunnerSpec
    num_env_runners: int
    policy: RestartPolicy

    @classmethod
    def of(cls, config: Any, rllib_arguments: Mapping[str, Any]) -> DirectRunners:
        """What a config and RLlib's further arguments ask for.

        The config is checked, and not changed; RLlib's arguments are those of its constructors, by
        name.

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
        """The spec of one runner that stands alone."""
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


# ---- env runner

_OWN = "env_runner"
"""The component with what a runner remembers besides its parts."""


_LONG: Final = 256
"""Env steps of a request that are worth sparing old objects."""
_AS_IT_IS: Final = contextlib.nullcontext()


def _is_long(request: SampleRequest) -> bool:
    """Whether a request is for so many steps, or for episodes, which may have any number."""
    steps = [None if slot.whole_episodes else slot.num_steps for slot in request.assignments]
    return sum(_LONG if number is None else number for number in steps) >= _LONG


class EnvRunner(Checkpointable, abc.ABC):
    """Steps its sub-envs side by side with its modules' actions, and hands out episodes.

    Life: `__init__` (envs, modules, `sync`), then `synchronize` and `answer` in turn, `stop` at the
    end.

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
        agents: all possible agents and their spaces; None where there is a single one.
        mapping: with several agents: says which module acts for which.
        has_played: whether it played since its positions were last taken.
        first_tasks: of its sub-envs as they were made; None if they cannot be given tasks.
        first_env_states: likewise; None where there is none before the first reset.
    """

    spec: EnvRunnerSpec
    config: ConfigView
    env: VectorEnv
    module: RLModule
    modules: ByModule[RLModule]
    metrics: MetricsLogger
    callbacks: CallbackChain
    weights_version: int

    agents: EnvAgents | None = None
    mapping: PolicyMapping | None = None

    def __init__(
        self,
        spec: EnvRunnerSpec | None = None,
        *,
        config: Any = None,
        worker_index: int = 0,
        num_workers: int | None = None,
        sync: Sync | None = None,
        is_recreated: bool = False,
        signals: Signals | None = None,
        **rllib_arguments: Any,
    ) -> None:
        """Makes envs and module and brings them to the given position.

        Args:
            spec: what to make; None makes what a config asks for.
            config: an `AlgorithmConfig`, instead of a spec: for a runner of the user's own, which
                lives in this process, apart from any algorithm.
            worker_index: with a config: the number of the runner.
            num_workers: with a config: the number of runners; None as configured.
            sync: policy, positions and callback state to start from; None begins anew.
            is_recreated: whether it replaces a runner that failed.
            signals: shared with the main process: progress is shown there, and the end told.
            rllib_arguments: further arguments of RLlib's, with a config.

        Raises:
            ConfigError: the config is wrong.
            EnvCreationError, EnvContractError: an env could not be made or breaks the contract.
        """
        if spec is None:
            runners = DirectRunners.of(config, rllib_arguments)
            spec = runners.at(worker_index, num_workers)
        self.spec = spec
        self.config = ConfigView({**spec.config, "worker_index": spec.worker_index})
        self.metrics = MetricsLogger()
        self.callbacks = CallbackChain(spec.callbacks, where=f"env runner {spec.worker_index}")
        self._hears_samples = self.callbacks.listens_to(SAMPLE_EVENT)
        self.weights_version = self._timestep = 0
        self.has_played = False
        self._signals = signals
        self._lost: dict[int, int] = {}
        self._is_playing = False
        self._unannounced = () if sync is None else sync.new_modules
        ActivityNotes(signals).doing(MAKING)
        with AtWork(self):
            self._make_parts(is_recreated=is_recreated)
            self.first_tasks = self._tasks()
            self.first_env_states = tuple(slot.env_state_as_made for slot in self._player.slots)
            self._take_over(sync or Sync())
        note_made(self)

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

    # ---- what each kind does its own way

    _player: EpisodePlayer

    @abc.abstractmethod
    def _make_parts(self, *, is_recreated: bool) -> None:
        """Makes envs, modules and player."""

    @property
    @abc.abstractmethod
    def module_specs(self) -> ByModule[RLModuleSpec]:
        """What its modules were made from, with the spaces of its envs filled in."""

    @abc.abstractmethod
    def connected(
        self, env: gymnasium.Env[Any, Any], connectors: ConnectorFactories
    ) -> ConnectedLayer:
        """A sub-env with new connector pieces beside it."""

    @abc.abstractmethod
    def _take_table(self, table: ModuleTable, new_modules: Collection[ModuleId]) -> None:
        """Goes on with these modules; those that are new are made anew."""

    @abc.abstractmethod
    def explain(self, error: Exception, episodes: Sequence[Any]) -> None:
        """Raises what is behind an error of an env, if its running episodes show it."""

    @abc.abstractmethod
    def _check_finite(self, episodes: list[Any]) -> None:
        """Raises an EnvContractError if an observation or a reward is NaN or infinite."""

    @property
    def agent_ids(self) -> tuple[AgentId, ...] | None:
        """All possible agents; None where there is a single one."""
        return None if self.agents is None else self.agents.ids

    # ---- being brought up to date

    def synchronize(self, sync: Sync) -> None:
        """Takes over what `sync` holds; running episodes are played again up to their positions.

        New positions mean that whatever was played and logged after the last answer never happened.
        """
        if sync.positions is not None:
            self._player.replace_envs_that_cannot_go_back(sync.positions)
            self._player.forget_unreported()
            self._player.repair.take_report()
            self._player.take_times()
            self.metrics.drain()
            self.has_played = False
        with AtWork(self):
            self._take_over(sync)
            for id_ in sync.new_modules:  # with a request: what they log belongs to its answer
                self._announce_module(id_)

    def _take_over(self, sync: Sync) -> None:
        policy = sync.policy
        if policy.table is not None:
            self._take_table(policy.table, sync.new_modules)
        if policy.weights is not None:
            self.weights_version = policy.weights.version
            self._take_weights(policy.weights)
            self._timestep = policy.weights.timestep
            if self.spec.in_evaluation:
                self._begin_episodes_from(policy.weights.connectors)
        if policy.normalization is not None:
            self._player.normalize_with(policy.normalization)
        self._player.evaluation = sync.evaluation
        if sync.callbacks is not None:
            self.callbacks.set_state(sync.callbacks)
        if sync.positions is not None:
            self._player.tick()  # it is made: a reset or step that hangs has the limit of sampling
            for slot, position in zip(self._player.slots, sync.positions, strict=True):
                if not self._player.put_back(slot, position):
                    self._lost[slot.index] = position.num_steps
            self._player.activity.doing(NOTHING)
        if sync.tasks is not None:
            for slot, change in zip(self._player.slots, sync.tasks, strict=True):
                if change is not None:
                    slot.set_task(change.task)

    def _announce_module(self, module_id: ModuleId) -> None:
        policy = self.modules[module_id]
        self.callbacks.fire("on_create_policy", policy_id=module_id, policy=policy)

    def _take_weights(self, weights: Weights) -> None:
        for id_, own in weights.modules.items():
            self.modules[id_].set_state(dict(own.state))
            self._player.set_exploration(id_, own.exploration)

    def _begin_episodes_from(self, connectors: State | None) -> None:
        for slot in self._player.slots:
            if slot.connected is not None:
                slot.connected.begin_every_episode_from(connectors)

    def _tasks(self) -> tuple[TaskInForce, ...] | None:
        slots = self._player.slots
        tasks = [slot.tasks.in_force[-1] for slot in slots if slot.tasks is not None]
        return tuple(tasks) if len(tasks) == len(slots) else None

    def notice_tasks(self) -> bool:
        """Notes which tasks were set from outside; whether there were any."""
        before = [slot.tasks and slot.tasks.in_force for slot in self._player.slots]
        self._player.notice_tasks()
        return any(
            slot.tasks is not None and slot.tasks.in_force is not seen
            for slot, seen in zip(self._player.slots, before, strict=True)
        )

    def take_lost(self) -> dict[int, int]:
        """Sub-envs (index → steps) whose episode could not be put back, since last asked."""
        lost, self._lost = self._lost, {}
        return lost

    # ---- sampling

    @takes(
        num_timesteps=optional(integer()),
        num_episodes=optional(integer()),
        explore=optional(boolean()),
        random_actions=boolean(),
        force_reset=boolean(),
    )
    def sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool | None = None,
        random_actions: bool = False,
        force_reset: bool = False,
    ) -> list[Any]:
        """Plays and returns episodes, finished ones and chunks of running ones.

        With neither number, the configured fragment (or an episode per sub-env) is played; its
        steps are counted as `multi_agent(count_steps_by=…)` says.

        Args:
            num_timesteps: exactly so many env steps over all sub-envs; running episodes go on.
            num_episodes: exactly so many whole episodes: running ones are given up first, and the
                first n that start count.
            explore: draw actions; None means as configured.
            random_actions: draw actions uniformly from the action space, without the module.
            force_reset: give up running episodes first.

        Raises:
            ConfigError: both numbers are given, or one is negative.
        """
        if num_timesteps is not None and num_episodes is not None:
            raise ConfigError(
                f"sample(num_timesteps={num_timesteps}, num_episodes={num_episodes}): how much to "
                "play is given twice. Give one of the two."
            )
        unit = "num_env_steps" if num_episodes is None else "num_episodes"
        if num_timesteps is None and num_episodes is None:
            if self.config.batch_mode == "complete_episodes":
                num_episodes, unit = self.num_envs, "num_episodes"
            else:
                num_timesteps = self.config.rollout_fragment_length * self.num_envs
                if self.agents is not None and self.config.count_steps_by == "agent_steps":
                    unit = "num_agent_steps"
        total = num_timesteps if num_episodes is None else num_episodes
        if total is None or total < 0:
            raise ConfigError(f"sample() was asked to play {total}; expected a number from 0 on.")
        # Afterwards no episode runs, so that whatever is sampled next begins with a reset as well.
        is_forced = force_reset or num_episodes is not None
        assignments = tuple(
            replace(slot, **dict[str, Any]({unit: share}))
            for slot, share in zip(
                self._player.own_assignments(), share_out(total, self.num_envs), strict=True
            )
        )
        return self._play(
            SampleRequest(assignments, explore, random_actions, is_forced, self._timestep)
        )

    def answer(self, request: SampleRequest) -> SampleReply:
        """Plays what is asked and returns all that changed, for the main process to commit."""
        if request.steps_per_chunk is None:
            episodes = self._play(request)
        else:
            episodes = []
            for chunk in chunks_until_end(request, num_envs=self.num_envs, signals=self._signals):
                self._play(chunk)
        player, lost, restarts = self._player, self.take_lost(), self._player.repair.take_report()
        reply = SampleReply(
            episodes=TravellingEpisodes(episodes) if request.returns_episodes else (),
            records=tuple(player.finished.records),
            numbers=tuple(player.finished.numbers),
            metrics=self.metrics.drain(),
            positions=self.take_positions(),
            callbacks=self.callbacks.get_state() if self.callbacks.has_state() else None,
            counts=PlayCounts(
                num_env_steps=player.num_env_steps,
                num_episodes=len(player.finished.records),
                num_episodes_lost=len(lost) + restarts.num_episodes_lost,
                num_env_steps_lost=sum(lost.values()) + restarts.num_env_steps_lost,
                **player.steps_by_id(),
                num_sub_env_restarts=restarts.count,
                repair_s=restarts.repair_s,
                times=player.take_times(),
            ),
            weights_version=self.weights_version,
            table_version=self.spec.table.version,
            mapping_fingerprint="" if self.mapping is None else self.mapping.fingerprint,
            restarts=restarts,
        )
        player.forget_unreported()
        return reply

    def take_records(self) -> list[EpisodeRecord]:
        """The episodes that ended since the last answer; they are left out of the next one."""
        records = self._player.finished.records
        self._player.forget_unreported()
        return records

    def get_metrics(self) -> dict[str, Any]:
        """What was logged since it was last taken, and the statistics of episodes ended since then.

        For functions given to `foreach_env_runner`, after `sample()`: the main process adds it up
        with `algorithm.metrics.aggregate(list_of_these, key=("evaluation", "env_runners"))`. What
        was logged is reported nowhere else; the episodes are, as usual.
        """
        for record in self._player.finished.take_new():
            self.metrics.log_value("episode_return_mean", record.episode_return)
            self.metrics.log_value("episode_len_mean", record.length)
            self.metrics.log_value("num_episodes", 1, reduce="sum", clear_on_reduce=True)
            self.metrics.log_value("num_env_steps_sampled_lifetime", record.length, reduce="sum")
        return self.metrics.drain()

    def take_positions(self) -> tuple[SlotPosition, ...]:
        """Where the slots stand, in relation to the positions taken before."""
        self.has_played = False
        return tuple(slot.take_position() for slot in self._player.slots)

    def _play(self, request: SampleRequest) -> list[Any]:
        if self._is_playing:
            raise TrainerError(
                "sample() of an env runner was called by a callback while the same runner plays; "
                "its sub-envs stand in the middle of a step. Leave a note in the callback, and "
                "sample between two iterations: env_runner_group.foreach_env_runner(lambda runner: "
                "runner.sample(…)). Or play in an env of your own."
            )
        self._is_playing = True
        try:
            # One BLAS thread, also when users call `sample`: a check of large columns would wake
            # others, which cost more than they compute.
            with AtWork(self), single_threaded_blas():
                return self._play_at_work(request)
        finally:
            self._is_playing = False

    def _play_at_work(self, request: SampleRequest) -> list[Any]:
        self.has_played = True
        spec, player = self.spec, self._player
        try:
            with sparing_old_objects() if _is_long(request) else _AS_IT_IS:
                episodes = player.play(request)
        except Exception as error:
            if spec.checks_env:
                running = [slot.episode for slot in player.slots if slot.episode is not None]
                self.explain(error, running)
            raise
        if spec.checks_env:
            self._check_finite(episodes)
        for with_old_names in OLD_NAMES.samples:
            episodes = with_old_names(episodes)
        if self._hears_samples:
            player.activity.doing(SAMPLE_EVENT)
            with player.timing_callbacks():
                fire_sample_end(
                    self,
                    episodes,
                    slots=player.slots,
                    note_rewrites=player.finished.note_rewrites,
                    kind=player.episode_class,
                    chunks_of=player.chunks_of,
                )
        player.notice_tasks()
        return episodes

    # ---- what users ask for

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"A {type(self).__name__} cannot be copied or pickled: it owns envs in the middle of "
            "episodes. Take what you need of it, such as get_state(), get_weights() or "
            "get_metrics()."
        )

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
        super().check_state(state)
        if _OWN in state:
            with naming_component(_OWN):
                check_shape(state[_OWN], fields({"weights_version": COUNT}))

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

    # ---- telling, ending

    def env_seed(self, env_index: int) -> int | None:
        """What `env.reset(seed=…)` was given for a sub-env's running episode; None if none runs."""
        slots = self._player.slots
        if not -len(slots) <= env_index < len(slots):
            expected = f"the index of a sub-env, below {len(slots)}"
            raise argument_error("env_seed()", "env_index", env_index, expected)
        return slots[env_index].env_seed

    def failure_context(self) -> dict[str, Any]:
        """Where an error happened: what a user needs to play that episode again."""
        return {"env runner": self.worker_index, **self._player.failure_context()}

    def stop(self) -> None:
        """Closes the sub-envs. Idempotent."""
        note_stopped(self)
        self.env.close()
