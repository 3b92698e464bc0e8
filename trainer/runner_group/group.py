"""The env runners of one purpose: asks them, commits their answers, keeps them alive.

    group.start()                           every runner is made; a wrong env shows here
    sample = group.sample_env_steps(2048)   one request to each; repaired until all have answered
    group.set_weights(weights)              sent along with the next request of each runner
    group.foreach_env_runner(function)      the user's own code in every runner
    group.stop()

With no remote runners, the one local runner lives in the main process and runs the same program.

What there is in a group of env runners, and what of it is well.

What is done to the runners of a group as a whole: other weights, another seed, more runners.

Requests in which something failed: kept for later, and played again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from checkpoints.arguments import checked_methods, integer, takes
from trainer.connectors import Normalization
from trainer.env_runners.direct_runners import DirectRunners
from trainer.env_runners.messages import (
    Assignment,
    EnvRunnerSpec,
    SampleReply,
    SampleRequest,
    SlotPosition,
    Weights,
    share_out,
)
from trainer.env_runners.single_agent_env_runner import SingleAgentEnvRunner
from trainer.errors import AlgorithmStoppedError, ConfigError, RunnerLostError, TrainerError
from trainer.rllib_names.env_runner_group_names import EnvRunnerGroupNames
from trainer.runner_group.crash_files import CrashFiles, replay
from trainer.runner_group.parts import AsyncCalls, GroupParts
from trainer.runner_group.plays import GroupSample, TicketPlay
from trainer.runner_group.records import RunnerPlace
from trainer.runner_group.rounds import (
    Ask,
    LocalRound,
    OnRecreated,
    RequestRound,
    Round,
    RoundResult,
)
from trainer.runner_group.slot_states import GroupState
from trainer.runner_group.tasks import GroupTasks
from trainer.runner_group.user_calls import GroupAsyncCalls, GroupFunctions, OnMetrics
from trainer.runtime.restart_policy import RestartPolicy
from trainer.runtime.worker_pool import WorkerPool
from trainer.types import DEFAULT_MODULE_ID, State

# ---- group health


class GroupHealth(GroupParts):
    """Adds the questions about its runners to a group."""

    @property
    def local_env_runner(self) -> SingleAgentEnvRunner | None:
        """The runner of the main process; None if the runners are remote, or were stopped.

        It holds the newest weights and positions: what it would get with the next request, such as
        a restored state, it gets here. A runner that a restore closed is made anew.
        """
        place = self._places.get(0)
        if place is None:
            return None
        if place.lacks_something(self._weights) and not self._is_stopped:
            self._bring_up_to_date([0])
        return place.runner

    def healthy_env_runner_ids(self) -> list[int]:
        """Numbers of the runners that can be asked; 0 is the local one."""
        return [index for index, place in self._places.items() if not place.is_given_up]

    def _healthy_or_raise(self) -> list[int]:
        indices = self.healthy_env_runner_ids()
        if not indices:
            first = next(iter(self._places.values()))
            what = "evaluation env runners" if first.spec.in_evaluation else "env runners"
            raise RunnerLostError(
                f"All {len(self._places)} {what} failed and may not be replaced, so there is "
                "nobody left to play. The log has the failures. Correct the env, or let runners "
                "be replaced: config.fault_tolerance(restart_failed_env_runners=True)."
            )
        return indices

    def num_remote_env_runners(self) -> int:
        """How many remote runners there are, healthy or not."""
        return len(self._places) if self._pool is not None else 0

    def num_healthy_env_runners(self) -> int:
        """How many runners can be asked, the local one included."""
        return len(self.healthy_env_runner_ids())

    def num_healthy_remote_workers(self) -> int:
        """How many remote runners can be asked."""
        return len(self.healthy_env_runner_ids()) if self._pool is not None else 0

    def num_remote_worker_restarts(self) -> int:
        """How many remote runners were replaced so far."""
        return self.num_restarts

    def num_sub_environment_restarts(self) -> int:
        """How many sub-envs were made anew alone so far (`restart_failed_sub_environments`)."""
        return self.num_sub_env_restarts

    @property
    def env_name(self) -> str:
        """What messages call the env."""
        return next(iter(self._places.values())).spec.env_factory.name

    def env_runner_pids(self) -> dict[int, int]:
        """Process ids of the remote runners that have a process, by number."""
        slots = self._pool.slots if self._pool is not None else {}
        pids = {index: slot.pid for index, slot in slots.items()}
        return {index: pid for index, pid in pids.items() if pid is not None}

    def is_policy_to_train(self, policy_id: str = DEFAULT_MODULE_ID, batch: object = None) -> bool:
        """Whether the module of that id learns: the one that there is does."""
        del batch
        return policy_id == DEFAULT_MODULE_ID

    def kill(self) -> None:
        """Ends all processes at once; like `stop`, but no env is closed."""
        self._is_stopped = True
        if self._pool is not None:
            self._pool.kill()


# ---- group upkeep

_MOST_WORKERS: Final = 4096
"""More processes than any machine runs."""


class GroupUpkeep(GroupParts):
    """Adds what changes runners as a whole to a group."""

    def set_weights(self, weights: Weights) -> None:
        """Gives every runner new weights, with the next thing it is asked."""
        if isinstance(self._open, AsyncCalls):
            self._finish_open()  # calls to come would have those that these began with
        self._weights = weights

    def has_weights(self, weights: Weights) -> bool:
        """Whether runners have the same numbers, or get them with the next thing they are asked."""
        known = {} if self._weights is None else self._weights.state
        return known.keys() == weights.state.keys() and all(
            np.array_equal(known[name], array) for name, array in weights.state.items()
        )

    def connector_state(self) -> State | None:
        """What the connector pieces of the first slot remember; None for nothing."""
        return self._places[min(self._places)].positions[0].connectors

    def set_normalization(self, normalization: Normalization) -> None:
        """Says what is done to observations and rewards from the next request on.

        Within one request it never changes, so that it makes no difference how slots are spread.
        """
        for place in self._places.values():
            place.normalization = normalization

    def sync_weights(
        self,
        policies: Collection[str] | None = None,
        from_worker_or_learner_group: Any = None,
        to_worker_indices: Collection[int] | None = None,
        **_: Any,
    ) -> None:
        """Brings runners up to the group's weights at once.

        Training does so by itself: every request brings the newest weights along. This undoes what
        `env_runner.set_weights` changed in a runner, or gives other weights to all.

        Args:
            policies: ids of modules; there is one.
            from_worker_or_learner_group: a learner, runner or module whose weights to take; None
                sends those that the group holds. The next training step sends the learner's again.
            to_worker_indices: numbers of the runners; None is all of them.
            _: RLlib's further arguments, which mean nothing here.

        Raises:
            ConfigError: there is no such module, or nothing to take weights from.
        """
        if policies is not None and DEFAULT_MODULE_ID not in policies:
            raise ConfigError(
                f"sync_weights(policies={list(policies)!r}): there is only {DEFAULT_MODULE_ID!r}."
            )
        if from_worker_or_learner_group is not None:
            self._finish_open()
            self.set_weights(self._weights_of(from_worker_or_learner_group))
        indices = self._places if to_worker_indices is None else to_worker_indices
        chosen = [index for index in indices if index in self._places]
        for index in chosen:
            self._places[index].weights = None
        self._bring_up_to_date(chosen)

    def bring_up_to_date(self) -> None:
        """Lets every runner hold at once what it is to hold: weights, normalisation, positions."""
        self._bring_up_to_date(self._places)

    def _bring_up_to_date(self, indices: Collection[int]) -> None:
        ask = Ask(
            "apply",
            ("ping", {}),
            is_repeatable=False,
            stall_limit_s=self._stall_limit_s,
            limited_by=self._limited_by,
        )
        result = self._run(dict.fromkeys(indices, ask))
        self._commit_applied(result.answers)
        self._tell_recreated()

    def _weights_of(self, source: Any) -> Weights:
        module = getattr(source, "module", source)
        if not hasattr(module, "get_state") or not hasattr(module, "forward_inference"):
            raise ConfigError(
                f"sync_weights() got {source!r:.80}; expected a learner, an env runner or a module."
            )
        before = self._weights or Weights(0, {})
        names = before.state.keys()
        state = module.get_state()
        return replace(before, state={name: state[name] for name in names} if names else state)

    def sync_env_runner_states(self, *_: Any, **__: Any) -> None:
        """Brings runners up to what the main process holds, at once.

        Statistics of connectors are always merged in the main process and sent along with every
        request, so there is nothing to merge.
        """
        self.sync_weights()

    def probe_unhealthy_env_runners(self) -> list[int]:
        """Makes runners again that were given up; returns the numbers of those that came back.

        Raises:
            Exception: what kept one from being made, if failures are not ignored.
        """
        given_up = [index for index, place in self._places.items() if place.is_given_up]
        for index in given_up:
            self._places[index].is_given_up = False
        self._run(dict.fromkeys(given_up))
        self._tell_recreated()
        return [index for index in given_up if not self._places[index].is_given_up]

    @takes(num_workers=integer(maximum=_MOST_WORKERS))
    def add_workers(self, num_workers: int, **_: Any) -> None:
        """Adds runners, as processes; the running episodes of the others go on.

        All runners are made anew, as after a restore into another number of them: episodes that
        begin from now on have other seeds than they would have had.

        Args:
            num_workers: how many, ≥ 0.
            _: RLlib's further arguments, which mean nothing here.

        Raises:
            ConfigError: the number is negative.
            TrainerError: an iteration is under way.
        """
        self._refuse_while_training("add_workers")
        if num_workers < 0:
            raise ConfigError(f"add_workers({num_workers}): expected a number from 0 on.")
        now = len(self._places) if self._pool is not None else 0
        self._make_anew(now + num_workers)

    def reset(self, *_: Any) -> None:
        """Makes all runners anew; their running episodes go on.

        Raises:
            TrainerError: an iteration is under way.
        """
        self._refuse_while_training("reset")
        self._make_anew(len(self._places) if self._pool is not None else 0)

    def _refuse_while_training(self, what: str) -> None:
        if self.is_training:
            raise TrainerError(
                f"{what}() was called while train() runs. An iteration that fails is undone, and "
                "processes cannot be. Call it between two calls of train()."
            )

    def _make_anew(self, num_env_runners: int) -> None:
        self._finish_open()
        state, first = self.get_state(), next(iter(self._places.values()))
        normalization, evaluation = first.normalization, first.evaluation
        if self._pool is not None:
            self._pool.stop()
        for place in self._places.values():
            place.stop_runner()
        self._make_places(first.spec, num_env_runners)
        self.set_state(state)
        for place in self._places.values():
            place.normalization, place.evaluation = normalization, evaluation
        self._run(dict.fromkeys(self._places))

    def set_root_seed(self, root_seed: int) -> None:
        """Changes the seed of all randomness; runners with another one are made anew.

        What they are at is ended, and nothing comes of it.
        """
        for index, place in self._places.items():
            if place.spec.root_seed == root_seed:
                continue
            self._abandon_open()
            place.spec = replace(place.spec, root_seed=root_seed)
            place.had_runner = False  # the next one does not replace it: nothing failed
            if self._pool is not None:
                self._pool.slots[index].kill()
            else:
                place.stop_runner()


# ---- group crashes

_LOGGER = logging.getLogger(__name__)


class GroupCrashes(GroupParts):
    """Adds what is kept of failures to a group."""

    _crash_files: CrashFiles

    def _keep_lost(self, place: RunnerPlace, request: SampleRequest, reply: SampleReply) -> None:
        """Keeps a request in which episodes were given up with their sub-env."""
        why = "\n".join(reply.restarts.texts)
        kept = self._crash_files.write(place, self._weights, request, why=why)
        if kept:
            _LOGGER.warning("%s gave episodes up.%s", place.name.capitalize(), kept)

    def replay(self, record: State) -> SampleReply | None:
        """Plays again in this process what a runner of such a group was asked; see `crash_files`.

        The group itself is not touched.
        """
        return replay(record, next(iter(self._places.values())).spec, self.module_spec)


# ---- env runner group

_CLOSING_S: Final = 2.0
_PRELOADED = ("numpy", "gymnasium", "trainer.env_runners.worker_service", "trainer.runtime.worker")


@checked_methods()
class EnvRunnerGroup(
    GroupFunctions,
    GroupAsyncCalls,
    GroupTasks,
    GroupUpkeep,
    GroupCrashes,
    GroupHealth,
    GroupState,
    EnvRunnerGroupNames,
):
    """The env runners of one purpose.

    Attributes:
        num_restarts: runners that were replaced after failures so far.
        num_sub_env_restarts: sub-envs that were made anew alone so far.
        module_spec: what the runners' modules are made from; complete once they were made.
    """

    def __init__(
        self,
        spec: EnvRunnerSpec | None = None,
        *,
        config: Any = None,
        num_env_runners: int | None = None,
        policy: RestartPolicy | None = None,
        stall_limit_s: float | None = None,
        start_limit_s: float | None = None,
        crash_files: CrashFiles | None = None,
        on_recreated: OnRecreated = lambda _: None,
        on_metrics: OnMetrics = lambda _: None,
        setup: bool = True,
        **rllib_arguments: Any,
    ) -> None:
        """Prepares the places; `start` makes the runners.

        Args:
            spec: of any runner; indices and slots are filled in for each. None makes what a config
                asks for.
            config: an `AlgorithmConfig`, instead of a spec and all that follows: for a group of the
                user's own, apart from any algorithm. It is started at once.
            num_env_runners: remote runners, ≥ 0; None with a config: as configured.
            policy: what to do about failures; None replaces runners as by default.
            stall_limit_s: a runner without an env step for so long is replaced; None waits.
            start_limit_s: the same while a runner is made and put to its position.
            crash_files: where requests that failed are kept; None keeps none.
            on_recreated: called after a request with the numbers of the runners that were replaced.
            on_metrics: called with what the functions of `foreach_env_runner` logged.
            setup: with a config: False leaves it to `start()` to make the runners.
            rllib_arguments: further arguments of RLlib's, with a config.

        Raises:
            ConfigError: the config is wrong.
        """
        is_direct = spec is None
        if spec is None:
            rllib_arguments["num_env_runners"] = num_env_runners
            direct = DirectRunners.of(config, rllib_arguments)
            spec, num_env_runners, policy = direct.spec, direct.num_env_runners, direct.policy
            stall_limit_s, start_limit_s = direct.stall_limit_s, direct.start_limit_s
        self.num_restarts = self.num_sub_env_restarts = self.num_recorded = 0
        self.is_training = False
        self._num_episodes_lost = self._num_env_steps_lost = 0
        self._untold_drop = ""
        self._recreated: list[int] = []
        self._records = []
        self._ready = []
        self._told_env_states: set[str] = set()
        self._failed_calls = RoundResult()
        self._open = None
        self._is_stopped = False
        self._crash_files = crash_files or CrashFiles()
        self._on_recreated = on_recreated
        self._on_metrics = on_metrics
        self._policy = policy or RestartPolicy()
        self._stall_limit_s = stall_limit_s
        self._limited_by = (
            "evaluation_sample_timeout_s" if spec.in_evaluation else "sample_timeout_s"
        )
        self._start_limit_s = start_limit_s
        self._weights: Weights | None = None
        self.module_spec = spec.module_spec
        self._make_places(spec, num_env_runners or 0)
        if is_direct and setup:
            self.start()

    def _make_places(self, spec: EnvRunnerSpec, num_env_runners: int) -> None:
        indices = range(1, num_env_runners + 1) if num_env_runners else range(1)
        self._places = {
            index: RunnerPlace(
                spec.at_place(index, num_env_runners), told_env_states=self._told_env_states
            )
            for index in indices
        }
        self._pool = None
        if num_env_runners:
            names = [place.name for place in self._places.values()]
            self._pool = WorkerPool(names, preload_modules=_PRELOADED)

    # ---- life

    def start(self) -> None:
        """Makes every runner and waits until all are there.

        Raises:
            EnvCreationError, EnvContractError: the env could not be made or breaks the contract.
            SerializationError: something of the config cannot be sent to a process.
            RunnerLostError: none came up, and failures are ignored.
        """
        self._run(dict.fromkeys(self._places))
        self._healthy_or_raise()

    def stop(self) -> None:
        """Closes all envs and ends all processes. Idempotent; nobody can be asked afterwards.

        A runner whose envs take longer than 2 s to close, or than the limit for a runner without
        progress if that is shorter, is ended without.
        """
        self._is_stopped = True
        self._abandon_open()
        if self._pool is not None:
            self._pool.stop(grace_s=min(_CLOSING_S, self._stall_limit_s or _CLOSING_S))
        for place in self._places.values():
            place.stop_runner()

    # ---- sampling

    @takes(num_env_steps=integer(0, 2**53))
    def sample_env_steps(
        self, num_env_steps: int, *, whole_episodes: bool = False, **options: Any
    ) -> GroupSample:
        """Plays env steps, shared out over all slots; running episodes go on.

        Args:
            num_env_steps: exactly so many, or with `whole_episodes` at least so many.
            whole_episodes: every slot ends its last episode.
            options: explore, random_actions, force_reset, timestep (see `SampleRequest`).
        """
        shares = share_out(num_env_steps, self.num_slots)
        slots = [
            Assignment(slot, num_env_steps=share, whole_episodes=whole_episodes)
            for slot, share in enumerate(shares)
        ]
        requests = {
            index: SampleRequest(
                tuple(slots[place.spec.first_slot : place.spec.first_slot + place.spec.num_envs]),
                **options,
            )
            for index, place in self._places.items()
        }
        sample = self._sample(requests, max_new_episodes=max(shares))
        self._healthy_or_raise()
        return sample

    def begin_evaluation(self, stream: int) -> None:
        """Says which episodes runners play that are asked to `sample()` by users' functions.

        Args:
            stream: the first half of their positions; see `Assignment`.
        """
        self._finish_open()
        self.take_records()
        self.num_recorded = 0
        for place in self._places.values():
            first = place.spec.first_slot
            numbers = range(first, first + place.spec.num_envs)
            place.positions = tuple(
                SlotPosition(number, tasks=position.task_now)
                for number, position in zip(numbers, place.positions, strict=True)
            )
            place.evaluation, place.is_ahead = stream, True

    def begin_play(
        self,
        tickets: Sequence[Assignment],
        *,
        waits_for_all: bool = True,
        steps_per_chunk: tuple[int, int] | None = None,
    ) -> TicketPlay:
        """Lets the runners play evaluation tickets while the main process does something else.

        Whatever else the group is asked meanwhile waits until the play is over.

        Args:
            tickets: what to play; runner k of n gets the tickets k, k + n, …
            waits_for_all: see `TicketPlay`.
            steps_per_chunk: go on in chunks of so many env steps, least and most, until the play is
                told to end.
        """
        round_ = self._new_round()
        timestep = self._weights.timestep if self._weights is not None else 0
        self._open = TicketPlay(
            round_,
            self._places,
            self._healthy_or_raise,
            self._take_over,
            tickets=tickets,
            request=SampleRequest(
                (),
                force_reset=True,
                timestep=timestep,
                steps_per_chunk=steps_per_chunk,
                returns_episodes=False,
            ),
            stall_limit_s=self._stall_limit_s,
            limited_by=self._limited_by,
            waits_for_all=waits_for_all,
        )
        return self._open

    def is_playing(self, play: TicketPlay) -> bool:
        """Whether the runners were asked for nothing else since this play began."""
        return self._open is play

    def end_play(self, play: TicketPlay) -> GroupSample:
        """What was played by a play that is over."""
        if self._open is play:
            self._open = None
        self._tell_recreated()
        return self._with_losses(play.sample())

    def abandon_play(self, *, but: TicketPlay | None = None) -> None:
        """Ends the play that is under way, if there is one; nothing comes of it.

        Args:
            but: one that may go on.
        """
        if isinstance(self._open, TicketPlay) and self._open is not but:
            self._abandon_open()

    def _sample(
        self,
        requests: Mapping[int, SampleRequest],
        *,
        max_new_episodes: int,
    ) -> GroupSample:
        asks = {
            index: Ask(
                "sample",
                (request,),
                max_new_episodes,
                stall_limit_s=self._stall_limit_s,
                limited_by=self._limited_by,
            )
            for index, request in requests.items()
        }
        result = self._run(asks)
        creation_metrics = []
        replies = [reply for _, reply in sorted(result.answers.items())]
        for index, reply in sorted(result.answers.items()):
            if reply.restarts.num_episodes_lost:
                self._keep_lost(self._places[index], requests[index], reply)
            creation_metrics += self._places[index].take_creation_metrics()
            self._places[index].commit_reply(reply)
        sample = GroupSample.of(replies, repair_s=result.repair_s)
        self._tell_recreated()
        return self._with_losses(replace(sample, metrics=creation_metrics + sample.metrics))

    # ---- rounds

    def _run(self, asks: Mapping[int, Ask | None]) -> RoundResult:
        round_ = self._new_round()
        places = self._places
        result = round_.run(
            {index: ask for index, ask in asks.items() if not places[index].is_given_up}
        )
        self._take_over(result)
        return result

    def _new_round(self) -> Round:
        if self._is_stopped:
            raise AlgorithmStoppedError(
                "The env runners were asked after stop(): they are gone. Build a new algorithm, "
                "or restore one with from_checkpoint()."
            )
        self._finish_open()
        if self._pool is None:
            return LocalRound(self._places, weights=self._weights, crash_files=self._crash_files)
        return RequestRound(
            self._pool,
            self._places,
            weights=self._weights,
            policy=self._policy,
            start_limit_s=self._start_limit_s,
            crash_files=self._crash_files,
        )

    def _finish_open(self) -> None:
        """Waits for what is under way; its outcome stays there for who began it."""
        if self._open is None:
            return
        try:
            self._open.finish()
        except BaseException:
            self._abandon_open()
            raise
        self._open = None

    def _abandon_open(self) -> None:
        """Ends what is under way; nothing comes of it."""
        if self._open is not None:
            self._open.abandon()
            self._open = None

    def _take_over(self, result: RoundResult) -> None:
        if result.reports:
            self.module_spec = result.reports[min(result.reports)].module_spec
        self.num_restarts += result.num_restarts
        self._num_episodes_lost += result.num_episodes_lost
        self._num_env_steps_lost += result.num_env_steps_lost
        self._recreated += result.recreated

    def _tell_recreated(self) -> None:
        recreated, self._recreated = sorted(set(self._recreated)), []
        if recreated:
            self._on_recreated(recreated)
