"""The life of an env runner: is made, is brought up to date, answers, ends.

`answer` is pure: it depends on the runner's position, its weights and the request, on nothing else.
A runner that dies is made again from the same values and gives the same answer.

There are two kinds, for one agent (`single_agent_env_runner`) and for several
(`multi_agent_env_runner`). Each makes its own envs, modules and player; neither knows the other.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final

import gymnasium

from callbacks import CallbackChain
from checkpoints.arguments import argument_error, checked_methods, integer, takes
from trainer.connectors import ConnectedLayer, ConnectorFactories
from trainer.env_runners.env_runner import (
    ConfigView,
    DirectRunners,
    EnvRunner,
    at_work,
    note_made,
    note_stopped,
)
from trainer.env_runners.episode_player import EpisodePlayer, chunks_until_told
from trainer.env_runners.messages import (
    MAKING,
    NOTHING,
    ActivityNotes,
    EnvRunnerSpec,
    SampleReply,
    SampleRequest,
    SlotPosition,
    Sync,
    Weights,
    share_out,
)
from trainer.env_runners.policy_mapping import PolicyMapping
from trainer.env_runners.trajectories import SAMPLE_EVENT
from trainer.envs.multi_agent_env import EnvAgents
from trainer.envs.tasks import TaskInForce
from trainer.errors import ConfigError
from trainer.metrics import EpisodeRecord, MetricsLogger
from trainer.modules import ByModule, ModuleTable, RLModuleSpec
from trainer.runtime.engine import Signals
from trainer.runtime.threads import single_threaded_blas, sparing_old_objects
from trainer.types import AgentId, ModuleId, State

_LONG: Final = 256
"""Env steps of a request that are worth sparing old objects."""
_AS_IT_IS: Final = contextlib.nullcontext()


def _is_long(request: SampleRequest) -> bool:
    """Whether a request is for so many steps, or for episodes, which may have any number."""
    steps = [None if slot.whole_episodes else slot.num_steps for slot in request.assignments]
    return sum(_LONG if number is None else number for number in steps) >= _LONG


@checked_methods()
class PlayingEnvRunner(EnvRunner):
    """Steps its sub-envs side by side and hands out episodes.

    Life: `__init__` (envs, modules, `sync`), then `synchronize` and `answer` in turn, `stop` at the
    end.

    Attributes:
        agents: all possible agents and their spaces; None where there is a single one.
        mapping: with several agents: says which module acts for which.
        has_played: whether it played since its positions were last taken.
        first_tasks: of its sub-envs as they were made; None if they cannot be given tasks.
    """

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
            sync: weights, positions and callback state to start from; None begins anew.
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
        self._made_metrics: Any = None
        self._untold = () if sync is None else sync.new_modules
        ActivityNotes(signals).doing(MAKING)
        with at_work(self):
            self._make_parts(is_recreated=is_recreated)
            self.first_tasks = self._tasks()
            if self._untold:  # what is logged of these belongs to the next answer
                self._made_metrics = self.metrics.drain()
            self._take_over(sync or Sync())
        note_made(self)

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
        """Refuses numbers that cannot be learnt from.

        Raises:
            EnvContractError: an observation or a reward is NaN or infinite.
        """

    @abc.abstractmethod
    def _fire_sample_end(self, episodes: list[Any]) -> None:
        """Shows the sample to callbacks, which may change it."""

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
            self._player.forget_unreported()
            self._player.repair.take_report()
            self._player.take_times()
            self.metrics.drain()
        with at_work(self):
            self._take_over(sync)

    def _take_over(self, sync: Sync) -> None:
        if sync.table is not None:
            self._take_table(sync.table, sync.new_modules)
        if sync.weights is not None:
            self.weights_version = sync.weights.version
            self._take_weights(sync.weights)
            self._timestep = sync.weights.timestep
            if self.spec.in_evaluation:
                self._begin_episodes_from(sync.weights.connectors)
        if sync.normalization is not None:
            self._player.normalize_with(sync.normalization)
        self._player.evaluation = sync.evaluation
        if sync.callbacks is not None:
            self.callbacks.set_state(sync.callbacks)
        for id_ in sync.new_modules:
            self._tell_of_module(id_)
        if sync.positions is not None:
            for slot, position in zip(self._player.slots, sync.positions, strict=True):
                if not self._player.put_back(slot, position):
                    self._lost[slot.index] = position.num_steps
            self._player.activity.doing(NOTHING)
        if sync.tasks is not None:
            for slot, change in zip(self._player.slots, sync.tasks, strict=True):
                if change is not None:
                    slot.set_task(change.task)

    def _tell_of_module(self, module_id: ModuleId) -> None:
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

    def take_made_metrics(self) -> Any:
        """What was logged while the runner was made."""
        made, self._made_metrics = self._made_metrics, None
        return self.metrics.drain() if made is None else made

    def take_lost(self) -> dict[int, int]:
        """Sub-envs (index → steps) whose episode could not be put back, since last asked."""
        lost, self._lost = self._lost, {}
        return lost

    # ---- sampling

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
            for chunk in chunks_until_told(request, num_envs=self.num_envs, signals=self._signals):
                self._play(chunk)
        player, lost, restarts = self._player, self.take_lost(), self._player.repair.take_report()
        reply = SampleReply(
            episodes=tuple(episodes) if request.returns_episodes else (),
            records=tuple(player.finished.records),
            numbers=tuple(player.finished.numbers),
            metrics=self.metrics.drain(),
            positions=self.take_positions(),
            callbacks=self.callbacks.get_state() if self.callbacks.has_state() else None,
            num_env_steps=player.num_env_steps,
            **player.steps_by_id(),
            weights_version=self.weights_version,
            table_version=self.spec.table.version,
            mapping_fingerprint="" if self.mapping is None else self.mapping.fingerprint,
            num_episodes_lost=len(lost) + restarts.num_episodes_lost,
            num_env_steps_lost=sum(lost.values()) + restarts.num_env_steps_lost,
            restarts=restarts,
            times=player.take_times(),
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
        return self.metrics.drain()

    def take_positions(self) -> tuple[SlotPosition, ...]:
        """Where the slots stand, in relation to the positions taken before."""
        self.has_played = False
        return tuple(slot.take_position() for slot in self._player.slots)

    def _play(self, request: SampleRequest) -> list[Any]:
        # One BLAS thread, also when users call `sample`: a check of large columns would wake
        # others, which cost more than they compute.
        with at_work(self), single_threaded_blas():
            return self._play_at_work(request)

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
        if self._hears_samples:
            player.activity.doing(SAMPLE_EVENT)
            with player.timing_callbacks():
                self._fire_sample_end(episodes)
        player.notice_tasks()
        return episodes

    # ---- telling, ending

    @takes(env_index=integer(-(2**31), 2**31))
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
