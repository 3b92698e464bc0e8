"""Errors on their way from a worker: what can travel does, and the type comes before the cause."""

import cloudpickle
import pytest

from callbacks import CallbackError
from trainer.errors import EnvCreationError, RemoteError
from trainer.runtime.messages import RemoteTraceback, describe_failure
from trainer.testing import InjectedFaultError, UnpicklableError


def raised(error, cause=None):
    with pytest.raises(type(error)) as caught:
        raise error from cause
    return caught.value


def test_an_error_arrives_with_its_cause_and_the_remote_traceback():
    cause = InjectedFaultError("why")
    arrived = describe_failure(raised(EnvCreationError("what"), cause)).unpack_error()
    assert isinstance(arrived, EnvCreationError)
    assert isinstance(arrived.__cause__, InjectedFaultError)
    assert isinstance(arrived.__cause__.__cause__, RemoteTraceback)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (EnvCreationError("what"), EnvCreationError),
        (CallbackError("mine", "on_episode_end", original=UnpicklableError("why")), CallbackError),
    ],
)
def test_a_cause_that_cannot_travel_stays_behind_alone(error, expected):
    arrived = describe_failure(raised(error, UnpicklableError("why"))).unpack_error()
    assert isinstance(arrived, expected)
    assert isinstance(arrived.__cause__, RemoteTraceback)
    assert "UnpicklableError: why" in str(arrived.__cause__), "its text is told"


def test_an_error_that_cannot_travel_is_told_by_its_text():
    arrived = describe_failure(raised(UnpicklableError("why"))).unpack_error()
    assert isinstance(arrived, RemoteError)
    assert "UnpicklableError: why" in str(arrived)


def test_an_error_that_does_not_load_here_is_told_by_its_text(monkeypatch):
    failure = describe_failure(raised(InjectedFaultError("why")))

    def missing(_):
        raise ImportError("no such module here")

    monkeypatch.setattr(cloudpickle, "loads", missing)
    assert isinstance(failure.unpack_error(), RemoteError)
