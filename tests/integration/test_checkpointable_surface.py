"""RLlib's methods of saving and restoring for every class that has them, and the older names."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest

from callbacks import RLlibCallback
from checkpoints import (
    Checkpointable,
    CheckpointMismatchError,
    encode,
    latest_checkpoint,
    read_checkpoint,
    read_manifest,
    write_checkpoint,
)
from tests.small_runs import small_ppo
from trainer import (
    DQN,
    PPO,
    Algorithm,
    ConfigError,
    DQNConfig,
    MetricsLogger,
    RLModule,
    TrainedPolicy,
    tune,
)
from trainer.metrics import comparable
from trainer.modules import ActorCriticModule
from trainer.replay import PrioritizedReplayBuffer, ReplayBuffer

pytestmark = pytest.mark.process


class Loaded(RLlibCallback):
    def __init__(self):
        self.times = 0

    def on_checkpoint_loaded(self, **kwargs):
        self.times += 1


def ppo():
    return small_ppo(env="CartPole-v1", num_slots=2, batch=40, seed=3)


def dqn():
    return (
        DQNConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0)
        .training(
            train_batch_size=8,
            num_steps_sampled_before_learning_starts=10,
            replay_buffer_config={"type": "PrioritizedReplayBuffer", "capacity": 64},
        )
        .training(model={"fcnet_hiddens": [8]})
        .reporting(min_sample_timesteps_per_iteration=20)
        .debugging(seed=3)
    )


@pytest.fixture(scope="module")
def algo():
    with ppo().build_algo() as made:
        made.train()
        made.metrics.log_value("speed", 2.0, window=3)
        yield made


@pytest.fixture(scope="module")
def saved(algo, tmp_path_factory):
    return Path(algo.save_to_path(tmp_path_factory.mktemp("run") / "000001"))


@pytest.fixture(scope="module")
def off_policy():
    with dqn().build_algo() as made:
        made.train()
        yield made


@pytest.fixture(scope="module")
def off_policy_saved(off_policy, tmp_path_factory):
    return Path(off_policy.save_to_path(tmp_path_factory.mktemp("dqn") / "000001"))


def bytes_of(path):
    return {name: entry.sha256 for name, entry in read_manifest(path).components.items()}


# ---- every class alone


def test_module_is_made_again_from_nothing_but_a_path(algo, saved):
    obs = {"obs": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}
    expected = algo.get_module().forward_inference(obs)["action_dist_inputs"]
    for cls in (RLModule, ActorCriticModule):
        module = cls.from_checkpoint(saved / "learner" / "rl_module")
        assert type(module) is ActorCriticModule
        assert module.observation_space == algo.get_module().observation_space
        assert np.array_equal(module.forward_inference(obs)["action_dist_inputs"], expected)
    small = RLModule.from_checkpoint(saved / "learner" / "rl_module", inference_only=True)
    assert not any(name.startswith("vf/") for name in small.get_state())
    assert np.array_equal(small.forward_inference(obs)["action_dist_inputs"], expected)


def test_module_alone(algo, tmp_path):
    module = algo.get_module()
    path = module.save_to_path(tmp_path / "module")
    again = RLModule.from_checkpoint(path)
    assert encode(again.get_state()) == encode(module.get_state())
    assert bytes_of(again.save_to_path(tmp_path / "again")) == bytes_of(path)
    assert set(module.get_state("pi")) | set(module.get_state("vf")) == set(module.get_state())
    assert set(module.get_state(not_components="vf/0")) == {
        name for name in module.get_state() if not name.startswith("vf/0/")
    }


@pytest.mark.parametrize(
    "inside", ["learner_group/learner/rl_module/p0", "policies/default_policy", "learner", ""]
)
def test_a_path_that_leads_to_no_module_is_told_what_there_is(inside, saved):
    with pytest.raises(CheckpointMismatchError) as caught:
        RLModule.from_checkpoint(saved / inside)
    assert f"no module at {repr(inside) if inside else 'the top'} of" in str(caught.value)
    assert "its modules are ['learner/rl_module']." in str(caught.value)


@pytest.mark.parametrize("inside", ["", "learner_group/learner/rl_module/another", "config"])
def test_wrong_paths_to_a_module_are_told_the_right_one(inside, saved):
    with pytest.raises(CheckpointMismatchError, match="learner/rl_module"):
        RLModule.from_checkpoint(saved / inside)
    module = RLModule.from_checkpoint(saved / "learner" / "rl_module")
    with pytest.raises(CheckpointMismatchError, match=r"learner/rl_module|is unknown"):
        module.restore_from_path(saved / inside)


class Opening(ActorCriticModule):
    """Would do something with a text that it is made with."""

    def __init__(self, *, opens="", **arguments):
        if opens:
            raise AssertionError(f"{opens} was opened")
        super().__init__(**arguments)


class NoModule:
    def __init__(self, **arguments):
        raise AssertionError("was made")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"class": f"{__name__}.Opening", "kwargs": {"opens": "x"}}, "argument.* 'opens'"),
        ({"class": f"{__name__}.Opening", "args": ["x"]}, "1 without a name"),
        ({"class": f"{__name__}.NoModule"}, "no class of this name"),
        ({"class": "subprocess.Popen", "kwargs": {"args": "ls"}}, "no class of this name"),
        ({"class": "trainer.modules.rl_module.RLModule"}, "no class of this name"),
    ],
)
def test_a_checkpoint_chooses_neither_a_class_nor_arguments_freely(
    changed, message, saved, tmp_path
):
    contents = read_checkpoint(saved)
    weights = contents.components["learner/rl_module"]
    record = contents.components["constructors"]["learner/rl_module"]
    record = {**record, **changed, "kwargs": {**record["kwargs"], **changed.get("kwargs", {})}}
    components = {"state": weights, "constructors": {"": record}}
    path = write_checkpoint(tmp_path / "c", components=components, metadata={})
    with pytest.raises(CheckpointMismatchError, match=message):
        RLModule.from_checkpoint(path)


def test_class_of_the_users_own_is_found_by_its_name(saved, tmp_path):
    module = Opening.from_checkpoint(saved / "learner" / "rl_module")
    assert type(RLModule.from_checkpoint(module.save_to_path(tmp_path / "c"))) is Opening


def test_weights_alone_go_into_another_algorithm(algo, saved):
    with ppo().debugging(seed=9).build_algo() as other:
        for path in (saved, saved / "learner" / "rl_module"):  # ours, RLlib's
            other.learner.module.parameters.flat[:] = 0
            other.restore_from_path(path, component="learner/rl_module")
            assert encode(other.get_weights()) == encode(algo.get_weights())
        assert other.learner.num_updates == 0
        assert other.env_runner.module.get_state().keys() <= other.get_module().get_state().keys()


@pytest.mark.parametrize("name", ["algo", "off_policy"])
def test_learner_alone(name, request, tmp_path):
    made = request.getfixturevalue(name)
    learner = made.learner
    path = learner.save_to_path(tmp_path / "learner")
    arguments = {"module_spec": made.module_spec, "settings": learner.settings}
    with pytest.raises(CheckpointMismatchError, match=r"module_spec=\.\.\., settings=\.\.\."):
        type(learner).from_checkpoint(path)
    again = type(learner).from_checkpoint(path, **arguments)
    assert encode(again.get_state()) == encode(learner.get_state())
    assert again.root_seed == 3
    assert bytes_of(again.save_to_path(tmp_path / "again")) == bytes_of(path)
    assert list(learner.get_state("rl_module")) == ["rl_module"]
    assert "optimizer" not in learner.get_state(not_components=["optimizer"])
    weights = again.get_weights()
    again.set_state({"learner": again.get_state()["learner"]})  # a part changes only itself
    assert encode(again.get_weights()) == encode(weights)


def test_metrics_logger_alone(tmp_path):
    logger = MetricsLogger(root=True)
    for value in range(5):
        logger.log_value("a/b", value, window=3)
        logger.log_value("sum", value, reduce="sum")
    path = logger.save_to_path(tmp_path / "metrics")
    again = MetricsLogger.from_checkpoint(path)
    assert again.peek() == logger.peek()
    assert bytes_of(again.save_to_path(tmp_path / "again")) == bytes_of(path)
    assert again.reduce() == logger.reduce()  # a root, like the one that was saved
    assert logger.get_state(not_components="statistics") == {}


@pytest.mark.parametrize("prioritized", [False, True])
def test_replay_buffer_alone(prioritized, off_policy, off_policy_saved, tmp_path):
    buffer = off_policy.local_replay_buffer
    if not prioritized:
        plain = buffer.get_state()
        for name in ("alpha", "priorities", "largest_priority"):
            del plain[name]
        buffer = ReplayBuffer(64)
        buffer.set_state({**plain, "type": "ReplayBuffer"})
    path = buffer.save_to_path(tmp_path / "buffer")
    again = type(buffer).from_checkpoint(path)
    assert encode(again.get_state()) == encode(buffer.get_state())
    assert bytes_of(again.save_to_path(tmp_path / "again")) == bytes_of(path)
    rows = [b.sample(8, rng=np.random.default_rng(0)).rows.tolist() for b in (buffer, again)]
    assert rows[0] == rows[1]
    if prioritized:
        of_run = PrioritizedReplayBuffer.from_checkpoint(off_policy_saved / "replay_buffer")
        assert encode(of_run.get_state()) == encode(buffer.get_state())
        with pytest.raises(CheckpointMismatchError, match="alpha"):
            PrioritizedReplayBuffer.from_checkpoint(path, alpha=0.1)


def test_env_runner_alone(algo, tmp_path):
    runner = algo.env_runner
    path = runner.save_to_path(tmp_path / "runner")
    assert set(read_manifest(path).components) >= {"rl_module", "metrics", "callbacks"}
    before = encode(runner.get_state())
    runner.set_weights({name: array * 0 for name, array in runner.get_weights().items()})
    runner.metrics.log_value("x", 1)
    runner.restore_from_path(path)
    assert encode(runner.get_state()) == before
    assert bytes_of(runner.save_to_path(tmp_path / "again")) == bytes_of(path)
    assert list(runner.get_state("rl_module")) == ["rl_module"]
    with pytest.raises(CheckpointMismatchError, match=r"spec=\.\.\."):
        type(runner).from_checkpoint(path)


def test_all_of_them_are_checkpointable(algo, off_policy):
    found = [algo, algo.learner, algo.get_module(), algo.metrics, algo.env_runner]
    for one in [*found, off_policy.local_replay_buffer]:
        assert isinstance(one, Checkpointable)
        assert one.get_metadata()
        args, kwargs = one.get_ctor_args_and_kwargs()
        assert args or kwargs


# ---- the older names


def test_save_gives_a_path_that_is_a_result_and_restore_takes_all_of_them(algo, tmp_path):
    result = algo.save(tmp_path / "c")
    assert result == result.checkpoint.path == str(tmp_path / "c")
    assert result.metrics["training_iteration"] == algo.training_iteration
    assert "episode_return_mean" in result.metrics["env_runners"]
    with result.checkpoint.as_directory() as directory:
        assert latest_checkpoint(tmp_path) == Path(directory)
    copied = result.checkpoint.to_directory(tmp_path / "copy")
    known = encode(algo.get_state())
    tuned = tune.Checkpoint(result)  # what results of tuning have
    for given in (result, result.checkpoint, str(result), Path(result), copied, tuned):
        algo.learner.num_updates += 1
        algo.restore(given)
        assert encode(algo.get_state()) == known
        assert TrainedPolicy.from_checkpoint(given).training_iteration == algo.training_iteration
    algo.load_checkpoint(result.checkpoint)


@pytest.mark.parametrize("make", [ppo, dqn])
def test_from_state_goes_on_exactly(make):
    with make().callbacks(Loaded).build_algo() as algo:
        algo.train()
        state = copy.deepcopy(algo.__getstate__())
        expected = encode({**comparable(algo.train()), "config": None})
        algo.__setstate__(state)
        assert encode({**comparable(algo.train()), "config": None}) == expected
    assert state["algorithm_class"] == type(algo).__name__
    for cls in (Algorithm, type(algo)):
        with cls.from_state(state, callbacks_class=Loaded) as other:
            assert type(other) is type(algo)
            assert other.callbacks.objects[0].times == 1
            assert encode({**comparable(other.train()), "config": None}) == expected


def test_from_state_says_what_it_needs(algo):
    state = algo.__getstate__()
    without = {name: part for name, part in state.items() if name != "algorithm_class"}
    with pytest.raises(ValueError, match="lacks 'algorithm_class'"):
        Algorithm.from_state(without)
    with pytest.raises(ValueError, match="lacks 'config'"):
        PPO.from_state({"counters": {}})
    with pytest.raises(ConfigError, match="is no DQN"):
        DQN.from_state(state)
    with pytest.raises(CheckpointMismatchError, match="lacks 'counters'"):
        PPO.from_state({name: part for name, part in state.items() if name != "counters"})


def pickled_and_back(value):
    return pickle.loads(pickle.dumps(value))


def test_what_owns_processes_and_envs_is_neither_copied_nor_pickled(algo):
    for owner, advice in {
        algo: "from_checkpoint",
        algo.env_runner_group: r"EnvRunnerGroup\(config=…\)",
        algo.env_runner: r"get_weights\(\)",
    }.items():
        attempts = [copy.deepcopy, copy.copy, pickled_and_back]
        for attempt in attempts:
            with pytest.raises(TypeError, match=f"cannot be copied or pickled: .*{advice}"):
                attempt(owner)


def test_a_policy_that_there_is_not_cannot_be_chosen(saved):
    with pytest.raises(ConfigError, match=r"policy_ids.*there is no module 'other'"):
        PPO.from_checkpoint(saved, policy_ids=["other"])
    PPO.from_checkpoint(saved, policy_ids=["default_policy"]).stop()
    PPO.from_checkpoint(saved, policy_ids=None, policy_mapping_fn=None).stop()


def test_state_of_an_earlier_time_is_saved_with_its_own_numbers(tmp_path):
    with ppo().build_algo() as algo:
        algo.train()
        state = algo.get_state()
        algo.train()
        path = algo.save_to_path(tmp_path / "c", state=state)
        assert read_manifest(path).metadata["training_iteration"] == 1
        with PPO.from_checkpoint(path) as other:
            assert encode(other.get_state()) == encode(state)
