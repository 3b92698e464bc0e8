"""π in Torch: what losses of users compute with, and classes that modules may name.

Actions are drawn, and losses computed, by the distributions of `trainer.nn`; what is here lends
them to autograd, with their own gradients. So what a class that a module names (`action_dist_cls`,
as RLlib's do) may do is to change the logits in its constructor, such as to divide them by a
temperature:

    class Warm(TorchCategorical):
        def __init__(self, logits=None, probs=None, temperature=2.0):
            super().__init__(logits / temperature, probs)

    class MyModule(TorchRLModule):
        def setup(self):
            ...
            self.action_dist_cls = Warm
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from gymnasium import spaces

from trainer.episodes import nested
from trainer.errors import ModuleError
from trainer.nn.distributions import ActionDistribution
from trainer.nn.torch_network import torch_library
from trainer.types import Array

_KINDS: Final = ("inference", "exploration", "train")
_MAY_BE_WRITTEN: Final = frozenset({"__init__", "from_logits"})


class TorchCategorical:
    """Logits of a choice among n actions; subclasses change them in their constructor.

    Attributes:
        logits: a tensor [..., n]; what actions are drawn by.
    """

    def __init__(self, logits: Any = None, probs: Any = None) -> None:
        """Takes logits, or probabilities.

        Args:
            logits: a tensor [..., n].
            probs: a tensor of probabilities [..., n], if there are no logits.

        Raises:
            ModuleError: both were given, or none.
        """
        if (logits is None) is (probs is None):
            raise ModuleError(
                f"{type(self).__name__} was given {'none' if logits is None else 'both'} of "
                "`logits` and `probs`; expected one of them, a tensor with a number per action."
            )
        self.logits = probs.log() if logits is None else logits

    @classmethod
    def from_logits(cls, logits: Any, **kwargs: Any) -> TorchCategorical:
        """The distribution of what a forward pass gave."""
        return cls(logits=logits, **kwargs)


# ---- for losses


class TorchPolicies:
    """Makes the π of an action space; what RLlib calls a class of distributions."""

    def __init__(self, distribution: ActionDistribution) -> None:
        self._distribution = distribution

    def from_logits(self, logits: Any) -> TorchPolicy:
        """π for action distribution inputs, a tensor [B, K]."""
        return TorchPolicy(self._distribution, logits)


class TorchPolicy:
    """π of B rows, whose numbers gradients go through to its inputs.

    Attributes:
        inputs: the action distribution inputs, a tensor [B, K].
    """

    def __init__(self, distribution: ActionDistribution, inputs: Any) -> None:
        self._distribution, self.inputs = distribution, inputs

    def logp(self, actions: Any) -> Any:
        """The log-probabilities (or log-densities) of actions, a tensor [B]."""
        return self.terms(actions)[0]

    def entropy(self) -> Any:
        """The entropies in nats, a tensor [B]."""
        return self.terms(self._some_actions())[1]

    def kl(self, other: TorchPolicy) -> Any:
        """KL(this ‖ other) in nats, a tensor [B]; gradients go to the inputs of `other` alone.

        Raises:
            ModuleError: gradients are wanted for this one, too.
        """
        torch = torch_library("A loss in Torch")
        if torch.is_grad_enabled() and getattr(self.inputs, "requires_grad", False):
            raise ModuleError(
                "kl(): gradients go to the inputs of the second policy only, and those of the "
                "first one would be lost. Write `before.kl(now)`, or make the first one from "
                "`inputs.detach()`."
            )
        return other.terms(self._some_actions(), reference=self.inputs)[2]

    def terms(self, actions: Any, *, reference: Any = None) -> tuple[Any, Any, Any]:
        """Log π(a|s), entropies and KL(reference ‖ π) at once, a tensor [B] each.

        Args:
            actions: tensors or arrays, as the policy chose them, [B, …].
            reference: action distribution inputs of another policy, [B, K]; without, KL is 0.
        """
        return _terms_function().apply(  # type: ignore[no-any-return]
            self.inputs,
            self._distribution,
            nested.map_leaves(_array_of, actions),
            None if reference is None else self._distribution.canonical(_array_of(reference)),
        )

    def _some_actions(self) -> Any:
        return self._distribution.deterministic(_array_of(self.inputs))


def _array_of(values: Any) -> Array:
    return values if isinstance(values, np.ndarray) else values.detach().cpu().numpy()


@functools.cache
def _terms_function() -> Any:
    """`DistributionTerms` as a function of autograd; made late, for Torch is optional."""
    torch = torch_library("A loss in Torch")

    class Terms(torch.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(
            ctx: Any, inputs: Any, distribution: ActionDistribution, actions: Any, reference: Any
        ) -> Any:
            ctx.terms = terms = distribution.evaluate(
                _array_of(inputs), actions, reference=reference
            )
            ctx.like = inputs
            kl = np.zeros_like(terms.logp) if terms.kl is None else terms.kl
            return tuple(_tensor_like(inputs, part) for part in (terms.logp, terms.entropy, kl))

        @staticmethod
        @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
        def backward(ctx: Any, *d_parts: Any) -> Any:
            d_logp, d_entropy, d_kl = (_array_of(d_part) for d_part in d_parts)
            d_inputs = ctx.terms.backward(d_logp=d_logp, d_entropy=d_entropy, d_kl=d_kl)
            return _tensor_like(ctx.like, d_inputs), None, None, None

    def _tensor_like(inputs: Any, array: Array) -> Any:
        numbers = torch.from_numpy(np.ascontiguousarray(array))
        return numbers.to(device=inputs.device, dtype=inputs.dtype)

    return Terms


# ---- classes that modules name


class NamedDistributions:
    """The distribution classes that one module names, by forward pass; often none."""

    def __init__(self, module: Any) -> None:
        """Reads `action_dist_cls` and the methods `get_inference_action_dist_cls` and so on.

        Args:
            module: a `TorchRLModule` after its `setup`.

        Raises:
            ModuleError: a class is none that can be used here.
        """
        named = {f"_forward_{kind}": _class_of(module, kind) for kind in _KINDS}
        self._classes: Mapping[str, Any] = {
            forward: found for forward, (found, _) in named.items() if found is not None
        }
        for found, where in named.values():
            if found is not None:
                _check(module, found, where)

    def logits(self, forward: Callable[..., Any], inputs: Any) -> Any:
        """What actions are drawn by: the inputs, or what the named class makes of them.

        Args:
            forward: the forward pass that gave the inputs.
            inputs: a tensor [..., n].

        Raises:
            ModuleError: the class gives no logits of that shape.
        """
        named = self._classes.get(forward.__name__)
        if named is None:
            return inputs
        logits = named.from_logits(inputs).logits
        shape = getattr(logits, "shape", None)
        if shape is None or tuple(shape) != tuple(inputs.shape):
            given = type(logits).__name__ if shape is None else f"the shape {list(shape)}"
            raise ModuleError(
                f"`logits` of {named.__name__} is {given} for inputs of the shape "
                f"{list(inputs.shape)}; expected a tensor of that shape. Hand the changed logits "
                "to `super().__init__(logits=…)`."
            )
        return logits


def _class_of(module: Any, kind: str) -> tuple[Any, str]:
    """The class that a module names for a forward pass, and where; None for none."""
    method = f"get_{kind}_action_dist_cls"
    own = getattr(type(module), method, None)
    if own is not None and not own.__module__.startswith("trainer."):
        return getattr(module, method)(), f"{method}()"
    return module.__dict__.get("action_dist_cls"), "action_dist_cls"


def _check(module: Any, found: Any, where: str) -> None:
    name = type(module).__name__
    instead = (
        "What a class may do here is to change logits: derive it from "
        "`trainer.modules.torch_distributions.TorchCategorical` and hand the changed logits to "
        "`super().__init__(logits=…)`; for another distribution than the action space's own, "
        "override `make_action_distribution`."
    )
    if not isinstance(found, type) or not issubclass(found, TorchCategorical):
        raise ModuleError(
            f"`{where}` of {name} names {getattr(found, '__name__', found)!r:.80}, a distribution "
            f"class that would not be used here. {instead}"
        )
    if not isinstance(module.action_space, spaces.Discrete):
        raise ModuleError(
            f"`{where}` of {name} names {found.__name__}, a distribution of one choice, but the "
            f"action space is {module.action_space}. {instead}"
        )
    own = found.__mro__[: found.__mro__.index(TorchCategorical)]
    written = {key for part in own for key, value in vars(part).items() if _is_method(value)}
    if written - _MAY_BE_WRITTEN:
        raise ModuleError(
            f"`{where}` of {name} names {found.__name__}, whose methods "
            f"{', '.join(sorted(written - _MAY_BE_WRITTEN))} would not be used here. {instead}"
        )


def _is_method(value: Any) -> bool:
    return callable(value) or isinstance(value, property | classmethod | staticmethod)
