"""Answers of an env that have another form than its first ones: found where they are taken apart.

Only the first answers are checked, so that steps cost nothing more. A later one that is not the
tuple it should be cannot be taken apart; that error says nothing to the user, and these do.
"""

from __future__ import annotations

from typing import Any

from trainer.env_runners.env_slot import EnvSlot
from trainer.envs.env_checks import check_reset_form, check_step_form
from trainer.errors import EnvContractError


def blame_step(error: BaseException, answer: Any, slot: EnvSlot, *, name: str) -> None:
    """Raises what is behind an error that came up while the answer to a step was taken apart.

    Args:
        error: caught where it was raised or came through; not from deeper code, such as the env's.
        answer: what `step` returned last.
        slot: whose step it was.
        name: of the env, for the message.

    Raises:
        EnvContractError: the answer is not what it should be, with the error as cause.
    """
    traceback = error.__traceback__
    if traceback is None or traceback.tb_next is not None:
        return  # raised within the env, or by what became of an answer in order
    is_recorded = isinstance(answer, tuple) and len(answer) == 5
    step = slot.num_steps_played + (0 if is_recorded else 1)
    try:
        check_step_form(answer, name=name, when=_when(slot, step=step))
    except EnvContractError as breach:
        raise breach from error


def parts_of_reset(answer: Any, slot: EnvSlot, *, name: str) -> tuple[Any, Any]:
    """The observation and the info that `reset` returned.

    Raises:
        EnvContractError: these are not the two parts of what it returned.
    """
    # By type: an observation of two numbers could be taken apart as well.
    if not (isinstance(answer, (tuple, list)) and len(answer) == 2):
        check_reset_form(answer, name=name, when=_when(slot, step=0))
    observation, infos = answer
    return observation, infos


def _when(slot: EnvSlot, *, step: int) -> str:
    episode = "none" if slot.episode is None else slot.episode.id_
    return f" at step {step} of episode {episode!r} in sub-env {slot.index}"
