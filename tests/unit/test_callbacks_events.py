import inspect

import pytest

from callbacks import EVENTS, RLlibCallback
from callbacks.events import signature_text, unknown_event_text


class MultiModule:
    """Has keys and items by id, like a multi-agent module, but is no Mapping."""

    def __init__(self, modules):
        self._modules = modules

    def keys(self):
        return list(self._modules)

    def __getitem__(self, module_id):
        return self._modules[module_id]


def _methods(cls):
    return {name: getattr(cls, name) for name in dir(cls) if name.startswith("on_")}


def test_every_event_is_a_method_and_every_method_an_event():
    assert set(_methods(RLlibCallback)) == set(EVENTS)


@pytest.mark.parametrize("event", EVENTS)
def test_methods_have_the_arguments_of_their_event_by_keyword_and_nothing_else(event):
    parameters = list(inspect.signature(getattr(RLlibCallback, event)).parameters.values())
    assert parameters[0].name == "self"
    assert parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
    between = parameters[1:-1]
    assert tuple(parameter.name for parameter in between) == EVENTS[event].arguments
    assert {parameter.kind for parameter in between} == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("event", EVENTS)
def test_methods_document_every_argument_and_where_they_run(event):
    assert event in vars(RLlibCallback)
    text = inspect.getdoc(getattr(RLlibCallback, event)) or ""
    for argument in EVENTS[event].arguments:
        assert f"{argument}: " in text
    assert "process" in text


@pytest.mark.parametrize("event", EVENTS)
def test_entries_are_complete_and_other_names_do_not_clash(event):
    entry = EVENTS[event]
    assert entry.name == event
    assert entry.scope in ("algorithm", "env_runner")
    assert "process" in entry.process
    assert entry.fired
    assert entry.not_fired
    assert not set(entry.arguments) & set(entry.old_arguments)


def test_documented_arguments_are_those_of_the_new_api():
    expected = {
        "on_algorithm_init": "algorithm metrics_logger",
        "on_train_result": "algorithm metrics_logger result",
        "on_evaluate_start": "algorithm metrics_logger",
        "on_evaluate_end": "algorithm metrics_logger evaluation_metrics",
        "on_env_runners_recreated": "algorithm env_runner_group env_runner_indices is_evaluation",
        "on_workers_recreated": "algorithm worker_set worker_ids is_evaluation",
        "on_checkpoint_loaded": "algorithm metrics_logger",
        "on_checkpoint_saved": "algorithm metrics_logger path",
        "on_environment_created": "env_runner metrics_logger env env_context",
        "on_sub_environment_created": "env_runner metrics_logger sub_environment env_context "
        "env_index",
        "on_episode_created": "episode env_runner metrics_logger env env_index rl_module",
        "on_episode_start": "episode env_runner metrics_logger env env_index rl_module",
        "on_episode_step": "episode env_runner metrics_logger env env_index rl_module",
        "on_episode_end": "episode env_runner metrics_logger env env_index rl_module "
        "prev_episode_chunks",
        "on_sample_end": "env_runner metrics_logger samples",
        "on_create_policy": "policy_id policy",
        "on_postprocess_trajectory": "env_runner metrics_logger episode agent_id policy_id "
        "policies postprocessed_batch original_batches",
        "on_learn_on_batch": "policy train_batch result",
    }
    declared = {event: " ".join(entry.arguments) for event, entry in EVENTS.items()}
    assert expected.items() <= declared.items()  # there may be events of our own besides


@pytest.mark.parametrize(
    ("event", "old", "new"),
    [
        ("on_episode_step", "worker", "env_runner"),
        ("on_episode_step", "base_env", "env"),
        ("on_sample_end", "worker", "env_runner"),
        ("on_env_runners_recreated", "worker_set", "env_runner_group"),
        ("on_env_runners_recreated", "worker_ids", "env_runner_indices"),
        ("on_workers_recreated", "env_runner_group", "worker_set"),
        ("on_workers_recreated", "env_runner_indices", "worker_ids"),
        ("on_sub_environment_created", "worker", "env_runner"),
        ("on_postprocess_trajectory", "worker", "env_runner"),
        ("on_create_policy", "rl_module", "policy"),
        ("on_create_policy", "module_id", "policy_id"),
        ("on_learn_on_batch", "rl_module", "policy"),
        ("on_postprocess_trajectory", "post_batch", "postprocessed_batch"),
        ("on_train_result", "trainer", "algorithm"),
    ],
)
def test_renamed_arguments_are_the_same_object(event, old, new):
    value = object()
    assert EVENTS[event].old_arguments[old]({new: value}) is value


def test_policies_hold_every_module_of_a_multi_module():
    modules = {"a": object(), "b": object()}
    derive = EVENTS["on_episode_end"].old_arguments["policies"]
    assert derive({"rl_module": MultiModule(modules)}) == modules
    assert derive({"rl_module": modules}) == modules


@pytest.mark.parametrize("original", [("p", "module", "before"), ("module", "before")])
def test_info_of_the_oldest_trajectory_callbacks_is_rebuilt(original):
    arguments = {"episode": "e", "agent_id": 7, "original_batches": {7: original}}
    arguments["postprocessed_batch"] = "after"
    info = EVENTS["on_postprocess_trajectory"].old_arguments["info"](arguments)
    assert info["pre_batch"] == ("module", "before")
    assert info["post_batch"] == "after"
    assert info["agent_id"] == 7


def test_the_module_of_a_trajectory_is_found():
    derive = EVENTS["on_postprocess_trajectory"].old_arguments["rl_module"]
    assert derive({"policies": {"p": "module", "q": "other"}, "policy_id": "p"}) == "module"


def test_signature_text_shows_arguments_and_other_names():
    assert signature_text("on_sample_end") == (
        "on_sample_end(*, env_runner, metrics_logger, samples); also, when named: worker"
    )
    assert signature_text("on_algorithm_init") == "on_algorithm_init(*, algorithm, metrics_logger)"


def test_a_name_like_no_event_is_answered_with_all_events():
    assert all(event in unknown_event_text("banana") for event in EVENTS)


def test_events_of_others_are_named_as_such():
    assert "offline evaluation" in unknown_event_text("on_evaluate_offline_end")
    assert "write `on_train_result`" in unknown_event_text("on_train_epoch_end")
