"""Arguments of RLlib's `Algorithm.from_checkpoint` that choose among several policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trainer.errors import ConfigError
from trainer.types import DEFAULT_MODULE_ID

_POLICY_ARGUMENTS: Final = ("policy_ids", "policy_mapping_fn", "policies_to_train")


def without_policy_arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without those of them that are None; raises a ConfigError if one is given."""
    given = [name for name in _POLICY_ARGUMENTS if settings.get(name) is not None]
    if given:
        raise ConfigError(
            f"from_checkpoint() was given {', '.join(given)}: an algorithm here has one module, "
            f"{DEFAULT_MODULE_ID!r}, so there is nothing to choose. Leave it out; for the weights "
            "of the module alone, use RLModule.from_checkpoint(f'{path}/learner/rl_module')."
        )
    return {name: value for name, value in settings.items() if name not in _POLICY_ARGUMENTS}
