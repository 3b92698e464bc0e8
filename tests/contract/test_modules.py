"""What every network must keep to, one test per property; each runs over a table of networks.

A class that a table does not name is found: `test_every_class_of_networks_is_in_the_table`. Users'
networks are checked by `trainer.testing.checks.check_module`, which is run here as well; what it
leaves out are states that do not fit, copies, seeds, masks, and the likelihoods of actions.
"""

import copy
import importlib
import importlib.util
import inspect
import pickle
import pkgutil
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium import spaces

import trainer.modules
from checkpoints import decode, encode
from tests.mutated_states import mutated, mutations
from trainer import RLModule, RLModuleSpec
from trainer.errors import ModuleError
from trainer.modules import QModule
from trainer.modules.spaces import INVALID
from trainer.seeding import NOISE_DRAWS
from trainer.testing.checks import check_module, encoded_samples

HAS_TORCH = importlib.util.find_spec("torch") is not None

OBS = spaces.Box(-1.0, 1.0, (3,))
IMAGE = spaces.Box(0, 255, (6, 5, 2), np.uint8)
PARTS = spaces.Tuple([OBS, spaces.Box(0, 255, (2, 6, 6), np.uint8)])
BESIDE = spaces.Dict(
    {
        "action_mask": spaces.MultiBinary(4),
        "before": spaces.Discrete(2),
        "image": IMAGE,
        "later": PARTS,
    }
)
MASKED = spaces.Dict({"action_mask": spaces.MultiBinary(4), "observations": OBS})
_OF_FOUR = spaces.Box(-1.0, 1.0, (4,))
MIXED_BITS = spaces.Dict(
    {"choice": spaces.Discrete(3), "pair": spaces.Tuple([_OF_FOUR, spaces.MultiBinary(2)])}
)
MASKED_FOUR = spaces.Dict(
    {"action_mask": spaces.Box(0, 1, (4,), np.int8), "observations": _OF_FOUR}
)
FOUR = spaces.Discrete(4)
MULTI = spaces.MultiDiscrete([2, 3])
BOX = spaces.Box(-1.0, 1.0, (2,))
BOTH = spaces.Tuple((FOUR, BOX))


class Case(NamedTuple):
    """A network of the table.

    Attributes:
        module_class: "room:Class"; those of Torch are imported where there is Torch.
        config: its settings.
        actions: its action space.
        observations: its observation space.
    """

    module_class: str
    config: Mapping[str, Any] = {}
    actions: spaces.Space[Any] = FOUR
    observations: spaces.Space[Any] = OBS

    @property
    def needs_torch(self):
        return self.config.get("backend") == "torch" or self.module_class.startswith(
            (OF_TORCH, _TORCH_UNIT, ACTOR_CRITIC_IN_TORCH)
        )

    @property
    def learns(self):
        return not self.module_class.endswith(":RandomRLModule")

    @property
    def has_noise(self):
        """Whether it computes otherwise while it learns."""
        return ":Noisy" in self.module_class

    @property
    def has_critics(self):
        """Whether its gradients are those of two losses, so that one leaves some alone."""
        return "SAC" in self.module_class or "TD3" in self.module_class

    @property
    def gives_values_of_actions(self):
        return ":QModule" in self.module_class

    @property
    def gives_likelihoods(self):
        """Not where outputs are values of actions, or a policy is a function."""
        return not self.gives_values_of_actions and ":TD3Module" not in self.module_class

    def loaded(self):
        room, _, name = self.module_class.partition(":")
        return getattr(importlib.import_module(room), name)

    def spec(self, **more):
        return RLModuleSpec(
            self.loaded(), self.observations, self.actions, dict(self.config), **more
        )

    def build(self, seed=0, **more):
        rng = None if seed is None else np.random.default_rng(seed)
        return self.spec(**more).build(rng)

    def rows(self):
        return encoded_samples(self.observations, seed=3)


ACTOR_CRITIC = "trainer.modules.actor_critic:ActorCriticModule"
ACTOR_CRITIC_IN_TORCH = "trainer.modules.torch_actor_critic:PPOTorchRLModule"
POLICY = "trainer.modules.actor_critic:PolicyModule"
RECURRENT = "trainer.modules.recurrent_module:RecurrentModule"
RECURRENT_POLICY = "trainer.modules.recurrent_module:RecurrentPolicyModule"
Q = "trainer.modules.q_module:QModule"
SAC = "trainer.modules.sac_module:SACModule"
TD3 = "trainer.algorithms.td3.td3:TD3Module"
RANDOM = "trainer.modules.random_module:RandomRLModule"
OF_TORCH = "tests.torch_modules:"
_UNIT = "tests.unit."
_TORCH_UNIT = _UNIT + "test_modules_torch:"

_DENSE = {"fcnet_hiddens": [6, 5]}
_HEADS = {**_DENSE, "head_fcnet_hiddens": [4], "head_fcnet_activation": "swish"}
_EMPTY = {"fcnet_hiddens": []}
_APART = {**_DENSE, "vf_share_layers": False}
_SHARED = {**_DENSE, "vf_share_layers": True}
_ATOMS = {"num_atoms": 5, "v_min": -1.0, "v_max": 2.0}
_FILTERS = [[3, 2, 2], [2, [2, 1], 1, "valid"]]
_IMAGES = {"fcnet_hiddens": [4], "conv_filters": _FILTERS, "conv_activation": "swish"}
_LSTM = {"fcnet_hiddens": [5], "use_lstm": True, "lstm_cell_size": 4}
_GRU = {"fcnet_hiddens": [5], "use_gru": True, "lstm_cell_size": 4}
_SMALL_SAC = {"fcnet_hiddens": [5, 4], "fcnet_activation": "tanh"}

CASES = {
    "actor and critic in Torch": Case(ACTOR_CRITIC_IN_TORCH, _APART),
    "actor and critic in Torch, heads": Case(
        ACTOR_CRITIC_IN_TORCH, {**_HEADS, "vf_share_layers": True, "free_log_std": True}, BOX
    ),
    "actor and critic in Torch, image": Case(ACTOR_CRITIC_IN_TORCH, _IMAGES, FOUR, IMAGE),
    "actor and critic in Torch, masked": Case(ACTOR_CRITIC_IN_TORCH, _APART, FOUR, MASKED),
    "actor and critic": Case(ACTOR_CRITIC, _APART),
    "actor and critic, shared": Case(ACTOR_CRITIC, _SHARED, MULTI),
    "actor and critic, heads": Case(ACTOR_CRITIC, {**_HEADS, "vf_share_layers": True}, BOX),
    "actor and critic, no layer": Case(ACTOR_CRITIC, {**_EMPTY, "vf_share_layers": True}, BOX),
    "actor and critic, free deviation": Case(ACTOR_CRITIC, {**_APART, "free_log_std": True}, BOX),
    "actor and critic, free deviation, shared": Case(
        ACTOR_CRITIC, {**_SHARED, "free_log_std": True}, BOX
    ),
    "actor and critic, deviations of features": Case(
        ACTOR_CRITIC, {**_APART, "free_log_std": True, "log_std_by_feature": True}, BOX
    ),
    "actor and critic, deviations of features, shared": Case(
        ACTOR_CRITIC, {**_SHARED, "free_log_std": True, "log_std_by_feature": True}, BOX
    ),
    "actor and critic, nested actions": Case(ACTOR_CRITIC, _SHARED, BOTH),
    "actor and critic, bits": Case(ACTOR_CRITIC, _SHARED, spaces.MultiBinary(3)),
    "actor and critic, masks": Case(ACTOR_CRITIC, _SHARED, FOUR, MASKED),
    "actor and critic, masks of choices": Case(
        ACTOR_CRITIC, _APART, spaces.MultiDiscrete([2, 2]), MASKED
    ),
    "actor and critic, images": Case(
        ACTOR_CRITIC, {**_IMAGES, "vf_share_layers": True}, FOUR, IMAGE
    ),
    "actor and critic, two towers of images": Case(
        ACTOR_CRITIC, {**_IMAGES, "vf_share_layers": False}, FOUR, IMAGE
    ),
    "actor and critic, images alone": Case(
        ACTOR_CRITIC, {**_IMAGES, **_EMPTY, "vf_share_layers": True}, FOUR, IMAGE
    ),
    "actor and critic, images beside": Case(
        ACTOR_CRITIC, {**_IMAGES, "vf_share_layers": True}, FOUR, BESIDE
    ),
    "actor and critic, two towers beside": Case(
        ACTOR_CRITIC, {**_IMAGES, **_EMPTY, "vf_share_layers": False}, FOUR, BESIDE
    ),
    "Q, images beside": Case(Q, _IMAGES, FOUR, BESIDE),
    "actor and critic by Torch": Case(ACTOR_CRITIC, {**_APART, "backend": "torch"}, BOX),
    "Q by Torch": Case(Q, {**_IMAGES, "backend": "torch"}, FOUR, IMAGE),
    "policy": Case(POLICY, _DENSE),
    "Q": Case(Q, _DENSE),
    "Q, plain": Case(Q, {**_DENSE, "dueling": False}),
    "Q, heads": Case(Q, _HEADS),
    "Q, no layer": Case(Q, _EMPTY),
    "Q, plain, no layer": Case(Q, {**_EMPTY, "dueling": False}),
    "Q, atoms": Case(Q, {**_DENSE, **_ATOMS}),
    "Q, plain, atoms": Case(Q, {**_DENSE, **_ATOMS, "dueling": False}),
    "Q, masks": Case(Q, _DENSE, FOUR, MASKED),
    "Q, atoms, masks": Case(Q, {**_DENSE, **_ATOMS}, FOUR, MASKED),
    "Q, images": Case(Q, _IMAGES, FOUR, IMAGE),
    "Q, plain, images alone": Case(Q, {**_IMAGES, **_EMPTY, "dueling": False}, FOUR, IMAGE),
    "SAC": Case(SAC, _SMALL_SAC, BOX),
    "SAC, one critic": Case(SAC, {**_SMALL_SAC, "twin_q": False}, BOX),
    "SAC, discrete": Case(SAC, _SMALL_SAC),
    "TD3": Case(TD3, _SMALL_SAC, BOX),
    "DDPG": Case(TD3, {**_SMALL_SAC, "twin_q": False}, BOX),
    "LSTM": Case(RECURRENT, {**_LSTM, "vf_share_layers": False}),
    "LSTM, head": Case(
        RECURRENT, {**_LSTM, **_EMPTY, "head_fcnet_hiddens": [4], "head_fcnet_activation": "tanh"}
    ),
    "LSTM, free deviation": Case(
        RECURRENT, {**_LSTM, "vf_share_layers": False, "free_log_std": True}, BOX
    ),
    "GRU": Case(RECURRENT, {**_GRU, "vf_share_layers": True}),
    "GRU, masks": Case(RECURRENT, {**_GRU, "vf_share_layers": True}, FOUR, MASKED),
    "GRU, images": Case(
        RECURRENT,
        {**_GRU, "vf_share_layers": True, "conv_filters": _FILTERS, "conv_activation": "tanh"},
        FOUR,
        IMAGE,
    ),
    "GRU, nested actions": Case(RECURRENT, {**_GRU, "vf_share_layers": True}, BOTH),
    "policy with LSTM": Case(RECURRENT_POLICY, _LSTM),
    "random": Case(RANDOM),
    "random, nested actions": Case(RANDOM, {}, BOTH),
    "random, masks": Case(RANDOM, {}, FOUR, MASKED),
    "a user's with memory": Case("tests.memory_modules:RunningMean"),
    "a user's with memory, masks": Case("tests.memory_modules:RunningMean", {}, FOUR, MASKED),
    "Torch": Case(OF_TORCH + "DenseModule", {}, BOX),
    "Torch, batch normalisation and dropout": Case(OF_TORCH + "NoisyDense", {}, MULTI),
    "a user's that knows no masks": Case(_UNIT + "test_modules_action_masks:LinearModule"),
    "a user's that knows no masks, with masks": Case(
        _UNIT + "test_modules_action_masks:LinearModule", {}, FOUR, MASKED
    ),
    "Torch, parts": Case(_TORCH_UNIT + "OfAllParts", {}, FOUR, MIXED_BITS),
    "Torch, masks": Case(_TORCH_UNIT + "IgnoresItsMask", {}, FOUR, MASKED_FOUR),
    "Torch, images": Case(OF_TORCH + "NoisyConvolution", {}, FOUR, IMAGE),
    "Torch, memory": Case(OF_TORCH + "Remembering", {"cell_size": 4}),
    "Torch, SAC": Case(OF_TORCH + "TwinSAC", {}, BOX),
    "Torch, SAC, discrete": Case(OF_TORCH + "TwinSAC"),
}


def over(*, choose=lambda _: True):
    """Runs a test over those networks of the table."""
    without = pytest.mark.skipif(not HAS_TORCH, reason="needs Torch")
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param(case, marks=[without] if case.needs_torch else [])
            for case in CASES.values()
            if choose(case)
        ],
        ids=[name for name, case in CASES.items() if choose(case)],
    )


_KINDS = {
    (case.module_class, case.config.get("backend"), case.observations is OBS): case
    for case in CASES.values()
}


def is_one_of_its_kind(case):
    """Chooses a network of each class, for what happens to parameters whatever layers hold them."""
    return any(case is one for one in _KINDS.values())


def derived(base):
    for one in base.__subclasses__():
        yield one
        yield from derived(one)


def test_every_class_of_networks_is_in_the_table():
    for room in pkgutil.iter_modules(trainer.modules.__path__, "trainer.modules."):
        importlib.import_module(room.name)
    loaded = [case.loaded() for case in CASES.values() if HAS_TORCH or not case.needs_torch]
    tested = {kind for module_class in loaded for kind in module_class.__mro__}
    ours = {kind for kind in derived(RLModule) if kind.__module__.startswith("trainer.modules.")}
    assert len(ours) > 7
    concrete = {kind for kind in ours if not inspect.isabstract(kind)}
    if not HAS_TORCH:  # their classes are there, and no case can be loaded
        concrete = {kind for kind in concrete if ".torch_" not in kind.__module__}
    assert {kind.__name__ for kind in concrete - tested} == set()


# ---- acting and learning


@over(choose=lambda case: case.learns and not case.has_critics)
def test_rows_stand_alone_and_gradients_are_those_of_what_is_computed(case):
    check_module(
        case.loaded(),
        observation_space=case.observations,
        action_space=case.actions,
        model_config=case.config,
        seed=2,
    )


def acted(module, rows):
    """What acting gives, with and without exploration, which is the same for networks."""
    found, again = (
        module.forward_exploration({"obs": rows}),
        module.forward_inference({"obs": rows}),
    )
    assert encode(found["action_dist_inputs"]) == encode(again["action_dist_inputs"])
    return found


@over()
def test_acting_says_the_same_again_row_by_row_and_leaves_no_trace(case):
    module, rows = case.build(), case.rows()
    known, given = encode(module.get_state()), rows.tobytes()
    first = acted(module, rows)
    kept = encode(first)
    for row in range(len(rows)):
        alone = acted(module, rows[row : row + 1])["action_dist_inputs"]
        assert alone.tobytes() == first["action_dist_inputs"][row].tobytes()
    best = module.action_distribution.deterministic
    one, again = (repr(best(first["action_dist_inputs"])) for _ in range(2))
    assert one == again
    assert encode(acted(module, rows[::-1].copy())) != kept or not case.learns
    assert encode(acted(module, rows)) == encode(first) == kept
    assert (encode(module.get_state()), rows.tobytes()) == (known, given)


@over(choose=lambda case: case.learns and not case.has_noise and case.gives_likelihoods)
def test_likelihoods_of_explored_actions_are_those_that_are_learnt_from(case):
    module, rows = case.build(), case.rows()
    distribution = module.action_distribution
    rng = np.random.default_rng(1)
    acting = module.forward_exploration({"obs": rows})["action_dist_inputs"]
    noise = NOISE_DRAWS[distribution.noise_kind](rng, (len(rows), distribution.noise_width))
    actions = distribution.sample(acting, noise)
    learning = module.forward_train({"obs": rows})["action_dist_inputs"]
    expected = distribution.evaluate(learning, actions).logp
    np.testing.assert_allclose(distribution.logp(acting, actions), expected, rtol=1e-4, atol=1e-4)
    assert np.ptp(expected) > 0, "a negative control: rows differ"


@over(choose=lambda case: case.observations in (MASKED, MASKED_FOUR, BESIDE))
def test_impossible_actions_have_no_probability_and_no_gradient(case):
    module, rows = case.build(), case.rows()
    possible = module.action_mask(rows)
    assert possible is not None
    assert 0 < (~possible).sum() < possible.size
    distribution = module.action_distribution
    inputs = acted(module, rows)["action_dist_inputs"]
    assert (inputs[~possible] == np.float32(INVALID)).all()
    free = module.forward_acting(rows[:, : module.obs_size])
    np.testing.assert_array_equal(inputs[possible], free[possible])
    best, rng = distribution.deterministic(inputs), np.random.default_rng(0)
    for _ in range(50):
        noise = NOISE_DRAWS[distribution.noise_kind](rng, (len(rows), distribution.noise_width))
        for actions in (best, distribution.sample(inputs, noise)):
            first = np.cumsum([0, 2][: actions[0].size])  # of each choice in the row of the mask
            assert np.take_along_axis(possible, actions.reshape(len(rows), -1) + first, 1).all()
    if not case.learns:
        return
    outputs = module.forward_train({"obs": rows})["action_dist_inputs"]
    ones = np.ones_like(outputs)
    assert (outputs.reshape(*possible.shape, -1)[~possible] == np.float32(INVALID)).all()
    module.backward(d_action_dist_inputs=ones, d_vf_preds=np.zeros(len(rows), np.float32))
    before = module.gradients.flat.copy()
    ones.reshape(*possible.shape, -1)[~possible] = 7.0
    if case.needs_torch:  # whose gradients are computed once
        module.forward_train({"obs": rows})
    module.backward(d_action_dist_inputs=ones, d_vf_preds=np.zeros(len(rows), np.float32))
    assert before.any()
    assert module.gradients.flat.tobytes() == before.tobytes()


# ---- seeds, copies and states


@over(choose=lambda case: case.learns)
def test_first_weights_follow_from_the_seed_alone(case):
    states = [encode(case.build(seed).get_state()) for seed in (0, 0, 1)]
    assert states[0] == states[1]
    assert states[0] != states[2]


WAYS = {
    "copied": lambda module, _: copy.deepcopy(module),
    "pickled": lambda module, _: pickle.loads(pickle.dumps(module)),
    "saved": lambda module, path: type(module).from_checkpoint(module.save_to_path(path)),
}


@over(choose=is_one_of_its_kind)
def test_a_copy_is_the_same_and_independent(case, tmp_path):
    module, rows = case.build(), case.rows()
    module.begin_update(5, 3)
    if case.learns:
        module.forward_train({"obs": rows})  # running statistics move
    expected = (encode(module.get_state()), encode(acted(module, rows)))
    for make in WAYS.values():
        other = make(module, tmp_path / "module")
        assert type(other) is type(module)
        assert (encode(other.get_state()), encode(acted(other, rows))) == expected
        other.parameters.flat[:] = 0.0
        assert (encode(module.get_state()), encode(acted(module, rows))) == expected


@over()
def test_a_state_is_plain_data_that_is_got_as_it_was_set_and_shares_no_memory(case):
    module, other, rows = case.build(), case.build(1), case.rows()
    state = module.get_state()
    known = encode(state)
    other.set_state(decode(known))
    assert encode(other.get_state()) == known
    assert encode(acted(other, rows)) == encode(acted(module, rows))
    for array in state.values():
        array[...] = 0
    assert encode(module.get_state()) == known
    given = decode(known)
    other.set_state(given)
    for array in given.values():
        array.setflags(write=True)
        array[...] = 0
    assert encode(other.get_state()) == known


@over(choose=is_one_of_its_kind)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(case):
    module = case.build()
    known = encode(module.get_state())
    for mutation in mutations(decode(known)):
        what, path = mutation
        given = mutated(decode(known), mutation)
        with pytest.raises(ModuleError) as refused:
            module.set_state(given)
        text = str(refused.value)
        assert not path or str(path[0]) in text, (mutation, text)
        assert text.count(". ") > 0, "what happened and what to do"
        assert encode(module.get_state()) == known, what
    for name, array in decode(known).items():
        if array.dtype.kind == "f":
            given = {**decode(known), name: np.full_like(array, np.nan)}
            with pytest.raises(ModuleError, match=re.escape(name)):
                module.set_state(given)
            assert encode(module.get_state()) == known, name


@over()
def test_the_acting_part_acts_as_the_whole_and_learns_nothing(case):
    module, rows = case.build(), case.rows()
    actor = case.build(None, inference_only=True)
    assert case.needs_torch or not actor.parameters.flat.any(), "they wait for their state"
    expected = encode(acted(module, rows)["action_dist_inputs"])
    for state in (module.get_state(inference_only=True), module.get_state()):
        actor.parameters.flat[:] = 0.0
        actor.set_state(state)
        assert encode(acted(actor, rows)["action_dist_inputs"]) == expected
    assert set(actor.get_state()) == set(module.get_state(inference_only=True))
    assert encode(copy.deepcopy(actor).get_state()) == encode(actor.get_state())
    left_out = set(module.get_state()) - set(actor.get_state())
    if not (case.needs_torch or case.gives_values_of_actions):
        assert not any(name.startswith(("vf", "qf")) for name in actor.get_state())
    of_values = ("vf", "qf", "log_alpha", "encoder.critic_encoder")
    assert all(name.startswith(of_values) for name in left_out)
    if any(name.startswith("vf") for name in left_out) and case.gives_likelihoods:
        for learn in (actor.forward_train, actor.compute_values):
            with pytest.raises(ModuleError, match=r"inference_only=True|no values"):
                learn({"obs": rows})


@over(choose=lambda case: case.gives_values_of_actions)
def test_values_of_actions_are_the_same_in_acting_and_learning(case):
    module, rows = case.build(), case.rows()
    assert isinstance(module, QModule)
    outputs = module.forward_train({"obs": rows})["action_dist_inputs"]
    expected = module.expected_values(outputs.reshape(len(rows), 4, -1))
    np.testing.assert_allclose(module.forward_acting(rows), expected, rtol=1e-4, atol=1e-5)
