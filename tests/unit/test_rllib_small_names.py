"""Small names of RLlib that scripts import."""

import numpy as np
import pytest
from gymnasium import spaces

from tests.small_runs import small_ppo
from trainer.rllib_names.small_names import (
    FLOAT_MIN,
    batch,
    check,
    convert_to_numpy,
    flatten_space,
    log_once,
    marker,
    pretty_print,
    softmax,
    try_import_jax,
    try_import_tf,
    try_import_tfp,
)


def test_other_frameworks_are_not_here_and_scripts_that_ask_go_on():
    assert try_import_tf() == (None, None, None)
    assert try_import_jax() == (None, None)
    assert try_import_tfp() is None
    for ask, name in ((try_import_tf, "TensorFlow"), (try_import_jax, "JAX")):
        with pytest.raises(ImportError, match=name):
            ask(error=True)


def test_markers_change_nothing_with_arguments_and_without():
    def function():
        return 1

    assert marker(function) is function
    assert marker(stability="alpha")(function) is function
    assert not log_once("key")


def test_results_become_lines():
    text = pretty_print({"iteration": 1, "env_runners": {"return": 2.5, "more": {}}})
    assert text == "iteration: 1\nenv_runners:\n  return: 2.5\n  more:"


def test_values_become_arrays_of_the_smaller_kind():
    found = convert_to_numpy({"a": [1.5, (np.arange(2),)], "b": np.float32(3)})
    assert found["a"][0].dtype == np.float32
    assert found["a"][1][0].dtype == np.int32
    assert convert_to_numpy(1.5, reduce_type=False).dtype == np.float64
    torch = pytest.importorskip("torch")
    tensor = torch.ones(2, requires_grad=True)
    assert (convert_to_numpy(tensor) == [1.0, 1.0]).all()


def test_probabilities_of_logits():
    found = softmax(np.array([[0.0, np.log(3.0)], [1000.0, 0.0]]))
    np.testing.assert_allclose(found, [[0.25, 0.75], [1.0, 1e-6]])
    np.testing.assert_allclose(softmax(np.zeros((2, 4)), axis=0), 0.5)
    assert softmax(np.array([0.0, FLOAT_MIN]), epsilon=0.1).tolist() == [1.0, 0.1]


def test_nested_spaces_and_items():
    box, discrete = spaces.Box(0.0, 1.0, (2,)), spaces.Discrete(3)
    nested = spaces.Dict({"b": spaces.Tuple([discrete, box]), "a": box})
    assert flatten_space(nested) == [box, discrete, box]
    items = [{"a": np.zeros(2), "b": (n, [n])} for n in range(3)]
    stacked = batch(items)
    assert stacked["a"].shape == (3, 2)
    assert stacked["b"][0].tolist() == [0, 1, 2]
    joined = batch([stacked, stacked], individual_items_already_have_batch_dim=True)
    assert joined["a"].shape == (6, 2)


@pytest.mark.parametrize(
    ("x", "y", "how", "is_equal"),
    [
        (1.0, 1.000001, {}, True),
        (1.0, 1.0001, {}, False),
        (1.0, 1.0001, {"decimals": 3}, True),
        (100.0, 101.0, {"rtol": 0.02}, True),
        (100.0, 101.0, {"atol": 0.5}, False),
        ({"a": [np.zeros(2), None]}, {"a": (np.zeros(2), None)}, {}, True),
        ({"a": 1}, {"b": 1}, {}, False),
        ([1, 2], [1], {}, False),
        (np.zeros(2), np.zeros(3), {}, False),
        ("text", "text", {}, True),
        ("text", None, {}, False),
        (float("nan"), np.nan, {}, True),
    ],
)
def test_values_are_compared_part_by_part(x, y, how, is_equal):
    check(x, y, **how, false=not is_equal)
    with pytest.raises(AssertionError, match="equals" if is_equal else "is not"):
        check(x, y, **how, false=is_equal)


def test_the_parameters_of_a_network_can_be_called_for_as_in_torch():
    with small_ppo(env="CartPole-v1").build_algo() as algorithm:
        module = algorithm.get_module()
        arrays = list(module.parameters())
        assert sum(array.size for array in arrays) == module.parameters.flat.size > 0
        before = convert_to_numpy(next(iter(module.parameters())))
        algorithm.train()
        check(before, convert_to_numpy(next(iter(module.parameters()))), decimals=9, false=True)
