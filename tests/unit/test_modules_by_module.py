"""Values, checkpoint components and random numbers by module id."""

import numpy as np
import pytest

from checkpoints import encode
from trainer import seeding
from trainer.env_runners.messages import ModuleWeights, Weights
from trainer.errors import ModuleError
from trainer.modules import ByModule, component_of, module_position
from trainer.seeding import id_digest
from trainer_toolkit.plain_classes import from_plain, to_plain


class Number:
    """A part with a state."""

    def __init__(self, value):
        self.value = value

    def get_state(self):
        return {"value": self.value}

    def set_state(self, state):
        self.value = state["value"]


def test_ids_are_in_canonical_order_however_they_were_given():
    values = ByModule({"b": 2, "a": 1, "B": 3})
    assert list(values) == ["B", "a", "b"]
    assert values.map(str).to_state() == {"B": "3", "a": "1", "b": "2"}
    assert list(values.map(str)) == ["B", "a", "b"]


def test_one_module_is_saved_without_its_id_and_several_with():
    for ids in (["p"], ["p", "q"]):
        values = ByModule({id_: {"x": id_} for id_ in ids})
        state = values.to_state()
        assert state == ({"x": "p"} if len(ids) == 1 else {"p": {"x": "p"}, "q": {"x": "q"}})
        assert dict(ByModule.from_state(state, ids)) == dict(values)


def test_the_only_one_is_asked_for_where_there_are_several():
    assert ByModule({"p": 7}).only == 7
    with pytest.raises(ModuleError, match="2 modules \\(p, q\\)"):
        _ = ByModule({"q": 1, "p": 2}).only


def test_the_component_of_one_module_is_its_part():
    one, other = Number(1), Number(2)
    assert component_of({"p": one}, ["p"]) is one
    both = component_of({"q": other, "p": one}, ["p", "q"])
    assert both.get_state() == {"p": {"value": 1}, "q": {"value": 2}}
    both.set_state({"p": {"value": 5}, "q": {"value": 6}})
    assert (one.value, other.value) == (5, 6)
    # The only one of several that has a state keeps its id.
    assert component_of({"p": one}, ["p", "q"]).get_state() == {"p": {"value": 5}}


@pytest.mark.parametrize("ids", [["p"], ["p", "q"]])
def test_weights_as_plain_data_come_back(ids):
    modules = {
        id_: ModuleWeights(number + 1, {"w": np.full(2, number, np.float32)}, {"stddev": 0.5})
        for number, id_ in enumerate(ids)
    }
    weights = Weights(ByModule(modules), timestep=30, connectors={"seen": 4})
    again = from_plain(Weights, to_plain(weights))
    assert encode(to_plain(again)) == encode(to_plain(weights))
    assert again.version == sum(range(1, len(ids) + 1))


def test_random_numbers_of_a_module_follow_from_its_id_alone():
    assert module_position("default_policy") == ()
    assert module_position("a") == (0x4CF6829AA93728E8,)  # of SHA-256 of "sa", see below
    assert module_position("a") != module_position("b")

    def first(*ids):
        return [
            float(seeding.weights_rng(3, of=module_position(id_)).standard_normal()) for id_ in ids
        ]

    assert first("a") == first("a", "b")[:1]
    assert len({*first("a", "b", "default_policy")}) == 3
    assert first("default_policy") == [float(seeding.weights_rng(3).standard_normal())]


def test_the_digest_of_an_id_knows_its_type():
    # The first 64 bits of SHA-256 of "i0" and of "s0", from another implementation (sha256sum).
    assert id_digest(0) == 0xA4E167A76A05ADD8
    assert id_digest("0") == 0xEC18EAC8D758B1EB
