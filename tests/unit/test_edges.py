"""Where users hand something in and a wrong type would do harm: refused at once, by name.

Elsewhere Python's own errors are clear enough. A new row needs its reason: wrong numbers, lost
files, code that runs unasked, a value that gets into a state, or an error that nobody can read.
"""

import ast
import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import callbacks
import checkpoints
import trainer
from trainer import tune
from trainer.envs import multi_agent_env
from trainer.modules.actor_critic import ActorCriticModule
from trainer.testing.envs import CountdownEnv
from trainer_toolkit.arguments import ArgumentError, takes
from trainer_toolkit.checks import boolean, either, integer, optional

_FLAG = "True or False"
_ENDS_WITH = (
    "a path that ends with {} (export_onnx writes .onnx, export_torch .pt2, export_policy .npz)"
)
_PIECES = "None or a list of pieces (ConnectorV2)"
_SPACE = gymnasium.spaces.Discrete(2)


@pytest.fixture(scope="module")
def algo():
    config = trainer.PPOConfig().environment(CountdownEnv).env_runners(num_env_runners=0)
    config.training(train_batch_size=20, minibatch_size=10, num_epochs=1)
    config.rl_module(model_config={"fcnet_hiddens": [4]}).debugging(seed=1)
    with config.build_algo() as made:
        yield made


_STEPS = "an int ≥ 0 and ≤ 9,007,199,254,740,992"
EDGES = [
    # Files that are replaced, code that runs: the text "no" would count as True.
    ("Checkpointable.save_to_path", ("x",), {"background": "no"}, _FLAG),
    ("Algorithm.from_checkpoint", ("x",), {"allow_code": "no"}, _FLAG),
    ("Algorithm.restore_from_path", ("x",), {"allow_code": 1}, _FLAG),
    ("read_code", ("x",), {"allow_code": "no"}, _FLAG),
    ("ConfigValues.from_state", ({},), {"allow_code": "no"}, _FLAG),
    ("Tuner.restore", ("x",), {"allow_code": "no"}, _FLAG),
    ("export_weights", ("x", "y"), {"overwrite": "no"}, _FLAG),
    ("export_policy", (None, "x.npz"), {"overwrite": "no"}, _FLAG),
    ("export_policy", (None,), {"file": "x.txt"}, _ENDS_WITH.format(".npz")),
    ("export_onnx", (None, "x.onnx"), {"overwrite": "no"}, _FLAG),
    ("export_onnx", (None,), {"file": "x.pt2"}, _ENDS_WITH.format(".onnx")),
    ("export_torch", (None, "x.pt2"), {"overwrite": "no"}, _FLAG),
    ("export_torch", (None,), {"file": "x.onnx"}, _ENDS_WITH.format(".pt2")),
    # Configs, envs, networks: it would come out in a runner, or deep in a build.
    ("AlgorithmConfig.__init__", (), {"algo_class": "PPO"}, "None or a class"),
    ("ConfigValues.update_from_dict", (), {"config_dict": "x"}, "a dict"),
    ("register_env", (), {"name": 3, "env_creator": CountdownEnv}, "a string"),
    ("MultiAgentWrapper.__init__", (), {"env": 3}, "an env of several agents"),
    ("RLModule.__init__", (), {"action_space": 2, "observation_space": _SPACE}, "a Space"),
    ("RLModuleSpec", (), {"model_config": 3}, "None or a dict or a DefaultModelConfig"),
    ("MultiRLModuleSpec.__init__", (), {"modules_to_load": "a"}, "None or a list of module ids"),
    ("Algorithm.add_module", ("x",), {"module_spec": 3}, "None or an RLModuleSpec"),
    ("Matchups.__init__", ([{"a": "main"}],), {"seed": "1"}, "an int"),
    ("FrameStacking.__init__", (), {"num_frames": 2.5}, "an int"),
    ("PrevActionsPrevRewards.__init__", (), {"n_prev_rewards": -1}, "an int ≥ 0"),
    ("ConnectorPipelineV2.__init__", (), {"connectors": [3]}, _PIECES),
    # Numbers: others would come of it, or one would get into a state.
    ("Algorithm.adopt_root_seed", (), {"root_seed": -1}, "an int ≥ 0"),
    ("Algorithm.compute_single_action", (0,), {"explore": "no"}, f"None or {_FLAG}"),
    ("PolicyNames.compute_actions", (), {"obs_batch": "x"}, "an array of numbers"),
    ("PolicyNames.compute_log_likelihoods", ([0],), {"obs_batch": "x"}, "an array of numbers"),
    ("compute_advantages", ({}, 0.0), {"use_gae": "no"}, _FLAG),
    ("MultiAgentBatch.timeslices", (), {"k": 0}, "an int ≥ 1"),
    ("EnvRunner.sample", (), {"num_timesteps": 2.5}, "None or an int"),
    ("EnvRunnerGroup.sample_env_steps", (), {"num_env_steps": 2.5}, _STEPS),
    ("EnvRunnerGroup.sample_agent_steps", (), {"num_agent_steps": -1}, _STEPS),
    ("EnvRunnerGroup.add_workers", (), {"num_workers": 5000}, "an int ≤ 4,096"),
    ("EnvRunnerGroup.foreach_env_runner", (repr,), {"timeout_seconds": "3"}, "None or a number"),
    # Tuning: it would come out after hours, or be written to the journal.
    ("ASHAScheduler.__init__", (), {"max_t": "100"}, "a number"),
    ("HyperBandScheduler.__init__", (), {"stop_last_trials": "no"}, _FLAG),
    ("MedianStoppingRule.__init__", (), {"min_samples_required": 2.5}, "an int"),
    ("PopulationBasedTraining.__init__", (), {"perturbation_interval": "5"}, "a number"),
    ("MaximumIterationStopper.__init__", (), {"max_iter": "3"}, "an int"),
    ("TrialPlateauStopper.__init__", ("loss",), {"num_results": 2.5}, "an int"),
    ("ExperimentPlateauStopper.__init__", ("loss",), {"top": 2.5}, "an int"),
    ("ProgressReporter.__init__", (), {"max_progress_rows": 2.5}, "an int"),
]
"""Place, arguments that are right, the wrong one (and others by name after it), expected."""


def _found(place, algo):
    owner, _, name = place.rpartition(".")
    homes = (trainer, tune, tune.schedulers, tune.stopper, checkpoints, multi_agent_env)
    if name == "__init__" or not owner:
        found = [vars(home)[owner or name] for home in homes if (owner or name) in vars(home)]
        return ActorCriticModule if owner == "RLModule" else found[0]  # that one is abstract
    objects = {
        "Checkpointable": algo,
        "Algorithm": algo,
        "ConfigValues": trainer.PPOConfig(),
        "EnvRunner": algo.env_runner,
        "EnvRunnerGroup": algo.env_runner_group,
        "MultiAgentBatch": trainer.MultiAgentBatch({}, 0),
        "PolicyNames": algo.get_module(),
        "Tuner": tune.Tuner,
    }
    return getattr(objects[owner], name)


@pytest.mark.parametrize(
    ("place", "right", "wrong", "expected"), EDGES, ids=[place for place, *_ in EDGES]
)
def test_a_wrong_argument_is_refused_by_name(place, right, wrong, expected, algo):
    with pytest.raises(ArgumentError) as caught:
        _found(place, algo)(*right, **wrong)
    called, _, text = str(caught.value).partition("(): ")
    name, value = next(iter(wrong.items()))
    assert called.rpartition(".")[2] == place.removesuffix(".__init__").rpartition(".")[2]
    assert text == (
        f"`{name}={value!r}` is of type {type(value).__name__}; expected {expected}. "
        f"Give {name} as that."
    )
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ValueError)


def test_the_list_of_edges_is_whole():
    found = set()
    for package in (callbacks, checkpoints, trainer):
        for file in Path(str(package.__file__)).parent.rglob("*.py"):
            found |= set(_checked_places(ast.parse(file.read_text(encoding="utf-8"))))
    assert found == {place for place, *_ in EDGES} - {"RLModuleSpec"}  # a data class, by hand


def _checked_places(node, owner=""):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _checked_places(child, f"{child.name}.")
        for decorator in getattr(child, "decorator_list", []):
            if ast.unparse(decorator).startswith("takes("):
                yield f"{owner}{child.name}"


def test_scalars_of_numpy_become_numbers_of_python(algo):
    seven, half = np.int64(7), np.float32(0.5)
    asha = tune.schedulers.ASHAScheduler(max_t=seven, brackets=np.int64(1))
    halving = tune.schedulers.HyperBandScheduler(max_t=seven, reduction_factor=half * 6)
    median = tune.schedulers.MedianStoppingRule(grace_period=half, min_samples_required=seven)
    for scheduler in (asha, halving, median):
        json.dumps(scheduler.describe())  # as the journal does
    algo.adopt_root_seed(seven)
    sample = algo.env_runner_group.sample_env_steps(np.int64(3))
    kept = [
        algo.root_seed,
        sample.num_env_steps,
        trainer.FrameStacking(num_frames=seven).num_frames,
        trainer.Matchups([{"a": "main"}], seed=seven).seed,
        tune.ProgressReporter(max_progress_rows=seven).max_progress_rows,
    ]
    assert [type(value) for value in kept] == [int] * len(kept)
    assert sum(map(len, algo.env_runner.sample(num_timesteps=np.int64(2)))) == 2


def test_a_config_takes_scalars_of_numpy():
    config = trainer.PPOConfig().environment(CountdownEnv)
    config.env_runners(num_env_runners=np.int64(0))
    config.training(
        train_batch_size=np.int32(20),
        minibatch_size=np.uint8(10),
        num_epochs=np.int64(1),
        lr=np.float32(0.01),
        gamma=np.float64(0.9),
        grad_clip=np.float32(1.0),
        use_critic=np.bool_(True),
        model={"fcnet_hiddens": [np.int64(4)], "vf_share_layers": np.bool_(False)},
    )
    config.evaluation(
        evaluation_interval=np.int64(1),
        evaluation_duration=np.int64(1),
        evaluation_num_env_runners=np.int64(0),
    ).debugging(seed=np.int64(3))
    config.exploration(explore=np.bool_(True))
    with config.build_algo() as algo:
        algo.train()
        plain = type(config)().update_from_dict(algo.config.to_dict())
        assert type(plain.train_batch_size) is int


def test_values_are_judged_at_every_call_by_position_and_by_name():
    @takes(count=integer(1), choice=either(integer(1), boolean()), flag=optional(boolean()))
    def given(count, choice=True, *, flag=None):
        return count, choice, flag

    assert given(1) == (1, True, None)
    assert given(2, False, flag=True) == (2, False, True)
    count, _, flag = given(count=np.int64(5), flag=np.bool_(True))
    assert (type(count), type(flag)) == (int, bool)
    for wrong in ({"count": 0}, {"count": True}, {"choice": 0}, {"flag": 1}):
        with pytest.raises(ArgumentError, match=f"`{next(iter(wrong))}="):
            given(**{"count": 1, **wrong})
