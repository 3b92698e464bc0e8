"""The env runners of one purpose: asks them, commits their answers, keeps them alive.

    group.start()                           every runner is made; a wrong env shows here
    sample = group.sample_env_steps(2048)   one request to each; repaired until all have answered
    group.set_weights(weights)              sent along with the next request of each runner
    group.foreach_env_runner(function)      the user's own code in every runner
    group.stop()

With no remote runners, the one local runner lives in the main process and runs the same program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from checkpoints.arguments import checked_methods, integer, takes
from trainer.env_runners.crash_files import CrashFiles
from trainer.env_runners.direct_runners import DirectRunners
from trainer.env_runners.group_async_calls import GroupAsyncCalls
from trainer.env_runners.group_crashes import GroupCrashes
from trainer.env_runners.group_functions import GroupFunctions, OnMetrics
from trainer.env_runners.group_health import GroupHealth
from trainer.env_runners.group_sample import GroupSample
from trainer.env_runners.group_state import GroupState
from trainer.env_runners.group_tasks import GroupTasks
from trainer.env_runners.group_upkeep import GroupUpkeep
from trainer.env_runners.local_round import LocalRound
from trainer.env_runners.request_round import RequestRound
from trainer.env_runners.rounds import Ask, OnRecreated, Round, RoundResult
from trainer.env_runners.runner_place import RunnerPlace
from trainer.env_runners.shares import share_out
from trainer.env_runners.spec import (
    Assignment,
    EnvRunnerSpec,
    SampleRequest,
    SlotPosition,
    Weights,
)
from trainer.env_runners.ticket_play import TicketPlay
from trainer.errors import AlgorithmStoppedError
from trainer.rllib_names.env_runner_group_names import EnvRunnerGroupNames
from trainer.runtime.restart_policy import RestartPolicy
from trainer.runtime.worker_pool import WorkerPool

_CLOSING_S: Final = 2.0
_PRELOADED = ("numpy", "gymnasium", "trainer.env_runners.servant", "trainer.runtime.worker_main")


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
