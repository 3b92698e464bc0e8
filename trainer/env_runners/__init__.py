"""The acting side: runners that step envs, in worker processes or in the main process.

Never imports learning.
"""

from trainer.env_runners.env_runner import EnvRunner, get_global_worker
from trainer.env_runners.messages import (
    Assignment,
    EnvRunnerSpec,
    TrajectoryPostprocessing,
    Weights,
)
from trainer.env_runners.multi_agent_env_runner import MultiAgentEnvRunner
from trainer.env_runners.single_agent_env_runner import SingleAgentEnvRunner
