"""The classes of `trainer` are what `callbacks.views` promises to callbacks.

They do not inherit from the views, so nothing but these tests keeps the two together. Members and
signatures are compared on real objects; mypy compares the types in `_views_hold_by_type`.
"""

import inspect

import pytest

from callbacks import views
from tests.architecture.source_tree import expect_clean
from trainer import (
    PPOConfig,
    SingleAgentEpisode,
)
from trainer.connectors import SampleBatch

VIEWS = {
    "Algorithm": views.AlgorithmView,
    "EnvRunnerGroup": views.EnvRunnerGroupView,
    "SingleAgentEnvRunner": views.EnvRunnerView,
    "SingleAgentEpisode": views.EpisodeView,
    "MetricsLogger": views.MetricsLoggerView,
    "VectorEnv": views.VectorEnvView,
    "RLModule": views.RLModuleView,
    "SampleBatch": views.SampleBatchView,
    "the config of an env runner": views.ConfigView,
}

_CALLED_BY_POSITION = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


def _views_hold_by_type(algorithm, group, runner, episode, logger, env, module, batch):
    # Never called: mypy refuses an assignment whose types do not fit.
    _algorithm = algorithm
    _group = group
    _runner = runner
    _episode = episode
    _logger = logger
    _env = env
    _module = module
    _batch = batch


@pytest.fixture(scope="module")
def objects():
    """One object for each view, as a callback receives it."""
    config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    with config.training(model={"fcnet_hiddens": [4]}).build_algo() as algorithm:
        runner = algorithm.env_runner_group.local_env_runner
        assert runner is not None
        yield {
            "Algorithm": algorithm,
            "EnvRunnerGroup": algorithm.env_runner_group,
            "SingleAgentEnvRunner": runner,
            "SingleAgentEpisode": SingleAgentEpisode(),
            "MetricsLogger": runner.metrics,
            "VectorEnv": runner.env,
            "RLModule": runner.module,
            "SampleBatch": SampleBatch(rewards=[]),
            "the config of an env runner": runner.config,
        }


def view_problems(view, candidate):
    """Members of a view that an object lacks, or that cannot be called as the view says."""
    problems = {}
    for name, member in members(view).items():
        place = f"{view.__name__}.{name}"
        if not hasattr(candidate, name):
            problems[place] = f"{type(candidate).__name__} has no {name}, which {place} promises"
        elif not isinstance(member, property):
            reason = _why_not_callable(inspect.signature(member), getattr(candidate, name))
            if reason:
                problems[place] = f"{type(candidate).__name__}.{name} against {place}: {reason}"
    return problems


def members(view):
    """The properties and methods that a view declares."""
    return {
        name: member
        for name, member in vars(view).items()
        if (inspect.isfunction(member) or isinstance(member, property))
        and (not name.startswith("_") or name == "__len__")
    }


def _why_not_callable(promised, method):
    """Tries every way in which the promised signature may be called; the first error, or nothing.

    The ways: the required arguments alone; all of them, by position where that is promised; all of
    them, by name where that is promised.
    """
    own = inspect.signature(method)
    parameters = list(promised.parameters.values())[1:]  # without self
    required = [found for found in parameters if found.default is found.empty]
    for given in (required, parameters):
        for kinds in ((inspect.Parameter.POSITIONAL_ONLY,), _CALLED_BY_POSITION):
            positional = [found.name for found in given if found.kind in kinds]
            named = {found.name: None for found in given if found.kind not in kinds}
            try:
                own.bind(*positional, **named)
            except TypeError as error:
                return f"{error}; promised is {promised}, found {own}"
    return ""


@pytest.mark.parametrize("name", VIEWS)
def test_objects_of_the_trainer_are_what_views_promise(name, objects):
    assert members(VIEWS[name])
    assert isinstance(objects[name], VIEWS[name])
    expect_clean(view_problems(VIEWS[name], objects[name]))


class _LoggerWithFaults:
    """Keeps two promises of `MetricsLoggerView` and breaks three."""

    def log_value(self, key, value, *, reduce=None): ...
    def log_dict(self, value_dict, *, key=None, **more): ...
    def log_time(self, name): ...
    def set_value(self, *arguments, **named): ...


def test_a_broken_promise_is_found():
    problems = view_problems(views.MetricsLoggerView, _LoggerWithFaults())
    assert list(problems) == [
        "MetricsLoggerView.log_value",
        "MetricsLoggerView.log_time",
        "MetricsLoggerView.peek",
    ]
    assert "window" in problems["MetricsLoggerView.log_value"]
    assert "'name'" in problems["MetricsLoggerView.log_time"]
    assert "has no peek" in problems["MetricsLoggerView.peek"]


def test_an_argument_that_is_required_but_not_promised_is_found():
    class Env:
        envs = ()
        num_envs = 0

        def unwrapped(self): ...

    class Group:
        local_env_runner = None

        def foreach_env_runner(self, func, timeout_s, **options): ...
        def set_task(self, task): ...
        def get_tasks(self): ...
        def healthy_env_runner_ids(self): ...

    assert view_problems(views.VectorEnvView, Env()) == {}
    problems = view_problems(views.EnvRunnerGroupView, Group())
    assert list(problems) == ["EnvRunnerGroupView.foreach_env_runner"]
    assert "timeout_s" in problems["EnvRunnerGroupView.foreach_env_runner"]
