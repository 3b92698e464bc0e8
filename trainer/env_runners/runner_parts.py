"""What the parts of an env runner know of each other."""

from __future__ import annotations

from typing import ClassVar, Protocol

from callbacks import CallbackChain
from trainer.env_runners.messages import EnvRunnerSpec
from trainer.envs import VectorEnv
from trainer.metrics import MetricsLogger
from trainer.modules import RLModule
from trainer.types import ModuleId


class RunnerParts(Protocol):
    """The parts of a runner that its loop works with."""

    plays_several_agents: ClassVar[bool]
    spec: EnvRunnerSpec
    env: VectorEnv
    module: RLModule
    module_id: ModuleId
    metrics: MetricsLogger
    callbacks: CallbackChain
