"""Gymnasium's spaces as plain data and back."""

import numpy as np
import pytest
from gymnasium import spaces

from checkpoints import encode
from trainer.errors import UnsupportedSpaceError
from trainer.modules.rl_module import space_from_record, space_record


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1.0, 1.0, (2, 3)),
        spaces.Box(np.array([-np.inf, 0.1], np.float32), np.array([5.0, np.inf], np.float32)),
        spaces.Box(0, 255, (8, 8, 3), np.uint8),
        spaces.Box(-1.0, 1.0, (), np.float64),
        spaces.Discrete(5, start=-2),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])),
        spaces.MultiBinary(4),
        spaces.MultiBinary([2, 3]),
        spaces.Text(5, min_length=1, charset="abc"),
        spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Tuple([spaces.MultiBinary(1)])}),
    ],
)
def test_spaces_come_back_as_they_were(space):
    record = space_record(space)
    again = space_from_record(record)
    assert again == space
    assert (again.dtype, again.shape) == (space.dtype, space.shape)
    assert encode(space_record(again)) == encode(record)
    assert len(encode(record)) < 600
    if isinstance(space, spaces.Dict):
        assert isinstance(again, spaces.Dict)
        assert list(again.keys()) == list(space.keys())


def test_other_spaces_have_to_be_given_again():
    class Own(spaces.Discrete):
        pass

    for space in (Own(2), spaces.Sequence(spaces.Discrete(2))):
        with pytest.raises(UnsupportedSpaceError, match="Give the space again"):
            space_record(space)
    for record in ({}, None, {"space": "Box"}, {"space": "Door"}, {"space": "Discrete", "n": "x"}):
        with pytest.raises(UnsupportedSpaceError, match="describes no space"):
            space_from_record(record)
