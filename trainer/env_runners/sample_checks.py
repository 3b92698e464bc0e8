"""Whether episodes that callbacks could change still hang together, before they are learnt from.

It looks at the form only: what the numbers are is the learner's to judge.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from trainer.episodes import SingleAgentEpisode
from trainer.episodes.lookback_buffer import LookbackBuffer
from trainer.errors import EpisodeError


def check_samples(samples: Sequence[Any], outputs_before: Mapping[str, Collection[str]]) -> None:
    """Checks what `on_sample_end` left in the list of episodes.

    Args:
        samples: the list that callbacks were given.
        outputs_before: the names of each episode's `extra_model_outputs`, by the episode's id.

    Raises:
        EpisodeError: something is no episode, or columns of one do not fit together any more.
    """
    for place, episode in enumerate(samples):
        if not isinstance(episode, SingleAgentEpisode):
            raise EpisodeError(
                f"samples[{place}] is {type(episode).__name__} now; expected a SingleAgentEpisode. "
                "Remove what is not to be learnt from: `samples[:] = [those to be kept]`."
            )
        _check_columns(episode)
        removed = set(outputs_before.get(episode.id_, ())) - episode.extra_model_outputs.keys()
        if removed:
            raise EpisodeError(
                f"The column {min(removed)!r} of {episode.id_!r} was removed from "
                "extra_model_outputs, but is needed. Leave it there; names of your own may be "
                "added."
            )


def _check_columns(episode: SingleAgentEpisode) -> None:
    """All columns are buffers, and have one entry per env step; observations and infos one more."""
    columns: dict[str, tuple[Any, int]] = {
        "observations": (episode.observations, 1),
        "infos": (episode.infos, 1),
        "actions": (episode.actions, 0),
        "rewards": (episode.rewards, 0),
        **{
            f"extra_model_outputs[{name!r}]": (column, 0)
            for name, column in episode.extra_model_outputs.items()
        },
    }
    for name, (column, _) in columns.items():
        if not isinstance(column, LookbackBuffer):
            raise EpisodeError(
                f"The column {name!r} of {episode.id_!r} is {type(column).__name__} now; expected "
                "the LookbackBuffer that was there. Change what that holds (`set_rewards()`, …)."
            )
    num_steps = len(episode.actions)
    for name, (column, more) in columns.items():
        if len(column) != num_steps + more:
            raise EpisodeError(
                f"The column {name!r} of {episode.id_!r} has {len(column)} entries now, but "
                f"'actions' has {num_steps}; expected {num_steps + more}. Every column has one "
                "entry per env step, and observations and infos one more. Change entries in place, "
                "or shorten the episode as a whole: `samples[i] = episode[:n]`."
            )
