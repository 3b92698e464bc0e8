"""A short run with training and evaluation in processes, in which one fault happens.

    python -m tests.faults.fault_run FOLDER        where the main process is to suffer

In the folder: `fault`, pickled; `ready`, made when the fault is about to happen in the main
process; `outcome`, made at the end.
"""

import pickle
import signal
import sys
from pathlib import Path

from tests.small_runs import told_and_known
from trainer import PPOConfig, RLModuleSpec
from trainer.modules import ActorCriticModule
from trainer.runtime.process_start import choose_start_method
from trainer.testing import CountdownEnv, FaultyCallback, faulty_module, with_faults

STALL_LIMIT_S = 1.5 if choose_start_method() == "forkserver" else 6.0
"""Long enough for a process to start and be told from one that hangs."""

PATIENCE_S = 60.0
"""Where nothing is to be waited for: a busy machine must not look like a fault."""

ITERATIONS = 2


def config(*faults, **settings):
    """Two training runners with two envs each, and one for evaluation in each iteration."""
    made = (
        PPOConfig()
        .environment(
            with_faults(CountdownEnv, *faults), env_config={"min_length": 6, "max_length": 12}
        )
        .env_runners(num_env_runners=2, num_envs_per_env_runner=2)
        .training(train_batch_size=60, minibatch_size=30, num_epochs=1)
        .rl_module(
            rl_module_spec=RLModuleSpec(
                module_class=faulty_module(ActorCriticModule, *faults),
                model_config={"fcnet_hiddens": [8]},
            )
        )
        .callbacks([FaultyCallback(*faults)])
        .evaluation(evaluation_interval=1, evaluation_duration=3, evaluation_num_env_runners=1)
        .debugging(seed=5)
    )
    stalls = any(
        fault.way in ("sigstop", "hang") and fault.place not in ("close", "unpack")
        for fault in faults
    )
    limit_s = STALL_LIMIT_S if stalls else PATIENCE_S
    limits = {
        "sample_timeout_s": limit_s,
        "evaluation_sample_timeout_s": limit_s,
        "env_runner_restore_timeout_s": limit_s,
    }
    return made.update_from_dict({**limits, **settings})


def outcome(algo):
    """The next results and everything the algorithm knows after them, but the settings."""
    return told_and_known(algo, [algo.train() for _ in range(ITERATIONS)])


def main(folder):
    """Makes the run; the fault is in a file."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent may have switched it off
    fault = pickle.loads((folder / "fault").read_bytes())
    with config(fault).build_algo() as algo:
        (folder / "ready").touch()
        (folder / "outcome").write_bytes(outcome(algo))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
