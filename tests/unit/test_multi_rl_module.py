"""Several modules: the container, specs, policies, random play."""

import pickle
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
from gymnasium import spaces

from checkpoints import CheckpointMismatchError, decode, encode
from tests.small_runs import small_ppo
from trainer import (
    ConfigError,
    ModuleError,
    MultiRLModule,
    MultiRLModuleSpec,
    PolicySpec,
    RandomRLModule,
    RLModule,
    RLModuleSpec,
    UnknownModuleError,
)
from trainer.modules import check_module_ids
from trainer.seeding import weights_rng

SEEN = spaces.Box(-1.0, 1.0, (3,))
MODEL = {"fcnet_hiddens": [4]}


def spec(actions=None, **settings):
    given = {"observation_space": SEEN, "action_space": actions or spaces.Discrete(2)}
    return RLModuleSpec(model_config=MODEL, **{**given, **settings})


def two(root_seed=0):
    specs = {"b": spec(spaces.Discrete(3)), "a": spec()}
    return MultiRLModuleSpec(rl_module_specs=specs).build(root_seed=root_seed)


def as_bytes(module):
    return encode(module.get_state())


# ---- the container


def test_it_is_a_mapping_in_the_order_of_the_ids():
    modules = two()
    assert list(modules) == ["a", "b"]
    assert [name for name, _ in modules.items()] == ["a", "b"]
    assert modules["b"] is list(modules.values())[1]
    assert ("a" in modules, "c" in modules, len(modules)) == (True, False, 2)
    assert modules.get("c") is None
    assert modules.get("c", 1) == 1
    assert modules.unwrapped() is modules


def test_an_unknown_id_is_told_with_the_nearest():
    modules = MultiRLModule({"main": two()["a"], "old": two()["a"]})
    with pytest.raises(KeyError, match="did you mean 'main'"):
        modules["man"]
    with pytest.raises(ModuleError, match=r"There are \['main', 'old'\]"):
        modules["x"]


def test_functions_are_called_with_id_and_module():
    modules = two()
    listed = modules.foreach_module(
        lambda name, each, plus: (name, each.num_parameters + plus), plus=1
    )
    by_id = modules.foreach_module(lambda name, each: each is modules[name], return_dict=True)
    assert listed == [(name, each.num_parameters + 1) for name, each in modules.items()]
    assert by_id == {"a": True, "b": True}


@pytest.mark.parametrize("verb", ["add", "remove"])
def test_it_does_not_change_on_its_own(verb):
    modules = two()
    with pytest.raises(ModuleError, match=rf"Call `algo.{verb}_module\('c'"):
        getattr(modules, f"{verb}_module")("c", spec())
    assert list(modules) == ["a", "b"]


def test_states_lie_flat_under_the_ids():
    modules, others = two(), two(root_seed=1)
    state = modules.get_state()
    assert list(state) == ["a", "b"]
    assert all(isinstance(array, np.ndarray) for array in state["a"].values())
    assert modules.get_state(components=["b"]).keys() == {"b"}
    assert modules.get_state(not_components="b").keys() == {"a"}
    before = as_bytes(others["a"])
    others.set_state({"b": state["b"]})
    assert as_bytes(others["b"]) == as_bytes(modules["b"])
    assert as_bytes(others["a"]) == before
    others.set_state(decode(encode(state)))
    assert as_bytes(others) == as_bytes(modules)


def test_a_state_that_does_not_fit_changes_nothing():
    modules, others = two(), two(root_seed=1)
    before, state = as_bytes(modules), others.get_state()
    with pytest.raises(ModuleError):
        modules.set_state({"a": state["a"], "b": state["a"]})
    assert as_bytes(modules) == before
    with pytest.raises(KeyError, match="no module 'c'"):
        modules.set_state({"a": state["a"], "c": state["a"]})
    assert as_bytes(modules) == before


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: MultiRLModule({}), "nothing"),
        (lambda: MultiRLModule({"a": 1}), "{'a': 'int'}"),
        (lambda: MultiRLModuleSpec(multi_rl_module_class=dict), "several heads"),
        (lambda: MultiRLModuleSpec(rl_module_specs={"a": 1}), r"modules \['a'\] are \[1\]"),
        (lambda: MultiRLModuleSpec(rl_module_specs=spec()).build(), "one spec for all modules"),
        (lambda: PolicySpec(int), "a policy is a network here"),
        (lambda: PolicySpec(config=3), "expected a dict of settings"),
    ],
)
def test_what_can_hold_no_modules_is_refused(call, text):
    with pytest.raises((ConfigError, ModuleError), match=text):
        call()


@pytest.mark.parametrize(
    "bad",
    ["", "a/b", "a:b", "what?", "end.", "end ", "rl_module", "optimizer", "__all__", "\n", 3, None],
)
def test_ids_that_no_module_can_have(bad):
    with pytest.raises(ConfigError, match="no module can have"):
        check_module_ids(["fine", bad])
    with pytest.raises(ConfigError):
        MultiRLModuleSpec(rl_module_specs={bad: spec()})


# ---- checkpoints


def test_all_modules_are_made_again_from_their_checkpoint(tmp_path):
    modules = MultiRLModule({**two(), "r": spec(module_class=RandomRLModule).build()})
    path = modules.save_to_path(tmp_path / "modules")
    again = MultiRLModule.from_checkpoint(path)
    assert list(again) == ["a", "b", "r"]
    assert isinstance(again["r"], RandomRLModule)
    assert as_bytes(again) == as_bytes(modules)
    one = RLModule.from_checkpoint(Path(path) / "b")
    assert as_bytes(one) == as_bytes(modules["b"])
    fewer = MultiRLModule.from_checkpoint(path, inference_only=True)
    assert fewer["a"].num_parameters < modules["a"].num_parameters


def test_modules_are_restored_in_place_or_one_of_them(tmp_path):
    modules, others = two(), two(root_seed=1)
    path = modules.save_to_path(tmp_path / "modules")
    others.restore_from_path(path, component="a")
    assert as_bytes(others["a"]) == as_bytes(modules["a"])
    assert as_bytes(others["b"]) != as_bytes(modules["b"])
    others.restore_from_path(path)
    assert as_bytes(others) == as_bytes(modules)


def test_the_module_of_an_algorithm_is_found(tmp_path):
    with small_ppo().build_algo() as algo:
        path = algo.save_to_path(tmp_path / "algo")
        for where in (Path(path) / "learner", path):
            modules = MultiRLModule.from_checkpoint(where)
            assert list(modules) == ["default_policy"]
            assert as_bytes(modules["default_policy"]) == encode(algo.get_module().get_state())
    with pytest.raises(CheckpointMismatchError, match="no modules"):
        MultiRLModule.from_checkpoint(Path(path) / "counters")


# ---- specs


def test_first_weights_follow_from_root_seed_and_id_alone():
    specs = {"a": spec(), "b": spec()}
    first = MultiRLModuleSpec(rl_module_specs=specs).build(root_seed=3)
    more = MultiRLModuleSpec(rl_module_specs={"0": spec(), **specs}).build(root_seed=3)
    assert as_bytes(first["a"]) == as_bytes(more["a"])
    assert as_bytes(first["a"]) != as_bytes(first["b"])
    assert as_bytes(first["a"]) != as_bytes(two(root_seed=4)["a"])
    one = MultiRLModuleSpec(rl_module_specs={"default_policy": spec()}).build(root_seed=3)
    assert as_bytes(one["default_policy"]) == as_bytes(spec().build(weights_rng(3)))


def test_specs_are_completed_by_what_is_said_for_all():
    some = MultiRLModuleSpec(
        rl_module_specs={
            "a": RLModuleSpec(),
            "b": RLModuleSpec(model_config={"fcnet_hiddens": [2]}),
        },
        observation_space=SEEN,
        action_space=spaces.Discrete(2),
        model_config=MODEL,
        inference_only=True,
    )
    a, b = some.build("a"), some.build("b")
    assert (a.model_config, b.model_config) == (MODEL, {"fcnet_hiddens": [2]})
    assert a.inference_only
    assert not np.any(a.parameters.flat)  # without a seed the weights are to come
    with pytest.raises(ModuleError, match="observation_space=None"):
        MultiRLModuleSpec(rl_module_specs={"a": RLModuleSpec()}).build()
    with pytest.raises(KeyError, match="did you mean 'a'"):
        some.build("aa")


def test_specs_are_added_removed_and_put_together():
    some = MultiRLModuleSpec(rl_module_specs={"a": spec()})
    some.add_modules({"b": spec(), "a": spec(spaces.Discrete(7))}, override=False)
    assert ("a" in some, "b" in some, "c" in some) == (True, True, False)
    assert some.completed("a").action_space == spaces.Discrete(2)
    some.add_modules({"a": spec(spaces.Discrete(7))})
    assert some.completed("a").action_space == spaces.Discrete(7)
    with pytest.raises(KeyError):
        some.remove_modules(["a", "c"])
    assert "a" in some
    some.remove_modules("a")
    some.update(MultiRLModuleSpec(rl_module_specs={"c": spec()}, model_config=MODEL))
    assert sorted(some.rl_module_specs) == ["b", "c"]
    assert some.model_config == MODEL
    assert some == pickle.loads(cloudpickle.dumps(some))


def test_one_spec_for_all_waits_for_the_ids():
    made = MultiRLModuleSpec(rl_module_specs=spec(), inference_only=True).for_modules({"x", "y"})
    assert [*made.build()] == ["x", "y"]
    assert made.inference_only


def test_modules_say_what_they_can_be_built_from():
    modules = two()
    again = MultiRLModuleSpec.from_module(modules).build()
    again.set_state(modules.get_state())
    assert as_bytes(again) == as_bytes(modules)


def test_modules_start_with_the_states_of_a_checkpoint(tmp_path):
    path = two(root_seed=9).save_to_path(tmp_path / "modules")
    specs = {"b": spec(spaces.Discrete(3)), "a": spec()}
    loading = MultiRLModuleSpec(rl_module_specs=specs, load_state_path=path, modules_to_load=["a"])
    built = loading.build(root_seed=0)
    assert as_bytes(built["a"]) == as_bytes(two(root_seed=9)["a"])
    assert as_bytes(built["b"]) == as_bytes(two(root_seed=0)["b"])


def test_states_to_start_with_that_are_missing_are_told(tmp_path):
    path = MultiRLModule({"a": two()["a"]}).save_to_path(tmp_path / "modules")
    loading = MultiRLModuleSpec(rl_module_specs={"x": spec()}, load_state_path=path)
    with pytest.raises(UnknownModuleError, match=r"holds the modules \['a'\], and none called 'x'"):
        loading.build()


def test_modules_are_made_from_specs_or_from_one_module():
    made = MultiRLModule(rl_module_specs={"a": spec(), "b": spec(spaces.Discrete(3))})
    assert as_bytes(made) == as_bytes(two())
    only = made["a"].as_multi_rl_module()
    assert {**only} == {"default_policy": made["a"]}
    assert only.as_multi_rl_module() is only


# ---- policies


def test_policies_say_which_module_they_mean():
    plain = PolicySpec(None, SEEN, spaces.Discrete(2), {"lr": 0.1})
    assert plain.module_spec() == RLModuleSpec(
        observation_space=SEEN, action_space=spaces.Discrete(2)
    )
    for policy_class in ("random", "Random", RandomRLModule):
        assert PolicySpec(policy_class).module_spec().module_class is RandomRLModule
    assert PolicySpec() == PolicySpec(None, None, None, None)


# ---- random play


def drawn(space, *, num=4000, seen=SEEN, obs=None, **settings):
    built = spec(space, module_class=RandomRLModule, observation_space=seen).build()
    if settings:
        built = RandomRLModule(
            observation_space=seen, action_space=space, model_config=dict(settings)
        )
    rows = np.zeros((num, 3), np.float32) if obs is None else np.tile(obs, (num, 1))
    inputs = built.forward_acting(rows)
    distribution = built.action_distribution
    kind = distribution.noise_kind
    rng = np.random.default_rng(0)
    draw = {"uniform": rng.random, "gumbel": lambda shape: rng.gumbel(size=shape)}
    noise = draw[kind]((num, distribution.noise_width))
    return distribution.sample(inputs, noise), inputs, distribution


def test_alternatives_are_equally_likely():
    actions, inputs, distribution = drawn(spaces.Discrete(4))
    counts = np.bincount(actions)
    assert counts.sum() == 4000
    assert abs(counts - 1000).max() < 130  # 4.7 standard deviations
    assert distribution.logp(inputs, actions) == pytest.approx(np.log(0.25))


def test_masked_alternatives_are_never_drawn():
    seen = spaces.Dict({"action_mask": spaces.Box(0, 1, (3,), np.int8), "obs": SEEN})
    row = np.concatenate([np.zeros(3), [1.0, 0.0, 1.0]]).astype(np.float32)
    actions, _, _ = drawn(spaces.Discrete(3), seen=seen, obs=row)
    assert set(actions.tolist()) == {0, 2}
    assert abs(np.mean(actions == 0) - 0.5) < 0.05


@pytest.mark.parametrize(("normalized", "low", "high"), [(True, -1.0, 1.0), (False, -2.0, 6.0)])
def test_a_box_is_filled_evenly(normalized, low, high):
    space = spaces.Box(-2.0, 6.0, (2,))
    actions, inputs, distribution = drawn(space, normalize_actions=normalized)
    assert actions.shape == (4000, 2)
    assert actions.dtype == np.float32
    assert low <= actions.min() < low + 0.05 * (high - low)
    assert high - 0.05 * (high - low) < actions.max() <= high
    assert actions.mean(axis=0) == pytest.approx((low + high) / 2, abs=0.03 * (high - low))
    assert distribution.logp(inputs, actions) == pytest.approx(-2 * np.log(high - low))
    assert distribution.deterministic(inputs)[0] == pytest.approx((low + high) / 2)
    assert not distribution.kl(inputs, inputs).any()


def test_nested_actions_are_drawn_part_by_part():
    space = spaces.Dict({"move": spaces.Box(-1.0, 1.0, (1,)), "jump": spaces.Discrete(2)})
    actions, _, _ = drawn(space)
    assert set(actions["jump"].tolist()) == {0, 1}
    assert np.abs(actions["move"]).max() <= 1.0


def test_random_play_learns_nothing():
    module = spec(module_class=RandomRLModule).build(np.random.default_rng(0))
    assert module.num_parameters == 0
    assert module.get_state() == {}
    module.set_state({})
    assert getattr(module, "always_explores", False)
    with pytest.raises(ModuleError, match="learns nothing"):
        module.compute_values({"obs": np.zeros((1, 3), np.float32)})
    with pytest.raises(ModuleError, match="learns nothing"):
        module.forward_train({"obs": np.zeros((1, 3), np.float32)})
