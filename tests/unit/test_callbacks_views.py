from types import SimpleNamespace

import pytest

from callbacks import views

VIEWS = {
    views.AlgorithmView: "training_iteration config metrics env_runner_group eval_env_runner_group "
    "evaluate save_to_path finish_saving get_module get_weights after_train_result is_stopped",
    views.ConfigView: "in_evaluation",
    views.EnvRunnerGroupView: "local_env_runner foreach_env_runner set_task get_tasks "
    "healthy_env_runner_ids",
    views.EnvRunnerView: "worker_index config env module metrics num_envs weights_version env_seed",
    views.EpisodeView: "id_ t is_terminated is_truncated is_done task custom_data __len__ "
    "get_observations get_actions get_rewards get_infos get_extra_model_outputs get_return "
    "get_rewritten_return "
    "env_steps add_temporary_timestep_data get_temporary_timestep_data",
    views.MetricsLoggerView: "log_value log_dict log_time set_value peek",
    views.RLModuleView: "observation_space action_space forward_inference forward_exploration "
    "get_state",
    views.VectorEnvView: "envs num_envs unwrapped",
}


@pytest.mark.parametrize("view", VIEWS)
def test_an_object_satisfies_a_view_with_all_of_its_members_only(view):
    members = dict.fromkeys(VIEWS[view].split(), 0)
    assert isinstance(SimpleNamespace(**members), view)
    for missing in members:
        others = {name: 0 for name in members if name != missing}
        assert not isinstance(SimpleNamespace(**others), view)
