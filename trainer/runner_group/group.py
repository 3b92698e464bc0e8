"""The env runners of one purpose: asks them, commits their answers, keeps them alive.

    group.start()                           every runner is made; a wrong env shows here
    sample = group.sample_env_steps(2048)   one request to each; repaired until all have answered
    group.act_with(policy)                  sent along with the next request of each runner
    group.foreach_env_runner(function)      the user's own code in every runner
    group.stop()

With no remote runners, the one local runner lives in the main process and runs the same program.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NoReturn

from checkpoints import check_shape
from trainer.env_runners.env_runner import DirectRunners, EnvRunner
from trainer.env_runners.mapped_modules import completed_specs, policy_mapping
from trainer.env_runners.messages import (
    Assignment,
    EnvRunnerSpec,
    ModuleWeights,
    PolicySnapshot,
    SampleReply,
    SampleRequest,
    Weights,
)
from trainer.envs.multi_agent_env import EnvAgents
from trainer.envs.tasks import TaskFunction
from trainer.errors import ConfigError, TrainerError
from trainer.metrics import EpisodeRecord
from trainer.modules import ByModule, ModuleTable, RLModuleSpec
from trainer.runner_group.crash_files import CrashFiles, replay
from trainer.runner_group.env_tasks import EnvTasks
from trainer.runner_group.plays import TicketPlay
from trainer.runner_group.records import RunnerRecords
from trainer.runner_group.runners import CLOSING_S, OnRecreated, Runners
from trainer.runner_group.sampling import GroupSample, Sampler
from trainer.runner_group.slot_states import SlotStates, group_state
from trainer.runner_group.user_calls import OfEnvs, OnMetrics, UserCalls, WithNumber
from trainer.runtime.engine import Engine
from trainer.runtime.restart_policy import RestartPolicy
from trainer.runtime.threads import OneThread
from trainer.types import AgentId, State
from trainer_toolkit.arguments import takes
from trainer_toolkit.checks import integer, number, optional
from trainer_toolkit.trees import same
from trainer_toolkit.undo import Undo

_LOGGER = logging.getLogger(__name__)

_MOST_WORKERS: Final = 4096
"""More processes than any machine runs."""


class EnvRunnerGroup:
    """The env runners of one purpose.

    Attributes:
        is_training: an iteration is under way, which may have to be undone.
        calls: of users' functions in the runners.
        slot_states: where the slots stand, and what callbacks remember.
        tasks: of the envs.
    """

    def __init__(
        self,
        spec: EnvRunnerSpec | None = None,
        *,
        config: Any = None,
        num_env_runners: int | None = None,
        restart_policy: RestartPolicy | None = None,
        crash_files: CrashFiles | None = None,
        on_recreated: OnRecreated = lambda _: None,
        on_metrics: OnMetrics = lambda _: None,
        engine: Engine | None = None,
        one_thread: OneThread | None = None,
        setup: bool = True,
        **rllib_arguments: Any,
    ) -> None:
        """Prepares the records of the runners; `start` makes the runners.

        Args:
            spec: of any runner; indices and slots are filled in for each. None makes what a config
                asks for.
            config: an `AlgorithmConfig`, instead of a spec and all that follows: for a group of the
                user's own, apart from any algorithm. It is started at once.
            num_env_runners: remote runners, ≥ 0; None with a config: as configured.
            restart_policy: what to do about failures; None replaces runners as by default.
            crash_files: where requests that failed are kept; None keeps none.
            on_recreated: called after a request with the numbers of the runners that were replaced.
            on_metrics: called with what the functions of `foreach_env_runner` logged.
            engine: where remote runners live; None is for processes of this machine.
            one_thread: of the algorithm that they belong to; None without one.
            setup: with a config: False leaves it to `start()` to make the runners.
            rllib_arguments: further arguments of RLlib's, with a config.

        Raises:
            ConfigError: the config is wrong.
        """
        is_direct = spec is None
        if spec is None:
            rllib_arguments["num_env_runners"] = num_env_runners
            direct = DirectRunners.of(config, rllib_arguments)
            spec, num_env_runners = direct.spec, direct.num_env_runners
            restart_policy = direct.policy
        self.is_training = False
        crash_files = crash_files or CrashFiles()
        self._records = RunnerRecords(spec, num_env_runners or 0)
        self._runners = Runners(
            self._records,
            restart_policy=restart_policy or RestartPolicy(),
            crash_files=crash_files,
            on_recreated=on_recreated,
            engine=engine,
            one_thread=one_thread,
        )
        self.calls = UserCalls(self._records, self._runners, on_metrics)
        self.slot_states = SlotStates(self._records)
        self.tasks = EnvTasks(self._records)
        self._sampler = Sampler(self._records, self._runners, self.slot_states, crash_files)
        if is_direct and setup:
            self.start()

    @property
    def module_specs(self) -> ByModule[RLModuleSpec]:
        """What the runners' modules are made from; complete once they were made."""
        return self._runners.agreement.module_specs

    @property
    def takes_inference_only(self) -> bool:
        """Whether runners have only those parts of modules that acting needs."""
        return self._runners.agreement.takes_inference_only

    @property
    def agent_ids(self) -> tuple[AgentId, ...] | None:
        """All possible agents of the envs; None for envs of one agent."""
        agents = self.agents
        return None if agents is None else agents.ids

    @property
    def agents(self) -> EnvAgents | None:
        """All possible agents of the envs, and their spaces; None for envs of one agent."""
        return self._runners.agreement.agents

    @property
    def num_restarts(self) -> int:
        """Runners that were replaced after failures so far."""
        return self._runners.num_restarts

    @property
    def num_sub_env_restarts(self) -> int:
        """Sub-envs that were made anew alone so far."""
        return self._sampler.num_sub_env_restarts

    @property
    def num_dropped_ahead(self) -> int:
        """Samples that were asked for ahead and dropped so far."""
        return self._sampler.num_dropped_ahead

    @property
    def num_samples_ahead(self) -> int:
        """Samples that were asked for ahead and are neither taken nor dropped."""
        return self._sampler.num_ahead

    @property
    def num_slots(self) -> int:
        """Sub-envs of all runners together."""
        return self._records.num_slots

    @property
    def can_play_in_rounds(self) -> bool:
        """Whether a request may have `rounds`, with the outcome of as many single requests.

        Where sub-envs are repaired alone, tasks noticed or connectors remembered, that happens
        between two requests.
        """
        records, spec = self._records, self._records.spec
        return (
            not (records.is_remote or self.agents or spec.has_vector_env or spec.connectors)
            and spec.sub_env_tolerance is None
            and not any(record.first_tasks for record in records)
        )

    # ---- life

    def start(self) -> None:
        """Makes every runner and waits until all are there.

        Raises:
            EnvCreationError, EnvContractError: the env could not be made or breaks the contract.
            SerializationError: something of the config cannot be sent to a process.
            RunnerLostError: none came up, and failures are ignored.
        """
        self._make(self._records.by_index)
        self._records.healthy_or_raise()

    def _make(self, indices: Collection[int]) -> None:
        """Sees to it that these runners are there."""
        self._runners.note(self._runners.run(dict.fromkeys(indices)))

    def stop(self) -> None:
        """Closes all envs and ends all processes. Idempotent; calls are refused afterwards.

        A runner whose envs take longer than 2 s to close, or than the limit for a runner without
        progress if that is shorter, is ended without.
        """
        if not self._runners.is_stopped:
            self._sampler.wait_for_ahead(CLOSING_S)
        self._runners.stop()

    def cancel(self) -> None:
        """Refuses all calls to come, and ends the wait of another thread for runners."""
        self._runners.cancel()

    def kill(self) -> None:
        """Ends all processes at once; like `stop`, but no env is closed."""
        self._runners.kill()

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
        options["whole_episodes"] = whole_episodes
        return self._sampler.sample(num_env_steps, by_agent=False, **options)

    @takes(num_agent_steps=integer(0, 2**53))
    def sample_agent_steps(
        self, num_agent_steps: int, *, whole_episodes: bool = False, **options: Any
    ) -> GroupSample:
        """Plays agent steps (completed rows), shared out over all slots; running episodes go on.

        A slot plays whole env steps until it has its share; what it made beyond that is taken off
        its next share. So no slot is ever further ahead than the agents of one env step, and
        however many requests there were, all that was asked for was played.

        Args:
            num_agent_steps: so many but for what slots are ahead, or with `whole_episodes` at least
                so many. An env of one agent makes one per env step.
            whole_episodes: every slot ends its last episode, and nothing is taken off.
            options: see `sample_env_steps`.
        """
        options["whole_episodes"] = whole_episodes
        return self._sampler.sample(num_agent_steps, by_agent=True, **options)

    def begin_sample(
        self,
        num_steps: int,
        *,
        by_agent: bool = False,
        policy: PolicySnapshot | None = None,
        **options: Any,
    ) -> None:
        """Lets remote runners play ahead what they will be asked for, and does not wait.

        Called several times, it asks for as many samples; a runner plays one after the other, and
        waits for no other runner. The next `sample_env_steps` or `sample_agent_steps` with the same
        arguments takes the first of them. Until then nothing has happened. If the runners are asked
        for something else first, or are to hold other weights by then, all answers are dropped and
        the same steps are played again: what is sampled never depends on time. A local runner plays
        when it is asked.

        Args:
            num_steps: of all slots.
            by_agent: count agent steps.
            policy: how they act in this sample; None is as all runners do now.
            options: those of the sample to come.
        """
        if self._records.is_remote:
            self._sampler.begin(num_steps, policy=policy, by_agent=by_agent, **options)

    def begin_evaluation(self, stream: int) -> None:
        """Says which episodes runners play that are asked to `sample()` by users' functions.

        The stream is the first half of their positions; see `Assignment`.
        """
        self._runners.finish()
        self.calls.begin_evaluation()
        self._records.begin_evaluation(stream)

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
        weights = self.policy.weights
        request = SampleRequest(
            (),
            force_reset=True,
            timestep=0 if weights is None else weights.timestep,
            steps_per_chunk=steps_per_chunk,
            returns_episodes=False,
        )
        return TicketPlay(
            self._runners,
            self._records,
            tickets=tickets,
            request=request,
            waits_for_all=waits_for_all,
        )

    def is_playing(self, play: TicketPlay) -> bool:
        """Whether the runners were asked for nothing else since this play began."""
        return self._runners.owner is play

    def end_play(self, play: TicketPlay) -> GroupSample:
        """What was played by a play that is over."""
        if self.is_playing(play):
            self._runners.owner = None
        self._runners.fire_recreated()
        for index, reply in play.replies():
            self._runners.agreement.check_fingerprint(index, reply.mapping_fingerprint)
        return self._sampler.with_losses(play.sample())

    def abandon_play(self, *, but: TicketPlay | None = None) -> None:
        """Ends the play that goes on, if there is one; nothing comes of it."""
        owner = self._runners.owner
        if isinstance(owner, TicketPlay) and owner is not but:
            self._runners.abandon()

    def replay(self, record: State) -> SampleReply | None:
        """Plays again in this process what a runner of such a group was asked; see `crash_files`.

        The group itself is not touched.
        """
        spec = replace(self._records.spec, table=self.table)
        return replay(record, spec, self.module_specs, agents=self.agent_ids)

    # ---- the user's own code in the runners

    @takes(timeout_seconds=optional(number(infinite=True)))
    def foreach_env_runner(
        self,
        func: Callable[..., Any] | str | Sequence[Callable[..., Any]],
        *,
        kwargs: Mapping[str, Any] | None = None,
        local_env_runner: bool = True,
        healthy_only: bool = True,  # noqa: ARG002 - RLlib's signature; the others cannot be asked
        remote_worker_ids: Sequence[int] | None = None,
        timeout_seconds: float | None = None,
        return_obj_refs: bool = False,
        mark_healthy: bool = False,  # noqa: ARG002 - a runner that answers is healthy
    ) -> list[Any]:
        """Calls a function with every runner, in the process where the runner lives.

        What it logs in `env_runner.metrics` is reported at once, also if it raises in another
        runner.

        Args:
            func: `func(env_runner, **kwargs)`; or the name of a runner's method; or a list, one
                function per runner.
            kwargs: keyword arguments of the call.
            local_env_runner: include the runner of the main process, if there is one.
            healthy_only: no effect.
            remote_worker_ids: numbers of the remote runners to ask; None asks all, an empty list
                none.
            timeout_seconds: a remote runner that makes no env step for so long is replaced, and its
                result is None. 0 waits for no answer of remote runners, except to calls before
                this one: what they return is dropped. None waits.
            return_obj_refs: must be False; `foreach_env_runner_async` is there for answers to come.
            mark_healthy: no effect.

        Returns:
            the results in the order of the runners' numbers; a runner that was given up or did not
            answer in time holds its place with None.

        Raises:
            Exception: what the function raised in the first runner in which it did, with the
                runner's number as cause. It has run in all the others; no runner is replaced.
            RunnerLostError: a process died twice while it ran the function.
            ConfigError: a runner number does not exist, or a list of functions has another length.
        """
        if return_obj_refs:
            raise ConfigError(
                "foreach_env_runner(return_obj_refs=True): there are no references to answers "
                "here. Use foreach_env_runner_async() and fetch_ready_async_reqs()."
            )
        indices = self.calls.chosen(
            local_env_runner=local_env_runner, remote_worker_ids=remote_worker_ids
        )
        if timeout_seconds == 0 and self._records.is_remote:
            self.calls.begin(func, indices, kwargs=kwargs, keeps_answers=False)
            return []
        return self.calls.run(func, indices, kwargs=kwargs, timeout_s=timeout_seconds or None)

    def foreach_env_runner_with_id(
        self, func: Callable[[int, Any], Any], **options: Any
    ) -> list[Any]:
        """Like `foreach_env_runner`, with `func(number, env_runner)`."""
        indices = self.calls.chosen(
            local_env_runner=options.get("local_env_runner", True),
            remote_worker_ids=options.get("remote_worker_ids"),
        )
        return self.foreach_env_runner([WithNumber(func, index) for index in indices], **options)

    def foreach_env(self, func: Callable[[Any], Any]) -> list[list[Any]]:
        """Calls `func(env)` with every sub-env: a list of results per runner."""
        return self.foreach_env_runner(OfEnvs(func, with_context=False))

    def foreach_env_with_context(self, func: Callable[[Any, Any], Any]) -> list[list[Any]]:
        """Calls `func(env, context)` with every sub-env: a list of results per runner."""
        return self.foreach_env_runner(OfEnvs(func, with_context=True))

    def foreach_env_runner_async(
        self,
        func: Callable[..., Any] | str | Sequence[Callable[..., Any]],
        *,
        kwargs: Mapping[str, Any] | None = None,
        healthy_only: bool = True,  # noqa: ARG002 - RLlib's signature; the others cannot be asked
        remote_worker_ids: Sequence[int] | None = None,
    ) -> int:
        """Lets every remote runner call a function, and waits for none of them.

        A runner has one such call at a time: one that is still at work is left out. In a group
        without remote runners the local one is called when the answers are fetched.

        Args:
            func: as in `foreach_env_runner`.
            kwargs: keyword arguments of the call.
            healthy_only: no effect.
            remote_worker_ids: numbers of the remote runners to ask; None asks all.

        Returns:
            how many runners took the call.
        """
        indices = self.calls.chosen(local_env_runner=True, remote_worker_ids=remote_worker_ids)
        return self.calls.begin(func, indices, kwargs=kwargs)

    def fetch_ready_async_reqs(
        self,
        *,
        timeout_seconds: float | None = 0.0,
        return_obj_refs: bool = False,  # noqa: ARG002 - answers are values here
        mark_healthy: bool = False,  # noqa: ARG002 - a runner that answers is healthy
    ) -> list[tuple[int, Any]]:
        """The answers to `foreach_env_runner_async` that have come in and were not fetched.

        Args:
            timeout_seconds: how long to wait until all calls are answered; None waits for all.
            return_obj_refs: no effect.
            mark_healthy: no effect.

        Returns:
            (runner number, what the function returned) in the order in which they came.

        Raises:
            Exception: what a function raised, with the runner's number as cause; once, when all
                calls have ended. The answers of the others can be fetched afterwards.
        """
        return self.calls.fetch(timeout_seconds)

    def num_in_flight_async_reqs(self) -> int:
        """How many calls of `foreach_env_runner_async` have no answer yet."""
        return self.calls.num_in_flight

    def take_records(self) -> list[EpisodeRecord]:
        """The episodes that users' functions let evaluation runners play, since last asked.

        They are ordered by call, then runner, then slot, then time.
        """
        return self.calls.take_episodes()

    # ---- tasks

    def set_task(self, task: Any) -> None:
        """Gives all sub-envs of all runners a task, where they stand.

        It is sent along with the next thing that a runner is asked; runners whose envs have it
        already are sent nothing. Runners that are replaced start with it.

        Args:
            task: whatever `set_task` of the env takes.

        Raises:
            TaskError: the env cannot be given tasks. If its `set_task` refuses this one, that
                error comes with the next request.
            SerializationError: the task cannot travel to the runners.
        """
        self.set_tasks([task] * self._records.num_slots)

    def set_tasks(self, tasks: Sequence[Any]) -> None:
        """Like `set_task`, with a task for each sub-env.

        Args:
            tasks: one per env slot: those of the first runner, then those of the second, …

        Raises:
            ConfigError: their number is not that of the slots.
        """
        with self._runners.alone():
            self._runners.finish()
            self.tasks.set(tasks)

    def get_tasks(self) -> list[Any]:
        """The tasks of all sub-envs, by env slot; None where there is none.

        As of the last answer of their runner, and what was set since.
        """
        return self.tasks.get()

    def set_tasks_by(
        self, function: Callable[..., Any], results: Mapping[str, Any], *, name: str
    ) -> None:
        """Lets a function choose the task of each sub-env, in the processes where they live.

        Args:
            function: `function(results, env, env_context) -> task`.
            results: what it is given; it must be possible to send it.
            name: what messages call the function.

        Raises:
            TaskError: the function raised, or `set_task` did; names the runner and the sub-env.
        """
        self.tasks.require(name)
        chosen = TaskFunction(function, results)
        self.calls.run(chosen, list(self._records.by_index), doing=f"asked {name}")

    # ---- state

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"An {type(self).__name__} cannot be copied or pickled: it owns processes and envs. "
            "Take what you need of it, such as get_state(); make another one with "
            "EnvRunnerGroup(config=…), which takes that state with set_state()."
        )

    def get_state(self) -> State:
        """Where all slots stand, and the state of every runner's callbacks: plain data.

        Background calls of users' functions are waited for: what they change belongs to it.
        """
        with self._runners.alone():
            self.finish_calls()
            return self.slot_states.get_state()

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it; changes nothing."""
        check_shape(state, group_state(self.module_specs, agents=self.agent_ids))

    def set_state(self, state: State) -> None:
        """Puts all slots where they stood, with the next request; see `SlotStates.set_state`.

        Background calls of users' functions are ended: they are no part of the state.
        """
        if not {"slots", "callbacks", "is_continued"} <= state.keys():
            self.check_state(state)
        with self._runners.alone():
            self.end_calls()
            self.slot_states.set_state(state)

    # ---- what runners hold

    @property
    def policy(self) -> PolicySnapshot:
        """How all runners act from the next thing on that they are asked."""
        return self._records.policy

    @property
    def table(self) -> ModuleTable:
        """Which modules there are, and for whom they act, from the next request on."""
        return self._records.table

    def act_with(self, newer: PolicySnapshot) -> None:
        """Lets every runner act otherwise, from the next thing on that it is asked.

        Within one request it never changes, so that it makes no difference how slots are spread.
        With other modules, running episodes that one is missing for are given up, and counted as
        lost.

        Args:
            newer: parts that are None stay as they are; spaces of modules that are None are those
                of the agents.
        """
        with self._runners.alone():
            self._act_with(self.policy.followed_by(newer))

    def _act_with(self, policy: PolicySnapshot) -> None:
        if policy is self.policy:
            return
        if policy.table is not self.policy.table:
            self._runners.finish()
            self._runners.agreement.take_specs(self._completed(policy.whole_table))
        self.finish_calls()  # calls to come would act as these began to
        self._records.act_with(policy)

    def mark(self) -> Undo:
        """What puts back how all runners act and where they stand; calls are ended before."""
        policy, put_slots_back = self.policy, self.slot_states.mark()

        def undo() -> None:
            with contextlib.ExitStack() as both:
                both.callback(put_slots_back)
                self._act_with(policy)

        return undo

    def finish_calls(self) -> None:
        """Waits for background calls of users' functions."""
        if self._runners.owner is self.calls:
            self._runners.finish()

    def end_calls(self) -> None:
        """Ends background calls of users' functions, and a sample that was asked for ahead."""
        if self._runners.owner in (self.calls, self._sampler):
            self._runners.abandon()

    def _completed(self, table: ModuleTable) -> ByModule[RLModuleSpec]:
        """The modules with the spaces of the agents."""
        spec, agents = self._records.spec, self.agents
        if agents is None:
            return table.specs
        mapping = policy_mapping(table, agents, root_seed=spec.root_seed, role=spec.role)
        return completed_specs(table, mapping, agents, env_name=self.env_name)

    def has_weights_of(self, policy: PolicySnapshot) -> bool:
        """Whether runners have the same numbers, or get them with the next thing they are asked."""
        known, newest = self.policy.weights, policy.weights
        if known is None or newest is None:
            return known is newest
        return known.modules.ids == newest.modules.ids and all(
            same(known.modules[id_].state, one.state) for id_, one in newest.modules.items()
        )

    def connector_state(self) -> State | None:
        """What the connector pieces of the first slot remember; None for nothing."""
        first = next(iter(self._records))
        return first.taken.positions[0].connectors

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
            policies: ids of modules; None is all of them.
            from_worker_or_learner_group: a learner, runner or module whose weights to take; None
                sends those that the group holds. The next training step sends the learner's again.
            to_worker_indices: numbers of the runners; None is all of them.
            _: RLlib's further arguments, which mean nothing here.

        Raises:
            ConfigError: there is no such module, or nothing to take weights from.
        """
        ids = self.module_specs.ids
        if policies is not None and not {*ids} & {*policies}:
            raise ConfigError(
                f"sync_weights(policies={list(policies)!r}): there is no such module; there is "
                f"{', '.join(map(repr, ids))}."
            )
        if from_worker_or_learner_group is not None:
            self._runners.finish()
            self.act_with(PolicySnapshot(self._weights_of(from_worker_or_learner_group)))
        by_index = self._records.by_index
        indices = by_index if to_worker_indices is None else to_worker_indices
        chosen = [index for index in indices if index in by_index]
        for record in [by_index[index] for index in chosen]:
            record.sent = None if record.sent is None else replace(record.sent, weights=None)
        self.bring_up_to_date(chosen)

    def bring_up_to_date(self, indices: Collection[int] | None = None) -> None:
        """Lets runners hold at once what they are to hold: weights, normalisation, positions.

        `indices` are their numbers; None is all of them.
        """
        chosen = self._records.by_index if indices is None else indices
        self.calls.bring_up_to_date(chosen)

    def _weights_of(self, source: Any) -> Weights:
        module = getattr(source, "module", source)
        if not hasattr(module, "get_state") or not hasattr(module, "forward_inference"):
            raise ConfigError(
                f"sync_weights() got {source!r:.80}; expected a learner, an env runner or a module."
            )
        ids = self.module_specs.ids
        before = self.policy.weights or Weights(ByModule({ids[0]: ModuleWeights(0, {})}))
        own = before.modules.only
        state = module.get_state()
        own = replace(own, state={name: state[name] for name in own.state} if own.state else state)
        return replace(before, modules=ByModule({before.modules.only_id: own}))

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
        by_index = self._records.by_index
        given_up = [index for index, record in by_index.items() if record.is_given_up]
        for index in given_up:
            by_index[index].is_given_up = False
        self._make(given_up)
        self._runners.fire_recreated()
        return [index for index in given_up if not by_index[index].is_given_up]

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
        self._make_anew(self.num_remote_env_runners() + num_workers)

    def reset(self, *_: Any) -> None:
        """Makes all runners anew; their running episodes go on.

        Raises:
            TrainerError: an iteration is under way.
        """
        self._refuse_while_training("reset")
        self._make_anew(self.num_remote_env_runners())

    def _refuse_while_training(self, what: str) -> None:
        if self.is_training:
            raise TrainerError(
                f"{what}() was called while train() runs. An iteration that fails is undone, and "
                "processes cannot be. Call it between two calls of train()."
            )

    def _make_anew(self, num_env_runners: int) -> None:
        self._runners.finish()
        state, first = self.get_state(), next(iter(self._records))
        self._runners.make_anew(num_env_runners)
        self.set_state(state)
        for record in self._records:
            record.evaluation = first.evaluation
        self._make(self._records.by_index)

    def set_root_seed(self, root_seed: int) -> None:
        """Changes the seed of all randomness; runners with another one are made anew.

        What they are at is ended, and nothing comes of it.
        """
        for index, record in self._records.by_index.items():
            if record.spec.root_seed == root_seed:
                continue
            self._runners.abandon()
            record.spec = replace(record.spec, root_seed=root_seed)
            record.had_runner = False  # the next one does not replace it: nothing failed
            self._runners.end_runner(index)

    # ---- what there is, and what of it is well

    @property
    def local_env_runner(self) -> EnvRunner | None:
        """The runner of the main process; None if the runners are remote, or were stopped.

        It holds the newest weights and positions: what it would get with the next request, such as
        a restored state, it gets here. A runner that a restore closed is made anew.
        """
        record = self._records.by_index.get(0)
        if record is None:
            return None
        runners = self._runners
        # Not before it is first made, nor while it is being made or at work.
        is_idle = record.num_starts > 0 and not (runners.is_local_busy or runners.is_stopped)
        is_behind = (
            runners.local is None or record.must_be_put_back or record.sent is not self.policy
        )
        if is_idle and is_behind:
            self.bring_up_to_date([0])
        return runners.local

    def healthy_env_runner_ids(self) -> list[int]:
        """Numbers of the runners that can be asked; 0 is the local one."""
        return self._records.healthy()

    def num_remote_env_runners(self) -> int:
        """How many remote runners there are, healthy or not."""
        return len(self._records.by_index) if self._records.is_remote else 0

    def num_cpu_kinds(self) -> int:
        """How many kinds of CPU there are among the machines of the runners and this one."""
        return self._runners.num_cpu_kinds()

    def num_healthy_env_runners(self) -> int:
        """How many runners can be asked, the local one included."""
        return len(self.healthy_env_runner_ids())

    def num_healthy_remote_workers(self) -> int:
        """How many remote runners can be asked."""
        return len(self._records.healthy()) if self._records.is_remote else 0

    def num_remote_worker_restarts(self) -> int:
        """How many remote runners were replaced so far."""
        return self.num_restarts

    def num_sub_environment_restarts(self) -> int:
        """How many sub-envs were made anew alone so far (`restart_failed_sub_environments`)."""
        return self.num_sub_env_restarts

    @property
    def env_name(self) -> str:
        """What messages call the env."""
        return self._records.spec.env_factory.name

    def env_runner_pids(self) -> dict[int, int]:
        """Process ids of the remote runners that have a process, by number."""
        return self._runners.pids()

    def is_policy_to_train(self, policy_id: str | None = None, batch: object = None) -> bool:
        """Whether the module of that id learns: all that there are do."""
        del batch
        return policy_id is None or policy_id in self.module_specs
