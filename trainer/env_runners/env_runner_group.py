"""The env runners of one purpose: asks them, commits their answers, keeps them alive.

    group.start()                           every runner is made; a wrong env shows here
    sample = group.sample_env_steps(2048)   one request to each; repaired until all have answered
    group.set_weights(weights)              sent along with the next request of each runner
    group.foreach_env_runner(function)      the user's own code in every runner
    group.stop()

With no remote runners, the one local runner lives in the main process and runs the same program.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainer.connectors import Normalization
from trainer.env_runners.group_functions import GroupFunctions, OnMetrics
from trainer.env_runners.group_health import GroupHealth
from trainer.env_runners.group_sample import GroupSample
from trainer.env_runners.group_tasks import GroupTasks
from trainer.env_runners.local_round import run_locally
from trainer.env_runners.request_round import Ask, OnRecreated, RequestRound, RoundResult
from trainer.env_runners.runner_place import RunnerPlace
from trainer.env_runners.shares import share_out
from trainer.env_runners.spec import (
    Assignment,
    EnvRunnerSpec,
    SampleRequest,
    SlotPosition,
    Weights,
)
from trainer.errors import AlgorithmStoppedError, RunnerLostError
from trainer.rllib_names.env_runner_group_names import EnvRunnerGroupNames
from trainer.runtime.restart_policy import RestartPolicy
from trainer.runtime.worker_pool import WorkerPool
from trainer.types import State

_LOGGER = logging.getLogger(__name__)

_PRELOADED = ("numpy", "gymnasium", "trainer.env_runners.servant", "trainer.runtime.worker_main")


class EnvRunnerGroup(GroupFunctions, GroupTasks, GroupHealth, EnvRunnerGroupNames):
    """The env runners of one purpose.

    Attributes:
        num_restarts: runners that were replaced after failures so far.
        module_spec: what the runners' modules are made from; complete once they were made.
    """

    def __init__(
        self,
        spec: EnvRunnerSpec,
        *,
        num_env_runners: int,
        policy: RestartPolicy,
        stall_limit_s: float | None,
        start_limit_s: float | None = None,
        on_recreated: OnRecreated = lambda _: None,
        on_metrics: OnMetrics = lambda _: None,
    ) -> None:
        """Prepares the places; `start` makes the runners.

        Args:
            spec: of any runner; indices and slots are filled in for each.
            num_env_runners: remote runners, ≥ 0.
            policy: what to do about failures.
            stall_limit_s: a runner without an env step for so long is replaced; None waits.
            start_limit_s: the same while a runner is made and put to its position.
            on_recreated: called after a request with the numbers of the runners that were replaced.
            on_metrics: called with what the functions of `foreach_env_runner` logged.
        """
        self.num_restarts = 0
        # Of running episodes given up in any round, until the next sample tells them.
        self._num_episodes_lost = self._num_env_steps_lost = 0
        self._is_stopped = False
        self._on_recreated = on_recreated
        self._on_metrics = on_metrics
        self._policy = policy
        self._stall_limit_s = stall_limit_s
        self._start_limit_s = start_limit_s
        self._weights: Weights | None = None
        self.module_spec = spec.module_spec
        indices = range(1, num_env_runners + 1) if num_env_runners else range(1)
        self._places = {
            index: RunnerPlace(spec.at_place(index, num_env_runners)) for index in indices
        }
        self._pool: WorkerPool | None = None
        if num_env_runners:
            self._pool = WorkerPool(
                [place.name for place in self._places.values()], preload_modules=_PRELOADED
            )

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
        """Closes all envs and ends all processes. Idempotent; nobody can be asked afterwards."""
        self._is_stopped = True
        if self._pool is not None:
            self._pool.stop()
        for place in self._places.values():
            place.stop_runner()

    # ---- sampling

    @property
    def num_slots(self) -> int:
        """Sub-envs of all runners together."""
        return sum(place.spec.num_envs for place in self._places.values())

    def set_weights(self, weights: Weights) -> None:
        """Gives every runner new weights, with the next thing it is asked."""
        self._weights = weights

    def set_normalization(self, normalization: Normalization) -> None:
        """Says what is done to observations and rewards from the next request on.

        Within one request it never changes, so that it makes no difference how slots are spread.
        """
        for place in self._places.values():
            place.normalization = normalization

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

    def play(self, tickets: Sequence[Assignment], *, explore: bool | None = None) -> GroupSample:
        """Plays evaluation tickets, whoever plays them.

        Runner k of n gets the tickets k, k + n, …; its sub-envs take them in turn. Tickets of a
        runner that was given up are handed to the others.

        Raises:
            RunnerLostError: no runner is left.
        """
        samples: list[GroupSample] = []
        while tickets:
            indices = self._healthy_or_raise()
            shares = {
                index: tuple(tickets[number :: len(indices)])
                for number, index in enumerate(indices)
                if number < len(tickets)
            }
            for index in shares:
                place = self._places[index]
                place.positions = tuple(
                    SlotPosition(tasks=position.task_now) for position in place.positions
                )
            requests = {
                index: SampleRequest(
                    share,
                    explore=explore,
                    force_reset=True,
                    timestep=self._weights.timestep if self._weights is not None else 0,
                )
                for index, share in shares.items()
            }
            # A ticket cannot be skipped as a training episode can: what kills thrice, kills always.
            samples.append(self._sample(requests, max_new_episodes=1, tolerance=2))
            given_up = [index for index in shares if self._places[index].is_given_up]
            tickets = [ticket for index in given_up for ticket in shares[index]]
        return GroupSample.joined(samples)

    def _healthy_or_raise(self) -> list[int]:
        indices = self.healthy_env_runner_ids()
        if not indices:
            raise RunnerLostError(
                f"All {len(self._places)} env runners failed and may not be replaced, so there is "
                "nobody left to sample. The log has the failures. Correct the env, or let runners "
                "be replaced: config.fault_tolerance(restart_failed_env_runners=True)."
            )
        return indices

    def _sample(
        self,
        requests: Mapping[int, SampleRequest],
        *,
        max_new_episodes: int,
        tolerance: int | None = None,
    ) -> GroupSample:
        asks = {
            index: Ask(
                "sample",
                (request,),
                max_new_episodes,
                stall_limit_s=self._stall_limit_s,
                tolerance=tolerance,
            )
            for index, request in requests.items()
        }
        result = self._run(asks)
        creation_metrics = []
        for index, reply in sorted(result.answers.items()):
            creation_metrics += self._places[index].take_creation_metrics()
            self._places[index].commit_reply(reply)
        sample = GroupSample.of(result.answers, repair_s=result.repair_s)
        sample = replace(
            sample,
            metrics=creation_metrics + sample.metrics,
            num_episodes_lost=sample.num_episodes_lost + self._num_episodes_lost,
            num_env_steps_lost=sample.num_env_steps_lost + self._num_env_steps_lost,
        )
        self._num_episodes_lost = self._num_env_steps_lost = 0
        if result.recreated:
            self._on_recreated(result.recreated)
        return sample

    def _run(self, asks: Mapping[int, Ask | None]) -> RoundResult:
        if self._is_stopped:
            raise AlgorithmStoppedError(
                "The env runners were asked after stop(): they are gone. Build a new algorithm, "
                "or restore one with from_checkpoint()."
            )
        alive = {index: ask for index, ask in asks.items() if not self._places[index].is_given_up}
        if self._pool is None:
            result = run_locally(self._places, alive, self._weights)
        else:
            result = RequestRound(
                self._pool,
                self._places,
                weights=self._weights,
                policy=self._policy,
                start_limit_s=self._start_limit_s,
            ).run(alive)
        if result.reports:
            self.module_spec = result.reports[min(result.reports)].module_spec
        self.num_restarts += result.num_restarts
        self._num_episodes_lost += result.num_episodes_lost
        self._num_env_steps_lost += result.num_env_steps_lost
        return result

    # ---- state

    def get_state(self) -> State:
        """Where all slots stand, and the state of every runner's callbacks: plain data."""
        slots = [
            position.to_state() for place in self._places.values() for position in place.positions
        ]
        states = {str(max(1, index)): place.callbacks for index, place in self._places.items()}
        return {
            "slots": slots,
            "callbacks": {index: state for index, state in states.items() if state is not None},
            "is_continued": any(place.is_continued for place in self._places.values()),
        }

    def set_state(self, state: State) -> None:
        """Puts all slots where they stood, with the next request.

        The slots are taken in order, however many runners there were. If there were fewer slots
        than there are now, the rest begins with fresh episodes, of numbers that nobody had; if
        there were more, the rest of them is dropped. Fresh slots have the task of all others if
        that is one, else the first one of their env. Callback state goes to the runner of the same
        number; a warning names the numbers that there is no runner for.
        """
        positions = [SlotPosition.from_state(slot) for slot in state["slots"]]
        self._warn_of_dropped_callbacks(state["callbacks"])
        fresh = max((position.episode_number + 1 for position in positions), default=0)
        positions = self._without_unknown_tasks(positions)
        tasks = self._tasks_for_fresh_slots(positions)
        positions += [SlotPosition(fresh, tasks=tasks)] * (self.num_slots - len(positions))
        for index, place in self._places.items():
            first = place.spec.first_slot
            place.positions = tuple(positions[first : first + place.spec.num_envs])
            place.fill_in_tasks()
            # 0 runners are the same program as 1: the runner of the main process has the state of
            # the first one of a group of processes.
            saved = state["callbacks"].get(str(max(1, index)))
            place.callbacks = place.first_callbacks if saved is None else saved
            place.is_ahead = True
            place.is_continued = state["is_continued"]

    def _warn_of_dropped_callbacks(self, callbacks: State) -> None:
        dropped = sorted(callbacks.keys() - {str(max(1, index)) for index in self._places}, key=int)
        if dropped:
            _LOGGER.warning(
                "The callback state of env runner(s) %s is dropped: there are only %d now. See "
                "docs/callbacks.md, State.",
                ", ".join(dropped),
                len(self._places),
            )

    def set_root_seed(self, root_seed: int) -> None:
        """Changes the seed of all randomness; runners with another one are made anew."""
        for index, place in self._places.items():
            if place.spec.root_seed == root_seed:
                continue
            place.spec = replace(place.spec, root_seed=root_seed)
            place.had_runner = False  # the next one does not replace it: nothing failed
            if self._pool is not None:
                self._pool.slots[index].kill()
            else:
                place.stop_runner()
