"""Plant errors in the division of a kernel into tiles and blocks, which change only the last bits of its entries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from analytic.images import engine as images
from analytic.large import streaming
from analytic.vectors import engine as rows
from minintk import threads
from tests.kit.laws import Patch
from tests.kit.same_bits import bits_of_images, bits_of_rows
from tests.planted.planting import planted


def inside_a_tile(patch: Patch) -> None:
    """Plant an error: blocks have one row too many, so they end inside a tile."""
    right = streaming.block_size
    patch.setattr(streaming, "block_size", lambda *how: right(*how) + 1)


planted("blocks of rows that begin inside a tile", bits_of_rows)(inside_a_tile)
planted("blocks of images that begin inside a tile", bits_of_images)(inside_a_tile)


def in_blocks(patch: Patch, change: Any) -> None:
    """Apply `change` to the evaluated kernel of every block of rows."""
    right = rows.VectorEngine.at
    patch.setattr(rows.VectorEngine, "at", lambda self, place: change(right(self, place)))


@planted("a block of rows cut into tiles by its own size", bits_of_rows)
def _(patch: Patch) -> None:
    in_blocks(patch, lambda block: replace(block, per_tile=rows.tile_shape(np, block.shape)))


@planted("a block of rows centred by itself", bits_of_rows)
def _(patch: Patch) -> None:
    def change(block: Any) -> Any:
        centre = block.left.centre * (1 + 1e-6)
        return replace(block, left=replace(block.left, centre=centre), right=replace(block.right, centre=centre))

    in_blocks(patch, change)


@planted("tiles of images by the number of cores", bits_of_images)
def _(patch: Patch) -> None:
    right = images.images_per_tile
    patch.setattr(images, "images_per_tile", lambda *how: max(1, right(*how) // threads.cores()))  # type: ignore[attr-defined]
