"""The settings as callbacks see them in a runner: to read, never to change."""

import copy
import pickle

import pytest

from trainer.env_runners.env_runner import ConfigView

VIEW = ConfigView({"gamma": 0.9, "in_evaluation": False, "env_config": {"a": 1}})


def test_settings_are_read_by_attribute_and_by_key():
    assert VIEW.gamma == VIEW["gamma"] == 0.9
    assert VIEW.get("nothing", 3) == 3
    assert dict(VIEW) == {"gamma": 0.9, "in_evaluation": False, "env_config": {"a": 1}}
    assert len(VIEW) == 3
    assert "gamma" in VIEW


def test_nothing_can_be_set_and_the_message_says_where_to():
    with pytest.raises(AttributeError, match=r"config.gamma cannot be set .* before the algorithm"):
        VIEW.gamma = 1.0
    with pytest.raises(TypeError):
        VIEW["gamma"] = 1.0
    assert VIEW.gamma == 0.9


def test_an_unknown_setting_is_named_with_the_nearest():
    with pytest.raises(AttributeError, match=r"no setting 'gama'. Did you mean 'gamma'\?"):
        _ = VIEW.gama
    assert not hasattr(VIEW, "_no_such_thing")


def test_it_does_not_change_with_the_dict_it_was_made_of():
    settings = {"lr": 1.0}
    view = ConfigView(settings)
    settings["lr"] = 2.0
    assert view.lr == 1.0


def test_it_can_be_copied_and_pickled():
    for other in (copy.copy(VIEW), copy.deepcopy(VIEW), pickle.loads(pickle.dumps(VIEW))):
        assert other == VIEW
        assert other.gamma == 0.9
