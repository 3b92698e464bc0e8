"""A policy as a `torch.nn.Module`, as a program of Torch and as ONNX acts as the live one does."""

import copy
import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from checkpoints.policy import PolicyFileError, load_policy  # noqa: E402
from tests.command_line import run  # noqa: E402
from tests.integration.test_policy_export import (  # noqa: E402
    CONVOLUTIONS,
    IMAGE,
    LAYERS,
    MASKED,
    BoxesEnv,
    SpaceEnv,
    built,
)
from tests.multi_agent_runs import gaps  # noqa: E402
from tests.torch_modules import DenseModule, NoisyConvolution, Remembering  # noqa: E402
from trainer import (  # noqa: E402
    Algorithm,
    ConfigError,
    ModuleError,
    MultiRLModuleSpec,
    PPOConfig,
    RLModuleSpec,
    SACConfig,
    TD3Config,
    TorchRLModule,
    TrainedPolicy,
    export_onnx,
    export_policy,
    export_torch,
)
from trainer.algorithms.inference import ActionRequest  # noqa: E402
from trainer.testing.envs import StatelessCartPole  # noqa: E402
from trainer_toolkit.arguments import ArgumentError  # noqa: E402

PARTS = gym.spaces.Dict(
    place=gym.spaces.Tuple([gym.spaces.Discrete(3, start=-1), gym.spaces.MultiDiscrete([2, 4])]),
    speed=gym.spaces.Box(-2.0, 2.0, (2, 2), np.float64),
    switches=gym.spaces.MultiBinary(3),
)


class Parts(TorchRLModule):
    """Reads a Dict with a Tuple in it."""

    def setup(self):
        self.place = torch.nn.Linear(9, 16)
        self.others = torch.nn.Linear(7, 16)
        self.pi = torch.nn.Linear(16, self.action_distribution.num_inputs)

    def _forward(self, batch, **kwargs):
        place, speed, switches = (batch["obs"][key] for key in ("place", "speed", "switches"))
        others = torch.cat([speed.reshape(speed.shape[0], -1), switches], dim=1)
        features = self.place(torch.cat(place, dim=1)) + self.others(others)
        return {"action_dist_inputs": self.pi(torch.tanh(features))}

    def compute_values(self, batch, embeddings=None):
        return batch["obs"]["speed"].sum((1, 2)) + self.pi.bias.sum()


class Masked(DenseModule):
    """Reads what is beside the mask; the mask is applied to what it returns."""

    def _forward(self, batch, **kwargs):
        return super()._forward({"obs": batch["obs"]["observations"]})

    def compute_values(self, batch, embeddings=None):
        return self.vf(batch["obs"]["observations"]).squeeze(-1)


class RemembersAll(Remembering):
    """Reads the step before, too; its state is nested, and begins with ones."""

    def setup(self):
        super().setup()
        self.body = torch.nn.Linear(self.obs_size + self.action_space.n + 1, self.cell_size)

    def get_initial_state(self):
        return {"both": (torch.ones(self.cell_size), torch.zeros(self.cell_size))}

    def _remembered(self, batch):
        obs = batch["obs"]
        rewards = batch.get("prev_rewards", torch.zeros(obs.shape[:2]))[..., None]
        actions = batch.get("prev_actions", rewards.repeat(1, 1, self.action_space.n))
        read = [obs, actions, rewards]
        h, c = batch["state_in"]["both"]
        flat = {"obs": torch.cat(read, dim=-1), "state_in": {"h": h, "c": c}}
        embeddings, state = super()._remembered(flat)
        return embeddings, {"both": (state["h"], state["c"])}


def of_torch(module_class):
    return {"rl_module_spec": RLModuleSpec(module_class=module_class)}


NORMALISED = {"observation_filter": "MeanStdFilter"}
PREVIOUS = {"lstm_use_prev_action": True, "lstm_use_prev_reward": True}
NETWORKS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "MLP": (SACConfig, "Pendulum-v1", {"model": LAYERS, **NORMALISED}),
    "TD3": (TD3Config, "Pendulum-v1", {"model": LAYERS}),
    "CNN": (PPOConfig, SpaceEnv, {"env_config": {"space": IMAGE}, "model": CONVOLUTIONS}),
    "Dict": (PPOConfig, SpaceEnv, {"env_config": {"space": PARTS}, **NORMALISED}),
    "masks": (PPOConfig, SpaceEnv, {"env_config": {"space": MASKED}}),
    "LSTM": (PPOConfig, StatelessCartPole, {"model": {"use_lstm": True, **PREVIOUS}}),
    "MLP in Torch": (PPOConfig, BoxesEnv, {**of_torch(DenseModule), **NORMALISED}),
    "CNN in Torch": (
        PPOConfig,
        SpaceEnv,
        {"env_config": {"space": IMAGE}, **of_torch(NoisyConvolution)},
    ),
    "Dict in Torch": (
        PPOConfig,
        SpaceEnv,
        {"env_config": {"space": PARTS}, **of_torch(Parts), **NORMALISED},
    ),
    "masks in Torch": (
        PPOConfig,
        SpaceEnv,
        {"env_config": {"space": MASKED}, **of_torch(Masked), **NORMALISED},
    ),
    "LSTM in Torch": (
        PPOConfig,
        StatelessCartPole,
        {**of_torch(RemembersAll), "model": PREVIOUS},
    ),
}
AGENTS = {"agent": "odd", "agent in Torch": "even"}
"""Modules of a run of two agents."""


def built_algorithm(name) -> Algorithm:
    """An algorithm after an iteration, so that there is something to normalise by."""
    if name not in AGENTS:
        algo = built(*NETWORKS[name])
    else:
        config = gaps(0, 1).multi_agent(policy_mapping_fn={"a": "odd", 3: "even", "late": "even"})
        specs = {"odd": RLModuleSpec(), "even": RLModuleSpec(module_class=DenseModule)}
        spec = MultiRLModuleSpec(rl_module_specs=specs)
        algo = config.rl_module(rl_module_spec=spec).build_algo()
    algo.train()
    return algo


def draw_weights(module, seed):
    """Weights as large as those of a trained network."""
    rng = np.random.default_rng(seed)
    for view in module.parameters.views.values():
        scale = 1.5 * np.prod(view.shape[1:]) ** -0.5 if view.ndim > 1 else 0.3
        view[...] = rng.normal(scale=scale, size=view.shape)


def saved_policy(algo, name, folder, count):
    """The policy of a checkpoint, observations, and what it makes of them: not always the same."""
    module = algo.learners[AGENTS.get(name, "default_policy")].module
    path = algo.save_to_path(folder / "run")
    policy = TrainedPolicy.from_checkpoint(
        path, module_id=AGENTS.get(name), module_class=type(module)
    )
    steps = list(observations(policy.observation_space, count))
    for seed in range(100):
        draw_weights(module, seed)
        policy.module.set_state(module.get_state())
        first = [action for action, _ in live(policy, steps[:40])]
        if len(np.unique(first, axis=0)) > 1:
            return policy, steps, live(policy, steps)
    raise AssertionError("these networks give one action, whatever they see")


def observations(space, count):
    space.seed(5)
    rng = np.random.default_rng(5)
    for number in range(count):
        observation = space.sample()
        if isinstance(observation, dict) and "action_mask" in observation:
            observation["action_mask"][1] |= not observation["action_mask"].any()
        elif not isinstance(observation, dict) and observation.dtype != np.uint8:
            observation = observation.clip(-4, 4)
        yield observation, float(rng.normal()), number % 30 == 0


def live(policy, steps):
    """Actions of the policy, and its distribution's inputs, step by step."""
    before = None
    for observation, reward, is_first in steps:
        request = ActionRequest(0, explore=False)
        if policy.module.is_stateful() and not is_first:
            request = replace(
                request,
                state=before["state_out"],
                prev_action=before["actions"],
                prev_reward=reward,
            )
        action, before = policy._inference.action_with_outputs(observation, request)
        yield action, before["action_dist_inputs"]


def part_of(observation, name):
    """What an input takes of an observation."""
    if name == "action_mask":
        return observation["action_mask"]
    if name == "obs":
        is_masked = isinstance(observation, dict)
        return observation["observations"] if is_masked else observation
    for key in name.split("/")[1:]:
        observation = observation[int(key) if isinstance(observation, tuple) else key]
    return observation


def acted(names, initial, run_batch, steps):
    """The same of what was made of the policy: a function from named inputs to named outputs."""
    steps = list(steps)
    seen = [name for name in names if name.split("/")[0] in ("obs", "action_mask")]
    inputs = {name: np.stack([part_of(row, name) for row, _, _ in steps]) for name in seen}
    if len(seen) == len(names):
        outputs = run_batch(inputs)
        yield from zip(outputs["action"], outputs["action_dist_inputs"], strict=True)
        return
    for row, (_, reward, is_first) in enumerate(steps):
        if is_first:
            state = dict(initial)
        elif "prev_rewards" in state:
            state["prev_rewards"] = np.array([reward], np.float32)
        given = {name: array[row : row + 1] for name, array in inputs.items()}
        outputs = run_batch({**given, **state})
        state |= {
            name: outputs[name.replace("state_in", "state_out")]
            for name in state
            if name.startswith("state_in")
        }
        yield outputs["action"][0], outputs["action_dist_inputs"][0]


def in_torch(network):
    """A network as what `acted` takes."""

    def run_batch(inputs):
        tensors = [torch.from_numpy(np.asarray(inputs[name])) for name in names]
        with torch.no_grad():
            return {name: tensor.numpy() for name, tensor in network(*tensors).items()}

    names = [value.name for value in network.inputs]
    state = [tensor.numpy() for tensor in network.initial_state()]
    return names, dict(zip(names[len(names) - len(state) :], state, strict=True)), run_batch


def assert_same(wanted, found):
    for (action, outputs), (given, values) in zip(wanted, found, strict=True):
        if np.issubdtype(np.asarray(action).dtype, np.integer):
            assert action == given
        else:
            np.testing.assert_allclose(given, action, rtol=1e-5, atol=1e-5)
            assert given.dtype == action.dtype
        scale = np.abs(outputs).max(where=outputs > -1e29, initial=1.0)
        np.testing.assert_allclose(values, outputs, rtol=1e-5, atol=1e-5 * scale)


def by_onnx(file):
    """A file as what `acted` takes."""
    onnx = pytest.importorskip("onnx")
    reference = pytest.importorskip("onnx.reference")
    model = onnx.load(file)
    facts = {entry.key: entry.value for entry in model.metadata_props}
    initial = json.loads(facts.get("initial_state", "{}"))
    state = {}
    for value in model.graph.input:
        batch, *shape = (
            size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim
        )
        assert batch == "batch"
        if value.name.startswith("state_in") or value.name == "prev_rewards":
            state[value.name] = np.float32([initial.get(value.name, np.zeros(shape))])
    session = reference.ReferenceEvaluator(model)
    names = [output.name for output in model.graph.output]
    types = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}

    def run_batch(inputs):
        given = {
            name: np.asarray(array, onnx.helper.tensor_dtype_to_np_dtype(types[name]))
            for name, array in inputs.items()
        }
        return dict(zip(names, session.run(None, given), strict=True))

    return list(types), state, run_batch


ALL = [*NETWORKS, *AGENTS]


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ALL)
def test_the_module_acts_as_the_live_policy(name, count, tmp_path):
    with built_algorithm(name) as algo:
        policy, steps, wanted = saved_policy(algo, name, tmp_path, count)
    assert_same(wanted, acted(*in_torch(policy.to_torch()), steps))


SAMPLE = ("LSTM in Torch", "Dict")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in SAMPLE else [pytest.mark.slow]) for n in ALL]
)
def test_the_file_for_onnx_acts_as_the_live_policy(name, tmp_path):
    pytest.importorskip("onnxscript")
    with built_algorithm(name) as algo:
        count = 100 if name in SAMPLE else 1000
        _, steps, wanted = saved_policy(algo, name, tmp_path, count)
        file = export_onnx(algo, tmp_path / "p.onnx", module_id=AGENTS.get(name))
    assert_same(wanted, acted(*by_onnx(file), steps))


@pytest.mark.parametrize("name", ["MLP", pytest.param("LSTM in Torch", marks=pytest.mark.slow)])
def test_the_file_for_torch_acts_without_this_package(name, tmp_path):
    with built_algorithm(name) as algo:
        policy, steps, wanted = saved_policy(algo, name, tmp_path, 50)
        file = export_torch(algo, tmp_path / "p.pt2")
    names, state, _ = in_torch(policy.to_torch())
    np.savez(
        tmp_path / "inputs.npz",
        **{n: np.stack([part_of(row, n) for row, _, _ in steps]) for n in names[:1]},
        **{n.replace("/", "__"): np.repeat(array, len(steps), 0) for n, array in state.items()},
    )
    program = (
        "import json, sys, numpy as np, torch\n"
        "files = {'facts.json': ''}\n"
        f"program = torch.export.load({str(file)!r}, extra_files=files)\n"
        "inputs = [torch.from_numpy(array) for array in np.load('inputs.npz').values()]\n"
        "for rows in (1, 50):\n"
        "    given = program.module()(*[array[:rows] for array in inputs])\n"
        "np.save('actions.npy', given['action'].detach().numpy())\n"
        "assert json.loads(files['facts.json'])['algorithm'] in ('SAC', 'PPO')\n"
        "assert not {'trainer', 'checkpoints', 'gymnasium'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    actions = np.load(tmp_path / "actions.npy")
    firsts = [row for row, (*_, is_first) in enumerate(steps) if is_first or not state]
    expected = [action for action, _ in wanted]
    assert firsts
    for row in firsts:
        np.testing.assert_allclose(actions[row], expected[row], atol=1e-5)


def test_a_policy_file_takes_observations_nested_as_the_env_gives_them(tmp_path):
    with built_algorithm("Dict") as algo:
        _, steps, wanted = saved_policy(algo, "Dict", tmp_path, 200)
        policy = load_policy(export_policy(algo, tmp_path / "p.npz"))
    assert [name for name, _, _ in policy.inputs] == [
        "obs/place/0", "obs/place/1", "obs/speed", "obs/switches"
    ]  # fmt: skip
    for (observation, _, _), (action, _) in zip(steps, wanted, strict=True):
        assert policy.predict(observation) == action
    for wrong in ({**observation, "place": 3}, {"speed": observation["speed"]}, 5):
        with pytest.raises(PolicyFileError, match=r"has no part 'obs/place/[01]'"):
            policy.predict(wrong)


def test_gradients_reach_the_layers_of_a_network_in_torch_and_not_those_of_the_run(tmp_path):
    with built_algorithm("MLP in Torch") as algo:
        policy, *_ = saved_policy(algo, "MLP in Torch", tmp_path, 40)
    before = policy.module.get_state()["pi.0.weight"].copy()
    network = policy.to_torch()
    network(torch.randn(4, 2, 2))["action_dist_inputs"].sum().backward()
    with torch.no_grad():
        for parameter in network.parameters():
            assert parameter.grad is not None
            parameter -= parameter.grad
    np.testing.assert_array_equal(policy.module.get_state()["pi.0.weight"], before)
    learnt = copy.deepcopy(network)
    given = torch.randn(4, 2, 2)
    outputs = network(given)["action_dist_inputs"]
    assert torch.equal(learnt(given)["action_dist_inputs"], outputs)
    with torch.no_grad():
        learnt.network.layers.pi[0].weight.zero_()
    assert not torch.equal(learnt(given)["action_dist_inputs"], outputs)
    assert torch.equal(network(given)["action_dist_inputs"], outputs)


class Counts(DenseModule):
    """Its forward pass is written for the number of rows that it was traced with."""

    def _forward(self, batch, **kwargs):
        outputs = super()._forward(batch)
        weight = 1.0 if len(batch["obs"]) < 100 else 2.0
        return {"action_dist_inputs": weight * outputs["action_dist_inputs"]}


class Looks(DenseModule):
    """What it computes depends on what it sees."""

    def _forward(self, batch, **kwargs):
        outputs = super()._forward(batch)["action_dist_inputs"]
        return {"action_dist_inputs": outputs * float(outputs.sum().tanh())}


@pytest.mark.parametrize("module_class", [Counts, Looks])
def test_what_cannot_be_written_down_for_any_batch_says_why(module_class, tmp_path):
    Looks.acting_block = 1
    settings = {"rl_module_spec": RLModuleSpec(module_class=module_class)}
    with built(PPOConfig, "CartPole-v1", settings) as algo:
        with pytest.raises(ModuleError, match=r"x\.shape\[0\]") as refused:
            export_torch(algo, tmp_path / "p.pt2")
        assert refused.value.__cause__ is not None
        with pytest.raises(ModuleError, match=r"NumPy alone.*\.onnx"):
            export_policy(algo, tmp_path / "p.npz")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["Dict", "agent"])
def test_a_trained_policy_is_written_as_its_algorithm_is(name, tmp_path):
    with built_algorithm(name) as algo:
        policy, *_ = saved_policy(algo, name, tmp_path, 40)
        file = export_policy(algo, tmp_path / "a.npz", module_id=AGENTS.get(name))
    assert export_policy(policy, tmp_path / "b.npz").read_bytes() == file.read_bytes()
    with pytest.raises(ConfigError, match="no such module"):
        export_policy(policy, tmp_path / "c.npz", module_id="another")
    for wrong in ("runs/x", policy.module):
        with pytest.raises(ArgumentError, match=r"TrainedPolicy\.from_checkpoint"):
            export_policy(wrong, tmp_path / "c.npz")


class Chooses(DenseModule):
    """Its actions follow from what it sees, not from its logits."""

    def _forward(self, batch, **kwargs):
        outputs = super()._forward(batch)
        if "actions" in batch:
            return outputs
        actions = (batch["obs"][:, 0] > 0).long()
        inputs = outputs["action_dist_inputs"]
        logp = torch.log_softmax(inputs, 1).gather(1, actions[:, None])[:, 0]
        return {**outputs, "actions": actions, "action_logp": logp}


def test_a_network_that_chooses_actions_itself_is_refused(tmp_path):
    settings = {"rl_module_spec": RLModuleSpec(module_class=Chooses)}
    with built(PPOConfig, "CartPole-v1", settings) as algo:
        assert algo.get_module().gives_actions
        for export, file in ((export_torch, "p.pt2"), (export_onnx, "p.onnx")):
            with pytest.raises(ModuleError, match="Chooses chooses actions itself"):
                export(algo, tmp_path / file)


def test_a_wrong_number_of_tensors_is_answered_by_names(tmp_path):
    with built_algorithm("masks in Torch") as algo:
        policy, *_ = saved_policy(algo, "masks in Torch", tmp_path, 40)
    with pytest.raises(ModuleError, match="1 tensors; it takes 2: obs, action_mask"):
        policy.to_torch()(torch.zeros(1, 4))


@pytest.mark.process
def test_the_command_line_writes_a_program_of_torch(tmp_path):
    with built(PPOConfig, "CartPole-v1", {}) as algo:
        path = algo.save_to_path(tmp_path / "run")
    run("export", path, "p.pt2", folder=tmp_path)
    action = torch.export.load(tmp_path / "p.pt2").module()(torch.zeros(2, 4))["action"]
    assert action.shape == (2,)
    refused = run("export", path, "p.pt2", folder=tmp_path, code=1)
    assert "--overwrite" in refused.stderr
