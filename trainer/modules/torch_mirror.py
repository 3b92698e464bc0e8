"""Layers of Torch on another device than the processor, for learning."""

from __future__ import annotations

import copy
import math
from typing import Any


class TorchMirror:
    """A copy of the layers on another device, where learning computes.

    The numbers stay where they are, in the flat vectors: before a forward pass they are copied to
    the device, after a backward pass the gradients are copied back, in one piece each.

    Attributes:
        container: the copy of the layers.
        device: where it is.
        parts: its parameters, with their gradients.
    """

    def __init__(self, torch: Any, device: Any, container: Any, module: Any) -> None:
        """Copies the layers.

        Args:
            torch: the library.
            device: a `torch.device`.
            container: the layers, over the module's flat vectors.
            module: whose flat vectors they are.
        """
        self.device = device
        self.container = copy.deepcopy(container).to(device)
        self._host_buffers = dict(container.named_buffers())
        self._host = torch.from_numpy(module.parameters.flat)
        self._host_gradients = torch.from_numpy(module.gradients.flat)
        self._flat = self._host.to(device, copy=True)
        self._gradients = torch.zeros_like(self._flat)
        tensors = dict(self.container.named_parameters())
        self.parts: list[tuple[Any, Any]] = []
        start = 0
        for name, shape in module.parameters.shapes.items():
            stop = start + math.prod(shape)
            tensors[name].data = self._flat[start:stop].view(shape)
            self.parts.append((tensors[name], self._gradients[start:stop].view(shape)))
            start = stop

    def fetch(self) -> None:
        """Takes over weights and buffers."""
        self._flat.copy_(self._host)
        for name, buffer in self.container.named_buffers():
            buffer.copy_(self._host_buffers[name])

    def return_buffers(self) -> None:
        """Gives back what a forward pass of learning made of the buffers."""
        for name, buffer in self.container.named_buffers():
            self._host_buffers[name].copy_(buffer)

    def clear_gradients(self) -> None:
        """Before a backward pass."""
        self._gradients.zero_()

    def return_gradients(self) -> None:
        """After a backward pass."""
        self._host_gradients.copy_(self._gradients)
