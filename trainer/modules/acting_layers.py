"""What a ready-made module computes when it acts, as data: for whoever writes it down elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.errors import ModuleError
from trainer.modules.actor_critic import ActorCriticModule
from trainer.modules.model_config import DefaultModelConfig
from trainer.modules.policy_module import PolicyModule
from trainer.modules.q_module import QModelConfig, QModule
from trainer.modules.rl_module import RLModule
from trainer.modules.sac_module import SACModelConfig, SACModule
from trainer.types import Array


@dataclass(frozen=True)
class ActingLayer:
    """y = f(x · kernel + bias).

    Attributes:
        kernel: float32 [K, N].
        bias: float32 [N].
        activation: name of f in `trainer.nn.activations.ACTIVATIONS`.
    """

    kernel: Array
    bias: Array
    activation: str


def acting_layers(module: RLModule) -> dict[str, list[ActingLayer]]:
    """The dense layers that acting runs through, by network.

    "encoder" comes first, if there is one; what it gives is read by the others: "pi", or "af" and
    "vf" of a `QModule`. The arrays are the module's own.

    Raises:
        ModuleError: the module is not ready-made, reads images, or has action masks.
    """
    activations = _activations(module)
    problem = None
    if activations is None:
        problem = "is a class of your own, whose computations only you know"
    elif module.action_masks is not None:
        problem = "has action masks, which are no part of its layers"
    elif any("/conv/" in name for name in module.parameters.views):
        problem = "reads images through convolutions"
    if problem or activations is None:
        raise ModuleError(
            f"The {type(module).__name__} {problem}, so it cannot be written down as a chain of "
            "dense layers. Possible are ready-made networks of dense layers; for others, take the "
            "weights (`checkpoints.load_weights`) and compute them yourself."
        )
    tensors = module.parameters.views
    return {
        network: [
            ActingLayer(tensors[f"{network}/{i}/kernel"], tensors[f"{network}/{i}/bias"], name)
            for i, name in enumerate(names)
        ]
        for network, names in activations.items()
        if names
    }


def _activations(module: RLModule) -> dict[str, list[str]] | None:
    """The activations of every network; None for a class that is not ready-made."""
    if type(module) is SACModule:
        policy = SACModelConfig.from_setting(module.model_config).layers("policy", 1)
        return {"pi": [layer.activation for layer in policy]}
    if type(module) is QModule:
        config = QModelConfig.from_setting(module.model_config)
        hidden, head = _hidden_and_head(config)
        streams = ["af", "vf"] if config.dueling else ["af"]
        return {"encoder": hidden, **dict.fromkeys(streams, head)}
    if type(module) in (ActorCriticModule, PolicyModule):
        settings = DefaultModelConfig.from_setting(module.model_config)
        hidden, head = _hidden_and_head(settings)
        if settings.vf_share_layers:
            return {"encoder": hidden, "pi": head}
        return {"pi": [*hidden, *head]}
    return None


def _hidden_and_head(config: DefaultModelConfig) -> tuple[list[str], list[str]]:
    hidden = [config.fcnet_activation or "linear"] * len(config.fcnet_hiddens)
    head = [config.head_fcnet_activation or "linear"] * len(config.head_fcnet_hiddens)
    return hidden, [*head, "linear"]
