"""Weights that Stable-Baselines3 has saved, for the networks here.

Only tensors and the name of an activation are read: pickles in such a file are never opened, and
Torch reads tensors without running code (`weights_only`).
"""

from __future__ import annotations

import io
import json
import pickletools
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from checkpoints import CheckpointCorruptError, CheckpointMismatchError, PathLike
from checkpoints.policy import MAX_FREE_BYTES, MAX_RATIO
from trainer.nn.torch_network import torch_library
from trainer.types import Array

_TENSORS: Final = "policy.pth"
_VARIABLES: Final = "pytorch_variables.pth"
"""What is learnt beside the networks: SAC's temperature."""
_SAFE_SINCE: Final = (2, 6)
"""Before, `weights_only` could be made to run code (CVE-2025-32434)."""
_GLOBALS: Final = frozenset(
    {"collections OrderedDict", "torch._utils _rebuild_tensor_v2"}
    | {"torch._utils _rebuild_parameter", "torch FloatStorage"}
    | {"torch DoubleStorage", "torch LongStorage"}
)
"""All that tensors in a dict need by name. Others that `weights_only` knows run nothing, but take
memory as a file likes, such as `bytearray`."""
_DIMENSIONS: Final = {"weight": 2, "bias": 1, "log_std": 1}
"""Of tensors, by the last part of their name; of others at most one number."""
_ACTIVATION: Final = re.compile(r"torch\.nn\.modules\.activation\.(Tanh|ReLU|ELU|SiLU|Sigmoid)'")


@dataclass(frozen=True)
class SB3Policy:
    """What was read of an agent of Stable-Baselines3.

    Attributes:
        algorithm: "PPO" (of A2C, too, whose network is the same), "DQN", "SAC", "TD3" or "DDPG".
        settings: what a config needs for the same network: `config.update_from_dict(settings)`.
        weights: float32 arrays by the names of that network's tensors.
    """

    algorithm: str
    settings: dict[str, Any]
    weights: dict[str, Array] = field(repr=False)


def load_sb3_policy(file: PathLike) -> SB3Policy:
    """Reads the weights of a `.zip` file that `model.save()` of Stable-Baselines3 wrote.

        policy = load_sb3_policy("ppo_cartpole.zip")
        config = PPOConfig().environment("CartPole-v1").update_from_dict(policy.settings)
        with config.build_algo() as algo:
            algo.set_weights({"default_policy": policy.weights})

    Taken are networks of dense layers ("MlpPolicy") of PPO, A2C, DQN, SAC, TD3 and DDPG. Not taken
    are states of optimisers, replay buffers and statistics of `VecNormalize`, which are pickles.

    Raises:
        ImportError: Torch is not installed (the extra `torch`), or older than 2.6.
        FileNotFoundError: there is no such file.
        CheckpointCorruptError: it is no such file, damaged, or packed far beyond its size.
        CheckpointMismatchError: it holds another network; the message lists its tensors.
    """
    torch = torch_library("load_sb3_policy()")
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < _SAFE_SINCE:
        raise ImportError(
            f"load_sb3_policy() needs Torch ≥ 2.6, and {torch.__version__} is installed: older "
            "ones can be made to run what a file says. Install a newer one."
        )
    path = Path(file).expanduser()
    try:
        with path.open("rb") as opened, zipfile.ZipFile(opened) as archive:
            most = MAX_FREE_BYTES + MAX_RATIO * path.stat().st_size
            arrays = {
                name: array
                for file_ in (_TENSORS, _VARIABLES)
                for name, array in _arrays(torch, _content(archive, file_, most), most).items()
            }
            activation = _activation(json.loads(_content(archive, "data", most)))
    except FileNotFoundError:
        raise
    except Exception as cause:  # any: damage makes zipfile, zlib, json and Torch raise many classes
        raise CheckpointCorruptError(
            f"{path} cannot be read as an agent of Stable-Baselines3 ({type(cause).__name__}: "
            f"{cause!s:.200}). Give the .zip file that `model.save()` wrote."
        ) from cause
    read = _Tensors(path, arrays)
    if "action_net.weight" in arrays:
        return _ppo(read, activation or "tanh")
    if "actor.mu.weight" in arrays:
        return _sac(read, activation or "relu")
    if "actor.mu.0.weight" in arrays:
        return _td3(read, activation or "relu")
    if "q_net.q_net.0.weight" in arrays:
        return _dqn(read, activation or "relu")
    raise read.misfit("they are of no algorithm that is known here")


def _content(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    size = archive.getinfo(name).file_size
    if size > most:
        raise ValueError(f"{name} has {size:,} bytes, more than the {most:,} allowed")
    return archive.read(name)


def _arrays(torch: Any, content: bytes, most: int) -> dict[str, Array]:
    """The tensors of a file of Torch; it is an archive, too, and tensors may repeat numbers."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
        num_bytes = sum(entry.file_size for entry in entries)
        if num_bytes > most:
            raise ValueError(f"{num_bytes:,} bytes are in it, more than the {most:,} allowed")
        for entry in entries:
            if entry.filename.endswith(".pkl"):
                _check_names(archive.read(entry))
    found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    tensors = {str(n): value for n, value in found.items() if isinstance(value, torch.Tensor)}
    num_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if num_bytes > most:
        raise ValueError(f"its tensors have {num_bytes:,} bytes, more than the {most:,} allowed")
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


def _check_names(description: bytes) -> None:
    """Looks at the operations of a pickle, without doing them."""
    for operation, argument, _ in pickletools.genops(description):
        is_unknown = operation.name == "GLOBAL" and argument not in _GLOBALS
        if is_unknown or operation.name in ("STACK_GLOBAL", "INST"):
            raise ValueError(f"it names {argument or 'something'!r:.80}, which no tensor needs")


def _activation(data: Any) -> str | None:
    """The activation of hidden layers as the file names it in words; None if it does not."""
    given = data.get("policy_kwargs") if isinstance(data, dict) else None
    named = given.get("activation_fn", "") if isinstance(given, dict) else ""
    found = _ACTIVATION.search(str(named))
    return found[1].lower() if found else None


class _Tensors:
    """The tensors of one file, of which all have to be taken."""

    def __init__(self, path: Path, arrays: Mapping[str, Array]) -> None:
        self._path, self._arrays, self._left = path, arrays, set(arrays)

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def take(self, name: str) -> Array:
        """A tensor as float32."""
        if name not in self._arrays:
            raise self.misfit(f"{name!r} is missing")
        array, wanted = self._arrays[name], _DIMENSIONS.get(name.rpartition(".")[2])
        if array.ndim != wanted if wanted else array.size != 1:
            raise self.misfit(f"{name!r} has the shape {list(array.shape)}")
        self._left.discard(name)
        return np.ascontiguousarray(array, np.float32)

    def layers(self, name: str) -> list[str]:
        """The names of the dense layers of a chain, in order."""
        found = {n.removesuffix(".weight") for n in self._arrays if n.endswith(".weight")}
        inner = [n for n in found if re.fullmatch(rf"{re.escape(name)}\.\d+", n)]
        return sorted(inner, key=lambda n: int(n.rpartition(".")[2]))

    def network(self, prefix: str, layers: list[str]) -> dict[str, Array]:
        """The tensors of a chain of dense layers under the names that they have here."""
        return {
            f"{prefix}/{number}/{part}": array
            for number, layer in enumerate(layers)
            for part, array in (
                ("kernel", np.ascontiguousarray(self.take(f"{layer}.weight").T)),
                ("bias", self.take(f"{layer}.bias")),
            )
        }

    def widths(self, layers: list[str]) -> list[int]:
        """The number of units of each layer."""
        return [len(self.take(f"{layer}.weight")) for layer in layers]

    def done(self, *, ignored: str | tuple[str, ...] = ()) -> None:
        """Refuses a file of which something is left that changes what the network computes."""
        left = sorted(name for name in self._left if not name.startswith(ignored))
        if left:
            raise self.misfit(f"nothing here corresponds to {', '.join(left)}")

    def misfit(self, why: str) -> CheckpointMismatchError:
        """The error of a network that is another one."""
        shapes = ", ".join(f"{n} {list(a.shape)}" for n, a in sorted(self._arrays.items()))
        return CheckpointMismatchError(
            f"{self._path} holds tensors for which there is no network here: {why}. Taken are "
            f"'MlpPolicy' networks of PPO, A2C, DQN, SAC, TD3 and DDPG. It holds {shapes:.1500}. "
            "For another one, write it as a TorchRLModule and give it your state_dict: "
            "`algo.get_module().from_torch(model.policy.state_dict(), strict=False)`."
        )


def _ppo(read: _Tensors, activation: str) -> SB3Policy:
    policy = read.layers("mlp_extractor.policy_net")
    values = read.layers("mlp_extractor.value_net")
    widths = read.widths(policy)
    if widths != read.widths(values):
        raise read.misfit("hidden layers of policy and values differ in width")
    weights = {
        **read.network("pi", [*policy, "action_net"]),
        **read.network("vf", [*values, "value_net"]),
    }
    model = {"fcnet_hiddens": widths, "fcnet_activation": activation, "vf_share_layers": False}
    settings: dict[str, Any] = {"model": model}
    if "log_std" in read:
        weights["pi/log_std"] = read.take("log_std")
        model["free_log_std"] = True
        settings |= {"normalize_actions": False, "clip_actions": True}
    read.done()
    return SB3Policy("PPO", settings, weights)


def _dqn(read: _Tensors, activation: str) -> SB3Policy:
    *hidden, last = read.layers("q_net.q_net")
    weights = {**read.network("encoder", hidden), **read.network("af", [last])}
    model = {"fcnet_hiddens": read.widths(hidden), "fcnet_activation": activation}
    read.done(ignored="q_net_target.")
    return SB3Policy("DQN", {"model": model, "dueling": False, "double_q": False}, weights)


def _sac(read: _Tensors, activation: str) -> SB3Policy:
    hidden = read.layers("actor.latent_pi")
    widths = read.widths(hidden)
    weights = read.network("pi", [*hidden, "actor.mu"])
    deviations = read.network("pi", ["actor.log_std"])
    for part, axis in (("kernel", 1), ("bias", 0)):
        name = f"pi/{len(hidden)}/{part}"
        weights[name] = np.concatenate([weights[name], deviations[f"pi/0/{part}"]], axis=axis)
    weights |= _critics(read, ("critic.qf0", "critic.qf1"), widths)
    if "log_ent_coef" in read:
        weights["log_alpha"] = read.take("log_ent_coef").reshape(1)
    else:
        weights["log_alpha"] = np.log(read.take("ent_coef_tensor")).reshape(1)  # it stays as it is
    read.done(ignored="critic_target.")
    model = {"fcnet_hiddens": widths, "fcnet_activation": activation}
    return SB3Policy("SAC", {"model": model}, weights)


def _td3(read: _Tensors, activation: str) -> SB3Policy:
    layers = read.layers("actor.mu")
    widths, theirs = read.widths(layers)[:-1], ["critic.qf0", "critic.qf1"]
    algorithm = "TD3" if "critic.qf1.0.weight" in read else "DDPG"
    weights = read.network("pi", layers)
    weights |= _critics(read, theirs if algorithm == "TD3" else theirs[:1], widths)
    read.done(ignored=("actor_target.", "critic_target."))
    model = {"fcnet_hiddens": widths, "fcnet_activation": activation}
    return SB3Policy(algorithm, {"model": model}, weights)


def _critics(read: _Tensors, names: Sequence[str], widths: list[int]) -> dict[str, Array]:
    """The tensors of one or two critics, whose hidden layers are as wide as the policy's."""
    weights: dict[str, Array] = {}
    for ours, theirs in zip(("qf", "qf_twin"), names, strict=False):
        layers = read.layers(theirs)
        if read.widths(layers)[:-1] != widths:
            raise read.misfit("hidden layers of policy and critics differ in width")
        weights |= read.network(ours, layers)
    return weights
