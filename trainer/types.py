"""Names, type aliases and marks that every room shares; no behaviour."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

DEFAULT_MODULE_ID: Final = "default_policy"
"""The module of a single-agent algorithm."""

DEFAULT_AGENT_ID: Final = "default_agent"
"""The agent of a single-agent env."""

AgentId = str | int
"""Names who acts in an env (see `trainer.agent_ids`); a bool is no name."""

ModuleId = str
"""Names a module: a network with what belongs to it."""

FloatArray = npt.NDArray[np.float32]
"""An array of float32, the number type of data, weights and gradients."""

Array = npt.NDArray[Any]
"""An array of any dtype."""

State = dict[str, Any]
"""Plain data (see `checkpoints.codec`): everything that is needed to resume one component."""


class ToBeDrawn:
    """Stands for a value that `trainer.tune` draws for each trial, such as `tune.uniform(0, 1)`."""
