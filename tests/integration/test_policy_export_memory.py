"""The policy of a network with memory, in a file: it acts as the live one over whole episodes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from checkpoints.policy import PolicyFileError, load_policy
from tests.command_line import run
from tests.integration.test_policy_export import (
    CONVOLUTIONS,
    IMAGE,
    MASKED,
    BoxesEnv,
    SpaceEnv,
    StartsAtThree,
    built,
)
from trainer import (
    PGConfig,
    PPOConfig,
    RLModuleSpec,
    TrainedPolicy,
    export_onnx,
    export_policy,
)
from trainer.errors import ModuleError
from trainer.modules.memory import StatefulRLModule
from trainer.testing.envs import StatelessCartPole
from trainer.types import Array

LAYERS = {"fcnet_hiddens": [6], "lstm_cell_size": 5, "head_fcnet_hiddens": [4]}
PREVIOUS = {"lstm_use_prev_action": True, "lstm_use_prev_reward": True}
CASES = {
    "LSTM, apart": (PPOConfig, StatelessCartPole, {"model": {**LAYERS, "use_lstm": True}}),
    "GRU, shared": (
        PPOConfig,
        StatelessCartPole,
        {"model": {**LAYERS, "use_gru": True, "vf_share_layers": True}},
    ),
    "LSTM, previous steps, masks, normalised": (
        PPOConfig,
        SpaceEnv,
        {
            "env_config": {"space": MASKED},
            "model": {**LAYERS, **PREVIOUS, "use_lstm": True, "vf_share_layers": True},
            "observation_filter": "MeanStdFilter",
        },
    ),
    "GRU, previous steps, scaled boxes": (
        PPOConfig,
        BoxesEnv,
        {"model": {**LAYERS, **PREVIOUS, "use_gru": True}},
    ),
    "GRU, previous actions, start, PG": (
        PGConfig,
        StartsAtThree,
        {"model": {**LAYERS, "lstm_use_prev_action": True, "use_gru": True}},
    ),
    "LSTM, previous rewards, no layers": (
        PPOConfig,
        StatelessCartPole,
        {
            "model": {
                "fcnet_hiddens": [],
                "lstm_cell_size": 3,
                "lstm_use_prev_reward": True,
                "use_lstm": True,
            }
        },
    ),
    "GRU, images": (
        PPOConfig,
        SpaceEnv,
        {"env_config": {"space": IMAGE}, "model": {**CONVOLUTIONS, **LAYERS, "use_gru": True}},
    ),
}
Step = tuple[Any, float, bool]
"""An observation, the reward before it, and whether an episode begins."""


def episodes(space, count):
    """Observations of episodes of different lengths."""
    space.seed(5)
    rng = np.random.default_rng(5)
    is_first = rng.random(count) < 0.03
    is_first[0] = True
    found = []
    for first, reward in zip(is_first, rng.normal(size=count), strict=True):
        observation = space.sample()
        if isinstance(observation, dict):
            observation["action_mask"][1] |= not observation["action_mask"].any()
        elif observation.dtype != np.uint8:
            observation = observation.clip(-4, 4)
        found.append((observation, 0.0 if first else float(reward), bool(first)))
    return found


def acted(algo, steps):
    """Actions and distribution inputs of the live policy."""
    module = algo.get_module()
    state = None
    action = None
    for observation, reward, is_first in steps:
        if is_first:
            state, action = module.get_initial_state(), None
        chosen, state, outputs = algo.compute_single_action(
            observation, state=state, explore=False, prev_action=action, prev_reward=reward
        )
        action = outputs["actions"]
        yield chosen, outputs["action_dist_inputs"]


Run = Callable[[dict[str, Array]], dict[str, Array]]


def acted_by_file(run_file, names, states, steps):
    """The same of a file, whose state goes round: what comes out goes in at the next step."""
    before = states
    for observation, reward, is_first in steps:
        if is_first:
            before = states
        parts = observation if isinstance(observation, dict) else {"observations": observation}
        given = {"obs": parts["observations"][None].astype(np.float32), **before}
        if "action_mask" in parts:
            given["action_mask"] = parts["action_mask"][None].astype(np.float32)
        if "prev_rewards" in names:
            given["prev_rewards"] = np.array([reward], np.float32)
        outputs = run_file(given)
        before = {name: outputs[name.replace("state_in", "state_out")] for name in states}
        yield outputs["action"][0], outputs["action_dist_inputs"][0]


def live_actions(algo, steps):
    """What the live policy does, with weights with which it does not do the same everywhere."""
    parameters = algo.learner.module.parameters
    for seed in range(300):
        rng = np.random.default_rng(seed)
        for view in parameters.views.values():  # as large as those of a trained network
            scale = 1.5 * np.prod(view.shape[:-1]) ** -0.5 if view.ndim > 1 else 0.3
            view[...] = rng.normal(scale=scale, size=view.shape)
        first = [action for action, _ in acted(algo, steps[:40])]
        if len(np.unique(first, axis=0)) > 1:
            return list(acted(algo, steps))
    raise AssertionError("these networks give one action, whatever they see")


def of_policy(policy):
    """What `acted_by_file` takes."""
    states = {f"state_in/{name}": part[None] for name, part in policy.initial_state().items()}
    return policy.run, [name for name, _, _ in policy.inputs], states


def assert_same(live, found):
    is_whole = np.issubdtype(np.asarray(live[0][0]).dtype, np.integer)
    for (action, inputs), (given, values) in zip(live, found, strict=True):
        np.testing.assert_allclose(values, inputs, rtol=1e-5, atol=1e-6)
        if is_whole:
            assert action == given
        else:
            np.testing.assert_allclose(given, action, rtol=1e-5, atol=1e-5)  # of a range of 8


@pytest.mark.parametrize("name", CASES)
def test_a_policy_file_remembers_over_whole_episodes_as_the_live_policy(name, tmp_path):
    with built(*CASES[name]) as algo:
        if "observation_filter" in CASES[name][2]:
            algo.train()
        space = algo.learner.module.observation_space
        steps = episodes(space, 300 if space.shape != IMAGE.shape else 50)
        live = live_actions(algo, steps)
        policy = load_policy(export_policy(algo, tmp_path / "policy.npz"))
    assert policy.is_stateful
    assert_same(live, acted_by_file(*of_policy(policy), steps))


@pytest.mark.parametrize("name", ["LSTM, previous steps, masks, normalised", "GRU, images"])
@pytest.mark.parametrize("kind", ["reference", "runtime"])
def test_an_onnx_model_remembers_as_the_live_policy(name, kind, tmp_path):
    onnx = pytest.importorskip("onnx")
    with built(*CASES[name]) as algo:
        steps = episodes(algo.learner.module.observation_space, 40)
        live = live_actions(algo, steps)
        file = export_onnx(algo, tmp_path / "policy.onnx")
        policy = load_policy(export_policy(algo, tmp_path / "policy.npz"))
    if kind == "reference":
        session = pytest.importorskip("onnx.reference").ReferenceEvaluator(onnx.load(file))
        outputs = session.output_names
    else:
        runtime = pytest.importorskip("onnxruntime")
        session = runtime.InferenceSession(file, providers=["CPUExecutionProvider"])
        outputs = [output.name for output in session.get_outputs()]

    def run_file(given):
        return dict(zip(outputs, session.run(outputs, given), strict=True))

    assert_same(live, acted_by_file(run_file, *of_policy(policy)[1:], steps))


def test_a_state_that_is_not_handed_on_is_found(tmp_path):
    """Negative control: what stands above sees a file that forgets."""
    with built(*CASES["LSTM, apart"]) as algo:
        steps = episodes(algo.learner.module.observation_space, 30)
        live = live_actions(algo, steps)
        policy = load_policy(export_policy(algo, tmp_path / "policy.npz"))
    run_file, names, states = of_policy(policy)

    def forgetful(given):
        return run_file({**given, **states})

    with pytest.raises(AssertionError):
        assert_same(live, acted_by_file(forgetful, names, states, steps))


def test_single_observations_take_and_give_the_state(tmp_path):
    with built(*CASES["LSTM, previous steps, masks, normalised"]) as algo:
        steps = episodes(algo.learner.module.observation_space, 30)
        live = [int(action) for action, _ in live_actions(algo, steps)]
        checkpoint = algo.save_to_path(tmp_path / "checkpoint")
        policy = load_policy(export_policy(algo, tmp_path / "policy.npz"))
    trained = TrainedPolicy.from_checkpoint(checkpoint)
    state = None
    state_live = None
    action = None
    for (observation, reward, is_first), wanted in zip(steps, live, strict=True):
        parts = observation["observations"], observation["action_mask"]
        if is_first:
            action, state = policy.predict(*parts)
            kept, state_live = trained.predict(observation)
        else:
            kept, state_live = trained.predict(
                observation, state_live, prev_action=action, prev_reward=reward
            )
            action, state = policy.predict(*parts, state=state, prev_reward=reward)
        assert action == kept == wanted
    for arguments, text in (
        ({"state": state}, "takes .*prev_rewards"),
        ({"state": {"h": state["h"]}, "prev_reward": 1.0}, "takes .*'state_in/c'"),
        ({"state": {**state, "h": state["h"][:2]}, "prev_reward": 1.0}, r"'state_in/h'.*\(1, 2\)"),
    ):
        with pytest.raises(PolicyFileError, match=text):
            policy.predict(*parts, **arguments)


def test_the_command_line_writes_memory_too(tmp_path):
    with built(*CASES["GRU, previous actions, start, PG"]) as algo:
        checkpoint = algo.save_to_path(tmp_path / "checkpoint")
        file = export_policy(algo, tmp_path / "policy.npz")
        module = algo.learner.module
    run(
        *("export", checkpoint, "again.npz", "--policy", "--allow-code"),
        folder=tmp_path,
    )
    assert (tmp_path / "again.npz").read_bytes() == file.read_bytes()
    assert type(module).__name__ == "RecurrentPolicyModule"


def test_a_policy_without_memory_refuses_a_state(tmp_path):
    with built(PGConfig, StatelessCartPole, {"model": {"fcnet_hiddens": [4]}}) as algo:
        policy = load_policy(export_policy(algo, tmp_path / "policy.npz"))
    assert policy.initial_state() == {}
    with pytest.raises(PolicyFileError, match="state_in/h"):
        policy.predict([0.0, 0.0], state={"h": np.zeros(3)})


class OwnMemory(StatefulRLModule):
    """Counts steps; nothing is learnt."""

    def parameter_shapes(self):
        return {"pi": (self.obs_size, self.action_distribution.num_inputs), "vf/0": (1,)}

    def initialize(self, rng):
        """Zeros."""

    def get_initial_state(self):
        return {"count": np.zeros(1, np.float32)}

    def forward_step(self, batch):
        inputs = np.zeros((len(batch["obs"]), 2), np.float32)
        return {"action_dist_inputs": inputs, "state_out": {"count": batch["state_in"]["count"]}}

    def forward_sequences(self, batch):
        raise NotImplementedError

    def backward_sequences(self, **derivatives):
        raise NotImplementedError


def test_memory_of_ones_own_is_refused_by_name(tmp_path):
    config = PPOConfig().environment(StatelessCartPole).env_runners(num_env_runners=0)
    config.rl_module(rl_module_spec=RLModuleSpec(module_class=OwnMemory))
    with (
        config.build_algo() as algo,
        pytest.raises(ModuleError, match="OwnMemory is a class of your own"),
    ):
        export_policy(algo, tmp_path / "policy.npz")
    assert not list(tmp_path.iterdir())
