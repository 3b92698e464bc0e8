"""Sub-envs that fail are made anew, one at a time (`restart_failed_sub_environments`).

    step or reset raised    the sub-env is closed and made again, its running episode is played
                            again without any event, and the failed call is made once more
    while it is played      likewise, again and again, as long as that gets somewhere
    three times there       the episode is given up, counted, and the next one gets a fresh number
    too often in a row      the failure is the runner's, and what it raised comes out

What happens to one sub-env depends on that sub-env alone, so it makes no difference how they are
spread over runners.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from typing import Any, Final, Protocol

import gymnasium

from callbacks import CallbackError
from trainer.env_runners.env_slot import EnvSlot
from trainer.env_runners.messages import (
    REPAIRING,
    ActivityNotes,
    EnvRestarts,
    RunnerParts,
    SlotPosition,
)
from trainer.envs import EnvContext, VectorEnv
from trainer.envs.env_checks import SeveralAgentsError, check_reset_signature
from trainer.envs.native_vector_env import NativeVectorEnv
from trainer.errors import EnvContractError, EnvCreationError
from trainer.runtime.restart_policy import Attempt, Attempts

# ---- env making


MadeEnv = tuple[gymnasium.Env[Any, Any], EnvContext]
"""A sub-env and its context."""


class CheckFirst(Protocol):
    """Looks at the first sub-env of a runner."""

    def __call__(self, env: gymnasium.Env[Any, Any], *, name: str) -> object:
        """Raises an EnvContractError if the runner cannot play it."""


def make_vector_env(
    runner: RunnerParts,
    kind: type[VectorEnv],
    *,
    is_recreated: bool,
    check_first: CheckFirst,
    first: MadeEnv | None = None,
) -> VectorEnv:
    """All sub-envs of a runner; callbacks are told of each, and of all together.

    `check_first` looks at the first sub-env before callbacks see it; it may be made already
    (`first`).

    Raises:
        EnvCreationError, EnvContractError: an env could not be made or breaks the contract.
        SeveralAgentsError: `check_first` found that another kind of runner plays it.
    """
    envs, contexts = [], []
    for index in range(runner.spec.num_envs):
        made = first if index == 0 else None
        made = made or _made(runner, index, is_recreated=is_recreated)
        if index == 0:
            _check_first(made, check_first, name=runner.spec.env_factory.name)
        env, context = _with_context(runner, index, made)
        envs.append(env)
        contexts.append(context)
    vector_env = kind(envs, contexts)
    _fire_created(runner, vector_env, contexts[0])
    return vector_env


def make_native_vector_env(runner: RunnerParts, *, is_recreated: bool) -> NativeVectorEnv:
    """A vector env that steps all its sub-envs in one call; callbacks are told of it as a whole.

    Raises:
        EnvCreationError, EnvContractError: it could not be made or breaks the contract.
    """
    spec = runner.spec
    native, context = spec.env_factory.make_vector(
        spec.num_envs,
        worker_index=spec.worker_index,
        num_workers=spec.num_workers,
        recreated_worker=is_recreated,
        is_evaluation=spec.in_evaluation,
        unique_index=2 * spec.first_slot + spec.in_evaluation,
    )
    env = NativeVectorEnv(native, context)
    _fire_created(runner, env, context)
    return env


def _fire_created(runner: RunnerParts, env: Any, context: EnvContext) -> None:
    runner.callbacks.fire(
        "on_environment_created",
        env_runner=runner,
        metrics_logger=runner.metrics,
        env=env,
        env_context=context,
    )


def make_again(runner: RunnerParts, index: int) -> gymnasium.Env[Any, Any]:
    """A new sub-env in the place of one that was closed; the others are not touched.

    Callbacks are told of it by `on_sub_environment_created`. `on_environment_created` does not
    fire: the `env` that they know is the same one.
    """
    env, context = _with_context(runner, index, _made(runner, index, is_recreated=True))
    runner.env.replace(index, env, context)
    return env


def _made(runner: RunnerParts, index: int, *, is_recreated: bool) -> MadeEnv:
    spec = runner.spec
    return spec.env_factory.make(
        worker_index=spec.worker_index,
        vector_index=index,
        num_workers=spec.num_workers,
        recreated_worker=is_recreated,
        is_evaluation=spec.in_evaluation,
        unique_index=2 * (spec.first_slot + index) + spec.in_evaluation,
    )


def _with_context(runner: RunnerParts, index: int, made: MadeEnv) -> MadeEnv:
    """Tells callbacks of a sub-env, and puts the connector pieces beside it."""
    spec, (env, context) = runner.spec, made
    if index == 0:
        check_reset_signature(env, name=spec.env_factory.name)
    runner.callbacks.fire(
        "on_sub_environment_created",
        env_runner=runner,
        metrics_logger=runner.metrics,
        sub_environment=env,
        env_context=context,
        env_index=index,
    )
    if spec.connectors is not None:
        connected = runner.connected(env, spec.connectors)
        if spec.in_evaluation:
            connected.begin_every_episode_from(None)
        env = connected
    return env, context


def _check_first(made: MadeEnv, check: CheckFirst, *, name: str) -> None:
    try:
        check(made[0], name=name)
    except SeveralAgentsError as error:
        error.made = made
        raise


# ---- sub env repair

_MOST_FAILURES_IN_A_ROW: Final = 10
"""Three episodes in a row, each tried three times: it is not the episodes' fault."""

_MOST_FAILURES_AT_ALL: Final = 100
"""An episode so long that the env never lasts through it cannot be played again."""

OnStep = Callable[[], None]
"""Called after a step that is played again."""

_MOST_TEXTS: Final = 20
"""Messages per answer: those of an env that fails all the time are alike."""


_NO_RESTARTS: Final = EnvRestarts()


class SubEnvRepair:
    """Repairs the sub-envs of one runner.

    Failures are in a row if the sub-env has since neither got past the failed place, nor ended an
    episode, nor answered a request, nor made progress while its episode was played again; see
    `Attempts`.

    Attributes:
        is_on: whether it does anything; it does nothing but raise otherwise.
    """

    def __init__(
        self,
        runner: RunnerParts,
        activity: ActivityNotes,
        *,
        to_env: Callable[[Any], Any],
        on_step: OnStep,
    ) -> None:
        """Prepares for failures.

        `on_step` is called after every step that is played again.
        """
        tolerance = runner.spec.sub_env_tolerance
        self.is_on = tolerance is not None
        self._most = min(tolerance or 0, _MOST_FAILURES_IN_A_ROW)
        self._runner, self._activity = runner, activity
        self._to_env, self._on_step = to_env, on_step
        self._attempts: dict[int, Attempts] = {}
        self._begin_report()

    def _begin_report(self) -> None:
        self._texts: list[str] = []
        self._num_restarts = self._num_episodes_lost = self._num_env_steps_lost = 0
        self._repair_s = 0.0

    def take_report(self) -> EnvRestarts:
        """What was done since this was last called; a request has been answered then."""
        if not (self._num_restarts or self._texts or self._num_episodes_lost):
            self.forget_failures()
            return _NO_RESTARTS
        report = EnvRestarts(
            self._num_restarts,
            self._num_episodes_lost,
            self._num_env_steps_lost,
            self._repair_s,
            tuple(self._texts[:_MOST_TEXTS]) + self._rest(),
        )
        self._begin_report()
        self.forget_failures()
        return report

    def _rest(self) -> tuple[str, ...]:
        num_more = len(self._texts) - _MOST_TEXTS
        return (f"and {num_more} more messages like these",) if num_more > 0 else ()

    def forget_failures(self) -> None:
        """Whatever fails next is the first failure in a row."""
        self._attempts.clear()

    def note_progress(self, slot: EnvSlot) -> None:
        """Notes that a sub-env got past a failure, or ended an episode."""
        if self._attempts:
            self._attempts.pop(slot.index, None)

    # ---- repairing

    def repair_slot(self, slot: EnvSlot, error: Exception) -> bool:
        """Makes a sub-env anew whose step or reset raised, and puts its episode back.

        Returns:
            whether the failed call is to be made again; if not, the episode was given up, and what
            was played of it is to be left out.

        Raises:
            Exception: the error, if it is not to be repaired here.
        """
        self._raise_what_is_no_fault(slot, error)
        began, where = time.perf_counter(), _place_of(slot)
        comes_again = self._count(slot, error, slot.num_steps_played)
        self.make_again(slot)
        is_back = not comes_again and self._is_put_back(
            slot, lambda on_step: _replay_running(slot, self._to_env, on_step)
        )
        loss = "" if is_back else self._give_up(slot)
        self._note(slot, error, where, loss, began)
        return is_back

    def put_back(
        self,
        slot: EnvSlot,
        position: SlotPosition,
        attempt: Callable[[OnStep], bool],
    ) -> bool:
        """Makes an attempt to put a slot back, and others with a new env while its env raises.

        The attempt is given what to call after every step.

        Returns:
            what the attempt gives; False if it raises at the same place each time: the episode is
            lost then.
        """
        steps = _Steps(self._on_step)
        try:
            return attempt(steps)
        except Exception as error:  # noqa: BLE001 - raised again unless repaired
            self._raise_what_is_no_fault(slot, error)
            began, first = time.perf_counter(), error
        where = f"while episode {position.episode_number} (seed {position.env_seed}) was put back"
        comes_again = self._count(slot, first, steps.count)
        self.make_again(slot)
        is_back = not comes_again and self._is_put_back(slot, attempt)
        if not is_back and self._attempts[slot.index].comes_again:
            self._attempts[slot.index].play_other()
            slot.episode_number = position.episode_number + 1
            self._note(slot, first, where, "again and again; the episode is given up", began)
            return False
        self._note(slot, first, where, "", began)
        return is_back

    def _raise_what_is_no_fault(self, slot: EnvSlot, error: Exception) -> None:
        """Raises errors that would come again, and everything if nothing is to be repaired."""
        is_no_fault = isinstance(error, (CallbackError, EnvContractError, EnvCreationError))
        if not self.is_on or is_no_fault:
            raise error
        spec = self._runner.spec
        if spec.checks_env and slot.episode is not None:
            self._runner.explain(error, [slot.episode])

    def _count(self, slot: EnvSlot, error: Exception, num_steps: int) -> bool:
        """Counts a failure; whether its episode is to be given up. Raises it if it is too much."""
        attempts = self._attempts.setdefault(slot.index, Attempts())
        attempts.add(Attempt(num_steps=num_steps, has_raised=True))
        # An episode of an evaluation that is asked for cannot be left out for another one.
        is_owed = slot.assignment.ticket is not None and slot.assignment.num_episodes is not None
        if (
            attempts.num_without_progress > self._most
            or attempts.num_failures > _MOST_FAILURES_AT_ALL
            or (attempts.comes_again and is_owed)
        ):
            raise error
        return attempts.comes_again

    def make_again(self, slot: EnvSlot) -> None:
        """Puts a new sub-env in the place of one, which is closed."""
        self._activity.doing(REPAIRING)
        self._num_restarts += 1
        try:
            slot.env.close()
        except Exception as error:  # noqa: BLE001 - told; the env is of no use any more
            self._texts.append(
                f"Closing the failed sub-env {slot.index} raised {type(error).__name__}: {error}"
            )
        slot.take_env(make_again(self._runner, slot.index))
        self._on_step()

    def _is_put_back(self, slot: EnvSlot, attempt: Callable[[OnStep], bool]) -> bool:
        """Brings new envs to where an episode stood until one comes there; whether one did."""
        while True:
            steps = _Steps(self._on_step)
            try:
                return attempt(steps)
            except Exception as error:  # noqa: BLE001 - raised again unless repaired
                self._raise_what_is_no_fault(slot, error)
                comes_again = self._count(slot, error, steps.count)
            self.make_again(slot)
            if comes_again:
                return False

    def _give_up(self, slot: EnvSlot) -> str:
        attempts = self._attempts[slot.index]
        why = "failed there again" if attempts.comes_again else "could not be put back"
        attempts.play_other()
        self._num_episodes_lost += 1
        self._num_env_steps_lost += slot.num_steps_played
        return f"its episode, which {why}, is given up"

    def _note(self, slot: EnvSlot, error: Exception, where: str, loss: str, began: float) -> None:
        took_s = time.perf_counter() - began
        self._repair_s += took_s
        name = f"{type(error).__module__}.{type(error).__qualname__}"
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        self._texts.append(
            f"sub-env {slot.index} raised {name}: {error} ({where}); it was made anew in "
            f"{took_s:.3f} s, and {loss or 'its episode goes on'}.\n{''.join(lines).rstrip()}"
        )


class _Steps:
    """Counts steps that are made, and passes them on."""

    def __init__(self, on_step: OnStep) -> None:
        self._on_step = on_step
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        self._on_step()


def _replay_running(slot: EnvSlot, to_env: Callable[[Any], Any], on_step: OnStep) -> bool:
    """Plays the running episode again in a new env; whether it came to the same place."""
    if slot.episode is None or not slot.episode.is_reset:
        return True  # the reset comes next
    return slot.replay_running(to_env, on_step=on_step)


def _place_of(slot: EnvSlot) -> str:
    context = slot.failure_context()
    return ", ".join(f"{key} {value}" for key, value in context.items() if key != "sub-env")
