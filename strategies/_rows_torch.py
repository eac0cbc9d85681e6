"""Rows from layers at work (`_layers_torch.py`), written as soon as a layer's cotangent is known."""

from __future__ import annotations

from typing import Any

import torch

from pergrad import Batch, Problem
from strategies._layers_torch import Layers, Use, factors_of, value_of

Tensor = Any


class Rows:
    """The rows of every parameter, (B, *shape), in memory that stays the same from call to call.

    The rows of a table are mostly zero. Only the entries that the last call wrote are cleared, so nobody else may
    write into the result.
    """

    def __init__(self, problem: Problem) -> None:
        self.shapes = {name: value.shape for name, value in problem.parameters.items()}
        self.rows = {name: empty_rows(value, problem.batch_size) for name, value in problem.parameters.items()}
        self.written: set[str] = set()
        self.touched: dict[str, Tensor] = {}
        self.layers = Layers(problem)

    def of(self, batch: Batch) -> dict[str, Tensor]:
        """The rows of a batch; overwritten by the next call."""
        self.written.clear()
        self.layers.run(batch, self.write)
        for name in self.rows.keys() - self.written:
            self.rows[name].zero_()  # it takes no part in the loss
        return self.rows

    def write(self, use: Use) -> None:
        """Write the rows that follow from one use of a parameter, or add them to those of another use."""
        rows, first = self.rows[use.name], use.name not in self.written
        self.written.add(use.name)
        places = self.touched.pop(use.name, None)
        if use.kind == "lookup" and first:
            if places is None:
                rows.zero_()
            else:
                rows.view(-1, rows.shape[-1]).index_fill_(0, places, 0)
            self.touched[use.name] = places_of(use, rows)
            add_lookup(use, rows, self.touched[use.name])
        else:
            write_rows(use, rows, self.shapes[use.name], first)


def empty_rows(parameter: Tensor, size: int) -> Tensor:
    """Memory for the rows of a parameter; the rows of a kernel lie with their channels last."""
    if parameter.ndim != 4:
        return parameter.new_empty((size, *parameter.shape))
    outputs, channels, *pixels = parameter.shape
    return parameter.new_empty((size, outputs, *pixels, channels)).permute(0, 1, 4, 2, 3)


def write_rows(use: Use, rows: Tensor, shape: torch.Size, first: bool) -> None:
    """Write the rows of one use into `rows`, or add them to what is there."""
    if use.kind == "lookup":
        if first:
            rows.zero_()
        add_lookup(use, rows, places_of(use, rows))
    elif use.kind in ("scale", "offset", "channels"):
        value = value_of(use, len(shape))
        rows.copy_(value) if first else rows.add_(value)
    elif use.dy.ndim == 2 and first:  # one position: an outer product, which broadcasting writes fastest
        a, b = factors_of(use, shape)
        torch.mul(a.mT, b, out=rows)
    else:
        a, b = factors_of(use, shape)
        rows = rows.permute(0, 1, 3, 4, 2).flatten(2) if use.kind == "convolution" else rows
        rows.baddbmm_(a.mT, b, beta=0 if first else 1)


def places_of(use: Use, rows: Tensor) -> Tensor:
    """Where the entries that a lookup names are in the rows (B, entries, width), taken as (B x entries, width)."""
    entries = rows.shape[1]
    starts = torch.arange(0, len(rows) * entries, entries, device=rows.device)
    return (use.x + starts.view(-1, *(1,) * (use.x.ndim - 1))).flatten()


def add_lookup(use: Use, rows: Tensor, places: Tensor) -> None:
    """Add the cotangents of a lookup at these places."""
    width = rows.shape[-1]
    rows.view(-1, width).index_add_(0, places, use.dy.reshape(-1, width))
