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
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from gymnasium import spaces

from trainer.episodes import nested
from trainer.errors import ModuleError
from trainer.modules.spaces import distribution_for
from trainer.nn.distributions import (
    ActionDistribution,
    Categorical,
    DiagGaussian,
    MultiCategorical,
)
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
        if logits is None:
            torch = torch_library("TorchCategorical")
            logits = torch.distributions.utils.probs_to_logits(probs)  # that of 0 is finite
        self.logits = logits

    @classmethod
    def from_logits(cls, logits: Any, **kwargs: Any) -> TorchCategorical:
        """The distribution of what a forward pass gave."""
        return cls(logits=logits, **kwargs)

    def sample(self, *, sample_shape: Sequence[int] = ()) -> Any:
        """Drawn actions, int64 [*sample_shape, ...].

        Torch's generator is seeded while a module acts or learns.
        """
        torch = torch_library("TorchCategorical")
        drawn = torch.distributions.Categorical(logits=self.logits)
        return drawn.sample(torch.Size(sample_shape))

    def logp(self, value: Any) -> Any:
        """The log-probabilities of actions, [*sample_shape, ...]."""
        normal = self.logits.log_softmax(dim=-1).expand(*value.shape, -1)
        return normal.gather(-1, value.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Any:
        """The entropies in nats, [...]."""
        normal = self.logits.log_softmax(dim=-1)
        return -(normal.exp() * normal).sum(dim=-1)

    def kl(self, other: TorchCategorical) -> Any:
        """KL(this ‖ other) in nats, [...]."""
        own, others = (each.logits.log_softmax(dim=-1) for each in (self, other))
        return (own.exp() * (own - others)).sum(dim=-1)

    def to_deterministic(self) -> TorchDeterministic:
        """The most likely actions alone."""
        return TorchDeterministic(self.logits.argmax(dim=-1))


class TorchDeterministic:
    """Always the same actions.

    Attributes:
        loc: the actions.
    """

    def __init__(self, loc: Any) -> None:
        self.loc = loc

    def sample(self, *, sample_shape: Sequence[int] = ()) -> Any:
        """The actions, [*sample_shape, ...]."""
        return self.loc.expand(*sample_shape, *self.loc.shape)

    def logp(self, value: Any) -> Any:
        """Zeros, [B]: nothing was drawn."""
        return value.new_zeros(len(value), dtype=torch_library("TorchDeterministic").float32)

    def to_deterministic(self) -> TorchDeterministic:
        """Itself."""
        return self


class TorchDiagGaussian:
    """Independent normal distributions of the numbers of an action.

    Attributes:
        loc: means, a tensor [..., A].
        scale: standard deviations, [..., A].
    """

    def __init__(self, loc: Any, scale: Any) -> None:
        self.loc, self.scale = loc, scale

    @classmethod
    def from_logits(cls, logits: Any, **kwargs: Any) -> TorchDiagGaussian:
        """The distribution of means and log standard deviations side by side, [..., 2 A]."""
        loc, log_std = logits.chunk(2, dim=-1)
        return cls(loc, log_std.exp(), **kwargs)

    def sample(self, *, sample_shape: Sequence[int] = ()) -> Any:
        """Drawn actions, [*sample_shape, ..., A]; see `TorchCategorical.sample`."""
        torch = torch_library("TorchDiagGaussian")
        with torch.no_grad():
            return torch.normal(*self._expanded(sample_shape))

    def rsample(self, *, sample_shape: Sequence[int] = ()) -> Any:
        """Drawn actions, [*sample_shape, ..., A], that gradients go through."""
        torch = torch_library("TorchDiagGaussian")
        loc, scale = self._expanded(sample_shape)
        return loc + scale * torch.randn_like(loc)

    def _expanded(self, sample_shape: Sequence[int]) -> list[Any]:
        torch = torch_library("TorchDiagGaussian")
        both = torch.broadcast_tensors(self.loc, self.scale)
        return [each.expand(*sample_shape, *each.shape) for each in both]

    def logp(self, value: Any) -> Any:
        """The log-densities of actions, [...]."""
        z = (value - self.loc) / self.scale
        return (-0.5 * z.square() - self.scale.log() - 0.5 * math.log(2.0 * math.pi)).sum(dim=-1)

    def entropy(self) -> Any:
        """The entropies in nats, [...]."""
        return (self.scale.log() + 0.5 + 0.5 * math.log(2.0 * math.pi)).sum(dim=-1)

    def kl(self, other: TorchDiagGaussian) -> Any:
        """KL(this ‖ other) in nats, [...]."""
        spread = self.scale.square() + (self.loc - other.loc).square()
        ratio = spread / (2.0 * other.scale.square())
        return (other.scale.log() - self.scale.log() + ratio - 0.5).sum(dim=-1)

    def to_deterministic(self) -> TorchDeterministic:
        """The means alone."""
        return TorchDeterministic(self.loc)


class TorchMultiDistribution:
    """Several distributions beside each other, for a Tuple of actions.

    A module with such actions may name `get_partial_dist_cls(...)`, if its parts are those of the
    action space; losses compute with the distribution of the space.

    Attributes:
        children: the distributions.
    """

    parts: ClassVar[tuple[tuple[type, int], ...]] = ()
    """Classes and numbers of inputs; of classes that `get_partial_dist_cls` makes."""

    def __init__(self, child_distribution_struct: Sequence[Any]) -> None:
        """Puts them beside each other.

        Args:
            child_distribution_struct: the distributions, in the order of the space.
        """
        self.children = tuple(child_distribution_struct)

    @classmethod
    def get_partial_dist_cls(
        cls, child_distribution_cls_struct: Sequence[type], input_lens: Sequence[int]
    ) -> type[TorchMultiDistribution]:
        """A class that takes its parts from inputs side by side.

        Args:
            child_distribution_cls_struct: the classes of the parts, in the order of the space.
            input_lens: how many inputs each has.
        """
        parts = tuple(zip(child_distribution_cls_struct, input_lens, strict=True))
        return type(cls.__name__, (cls,), {"parts": parts})

    @classmethod
    def from_logits(cls, logits: Any) -> TorchMultiDistribution:
        """The distribution of inputs [..., K], of a class that knows its parts."""
        pieces = logits.split([width for _, width in cls.parts], dim=-1)
        found = zip(cls.parts, pieces, strict=True)
        return cls([kind.from_logits(piece) for (kind, _), piece in found])  # type: ignore[attr-defined]

    def sample(self, *, sample_shape: Sequence[int] = ()) -> tuple[Any, ...]:
        """Drawn actions, one of each part."""
        return tuple(child.sample(sample_shape=sample_shape) for child in self.children)

    def logp(self, value: Sequence[Any]) -> Any:
        """The sum over the parts, [...]."""
        pairs = zip(self.children, value, strict=True)
        return sum(child.logp(part) for child, part in pairs)

    def entropy(self) -> Any:
        """The sum over the parts, [...]."""
        return sum(child.entropy() for child in self.children)

    def kl(self, other: TorchMultiDistribution) -> Any:
        """KL(this ‖ other), the sum over the parts, [...]."""
        pairs = zip(self.children, other.children, strict=True)
        return sum(child.kl(part) for child, part in pairs)

    def to_deterministic(self) -> TorchMultiDistribution:
        """The most likely actions of all parts."""
        return TorchMultiDistribution([child.to_deterministic() for child in self.children])


class TorchMultiCategorical(TorchMultiDistribution):
    """Several choices beside each other, for MultiDiscrete actions: int64, [..., A]."""

    input_lens: ClassVar[tuple[int, ...]] = ()
    """How many alternatives each choice has; of classes that `get_partial_dist_cls` makes."""

    @classmethod
    def get_partial_dist_cls(  # type: ignore[override]
        cls, *, input_lens: Sequence[int], space: object = None
    ) -> type[TorchMultiCategorical]:
        """A class that takes the logits of all choices from inputs side by side.

        Args:
            input_lens: how many alternatives each choice has.
            space: of no effect.
        """
        del space
        return type(cls.__name__, (cls,), {"input_lens": tuple(map(int, input_lens))})

    @classmethod
    def from_logits(
        cls, logits: Any, input_lens: Sequence[int] | None = None
    ) -> TorchMultiCategorical:
        """The distribution of logits [..., K], split by `input_lens`, or as the class knows."""
        pieces = logits.split(list(cls.input_lens if input_lens is None else input_lens), dim=-1)
        return cls([TorchCategorical.from_logits(piece) for piece in pieces])

    def sample(self, *, sample_shape: Sequence[int] = ()) -> Any:
        """Drawn actions, int64 [*sample_shape, ..., A]."""
        torch = torch_library("TorchMultiCategorical")
        return torch.stack(super().sample(sample_shape=sample_shape), dim=-1)

    def logp(self, value: Any) -> Any:
        """The sum over the choices, [...]."""
        return super().logp(value.unbind(dim=-1))

    def to_deterministic(self) -> TorchDeterministic:  # type: ignore[override]
        """The most likely alternatives alone."""
        torch = torch_library("TorchMultiCategorical")
        chosen = [child.to_deterministic().loc for child in self.children]
        return TorchDeterministic(torch.stack(chosen, dim=-1))


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
        own = {forward: pair for forward, pair in named.items() if pair[0] is not None}
        # Those of the space itself change nothing.
        own = {n: pair for n, pair in own.items() if not _is_of_space(module, pair[0])}
        self._classes: Mapping[str, Any] = {forward: found for forward, (found, _) in own.items()}
        for found, where in own.values():
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


def _is_of_space(module: Any, found: Any) -> bool:
    """Whether a class is the distribution of the module's action space, by another name."""
    own = {TorchCategorical: Categorical, TorchDiagGaussian: DiagGaussian}
    space, kinds = module.action_space, [found]
    parts: list[ActionDistribution] = [module.action_distribution]
    if isinstance(found, type) and issubclass(found, TorchMultiCategorical):
        if not isinstance(space, spaces.MultiDiscrete) or type(parts[0]) is not MultiCategorical:
            return False
        return found.input_lens in ((), tuple(space.nvec.ravel().tolist()))
    if isinstance(found, type) and issubclass(found, TorchMultiDistribution):
        if not isinstance(space, spaces.Tuple):
            return False
        kinds = [kind for kind, _ in found.parts]
        parts = [distribution_for(part) for part in space]
        if [width for _, width in found.parts] != [part.num_inputs for part in parts]:
            return False
    return len(kinds) == len(parts) and all(
        kind in own and type(part) is own[kind] for kind, part in zip(kinds, parts, strict=True)
    )


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
