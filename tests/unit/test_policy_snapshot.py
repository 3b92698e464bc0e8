"""How runners act: what of it one lacks, what follows, and that it comes back from plain data."""

import numpy as np
import pytest

from checkpoints import encode
from trainer.connectors import Normalization
from trainer.connectors.encoding import RewardTransform
from trainer.env_runners.messages import ModuleWeights, PolicySnapshot, Weights
from trainer.modules import ByModule, ModuleTable, RLModuleSpec

PARTS = ("weights", "normalization", "table")


def weights(version=1):
    return Weights(ByModule({"m": ModuleWeights(version, {"w": np.ones(2)})}), timestep=7)


def normalization(factor=2.0):
    return ByModule({"m": Normalization(rewards=RewardTransform(factor=factor))})


def table(version=0):
    return ModuleTable(ByModule({"m": RLModuleSpec()}), version=version)


def whole():
    return PolicySnapshot(weights(), normalization(), table())


def parts_of(snapshot):
    return {name: part for name in PARTS if (part := getattr(snapshot, name)) is not None}


def test_a_runner_that_was_sent_it_lacks_nothing_and_a_new_one_everything():
    now = whole()
    assert parts_of(now.since(now)) == {}
    assert now.since(None) is now


@pytest.mark.parametrize("part", ["weights", "normalization"])
def test_what_is_new_is_told_by_identity_and_sent_alone(part):
    before = whole()
    # Weights of the same version may hold other numbers.
    equal = {"weights": weights(), "normalization": normalization()}[part]
    after = before.followed_by(PolicySnapshot(**{part: equal}))
    assert after is not before
    assert parts_of(after.since(before)) == {part: equal}


def test_with_other_modules_everything_is_new():
    before = whole()
    after = before.followed_by(PolicySnapshot(table=table(1)))
    assert parts_of(after.since(before)).keys() == {*PARTS}


def test_parts_that_are_none_stay_and_the_same_parts_make_no_new_snapshot():
    before = whole()
    assert before.followed_by(PolicySnapshot()) is before
    # What is in force is put together anew after each step, of the same values.
    same = ByModule(dict(before.normalization or {}))
    assert before.followed_by(PolicySnapshot(before.weights, same, before.table)) is before


def test_it_comes_back_from_plain_data():
    before = whole()
    state = before.to_state(np.array)
    again = PolicySnapshot.from_state(state, before)
    assert encode(again.to_state(np.array)) == encode(state)
    assert (again.version, again.ids) == (1, ("m",))
    alone = PolicySnapshot(before.weights, before.normalization)
    assert PolicySnapshot.from_state(alone.to_state(np.array), before).table is None
