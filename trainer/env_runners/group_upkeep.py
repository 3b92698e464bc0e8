"""What is done to the runners of a group as a whole: other weights, another seed, more runners."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final

import numpy as np

from checkpoints.arguments import integer, takes
from trainer.connectors import Normalization
from trainer.env_runners.async_calls import AsyncCalls
from trainer.env_runners.group_parts import GroupParts
from trainer.env_runners.rounds import Ask
from trainer.env_runners.spec import Weights
from trainer.errors import ConfigError, TrainerError
from trainer.types import DEFAULT_MODULE_ID, State

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
