"""The forward pass for acting: every row gives the same bits, whatever other rows are in the batch.

An env slot must compute the same action whether it acts alone, with seven others, or in another
process. BLAS does not promise that: a product of one row may run other code than a product of eight
rows, and sums then round differently. So rows are padded to blocks of eight, and every block is
multiplied as its own [8, K] @ [K, N]: same shape, same code, same order of additions. Measured on
OpenBLAS with seven instruction sets: identical bits for every place in a block; only products with
N = 1, which BLAS treats as matrix times vector, differed on one of them and are therefore added up
by NumPy row by row. The blocks must never be merged into one larger product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from trainer.nn.layers import Activation, DenseLayer
from trainer.types import Array

BLOCK_ROWS: Final = 8
"""Rows per product. Part of what a run computes: another number changes the bits of actions."""


def padded_rows(rows: int) -> int:
    """The number of rows rounded up to whole blocks."""
    return -(-rows // BLOCK_ROWS) * BLOCK_ROWS


def matmul_rows(rows: Array, matrix: Array) -> Array:
    """`rows @ matrix` with bits that do not depend on the number of rows, for users' networks.

    Args:
        rows: [B, K].
        matrix: [K, N], same dtype.

    Returns:
        A new array [B, N].
    """
    count, width = rows.shape
    blocks = np.zeros((padded_rows(count) // BLOCK_ROWS, BLOCK_ROWS, width), rows.dtype)
    blocks.reshape(-1, width)[:count] = rows
    product = np.empty((*blocks.shape[:2], matrix.shape[1]), matrix.dtype)
    _multiply_blocks(blocks, matrix, product)
    return product.reshape(-1, matrix.shape[1])[:count]


def _multiply_blocks(blocks: Array, matrix: Array, out: Array) -> None:
    """Writes blocks @ matrix, block by block.

    Args:
        blocks: [M, 8, K].
        matrix: [K, N].
        out: [M, 8, N], overwritten.
    """
    if matrix.shape[1] == 1:
        np.add.reduce(blocks * matrix[:, 0], axis=-1, out=out[:, :, 0])
    else:
        np.matmul(blocks, matrix, out)


@dataclass(frozen=True)
class _Stage:
    """One layer with its memory: inputs [M, 8, K + 1] (last column ones) and outputs [M, 8, N]."""

    inputs: Array
    weights: Array
    outputs: Array
    activation: Activation


class ActingForward:
    """Runs a chain of dense layers on rows, row-exactly.

    The layers are shared with training, so new weights take effect at once. Memory is kept as long
    as the number of blocks stays the same. Measured for 4-64-64-2 with tanh: 8 µs for one to eight
    rows.
    """

    def __init__(self, layers: Sequence[DenseLayer]) -> None:
        self._layers = list(layers)
        self._num_blocks = -1
        self._stages: list[_Stage] = []
        self._rows: Array = np.empty((0, 0))
        self._outputs: Array = np.empty((0, 0))

    def __call__(self, rows: Array) -> Array:
        """The outputs of the last layer.

        Args:
            rows: [B, K].

        Returns:
            A new array [B, N] of the parameters' dtype.
        """
        count = len(rows)
        num_blocks = -(-count // BLOCK_ROWS)
        if num_blocks != self._num_blocks:
            self._allocate(num_blocks)
        self._rows[:count] = rows
        for stage in self._stages:
            _multiply_blocks(stage.inputs, stage.weights, stage.outputs)
            stage.activation.forward(stage.outputs)
        outputs: Array = self._outputs[:count].copy()
        return outputs

    def _allocate(self, num_blocks: int) -> None:
        self._num_blocks = -1  # an interrupt may come before all of it is there
        self._stages = []
        inputs = _blocks_with_ones(self._layers[0], self._layers[0].num_inputs, num_blocks)
        num_inputs = self._layers[0].num_inputs
        self._rows = inputs.reshape(-1, num_inputs + 1)[:, :num_inputs]
        for layer in self._layers:
            # The last layer gets a column of ones too; nobody reads it.
            following = _blocks_with_ones(layer, layer.num_outputs, num_blocks)
            outputs = following[:, :, : layer.num_outputs]
            self._stages.append(_Stage(inputs, layer.weights, outputs, layer.activation))
            inputs = following
        width = self._layers[-1].num_outputs
        self._outputs = inputs.reshape(-1, width + 1)[:, :width]
        self._num_blocks = num_blocks


def _blocks_with_ones(layer: DenseLayer, features: int, num_blocks: int) -> Array:
    blocks: Array = np.zeros((num_blocks, BLOCK_ROWS, features + 1), layer.weights.dtype)
    blocks[:, :, features] = 1.0
    return blocks
