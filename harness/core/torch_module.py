"""A workload that gives its model as a `torch.nn.Module`: its losses, parameters and state follow from that.

PyTorch is imported inside the functions, since a workload is described where no framework is loaded.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from harness.core.plugins import PluginError
from harness.core.problem import Batch, Losses, Module


def from_file(load: Callable[[], ModuleType], sizes: Callable[[], tuple[Any, ...]]) -> Module:
    """What a workload's file says of its model.

    Args:
        load: imports the file; called when something of it is needed, where PyTorch may be imported.
        sizes: returns what `model` is called with.
    """

    def inputs(batch: Batch) -> tuple[Any, ...]:
        own = getattr(load(), "inputs", None)
        given = own(batch) if own else next(iter(batch.values()))
        return given if isinstance(given, tuple) else (given,)

    return Module(
        model=lambda: _built(load(), sizes()), inputs=inputs, loss=lambda output, batch: load().loss(output, batch)
    )


def losses(given: Module) -> Losses:
    """The losses of the module, called through `torch.func.functional_call`."""

    def of(ops: Any, parameters: Mapping[str, Any], batch: Batch) -> Any:
        from torch.func import functional_call

        return given.loss(functional_call(given.model(), dict(parameters), given.inputs(batch)), batch)

    return of


def parameters(given: Module) -> dict[str, Any]:
    """The trainable parameters by the module's names, in NumPy; one that is shared has its first name alone."""
    return {name: _array(value) for name, value in given.model().named_parameters() if value.requires_grad}


def state(given: Module) -> dict[str, Any]:
    """Buffers and the parameters that require no gradient, in NumPy: held by the module, differentiated by nobody."""
    model = given.model()
    frozen = {name: _array(value) for name, value in model.named_parameters() if not value.requires_grad}
    return frozen | {name: _array(value) for name, value in model.named_buffers()}


def copy_with(given: Module, tensors: Mapping[str, Any]) -> Any:
    """A copy of the module that holds `tensors`, parameters and state by name, in their dtype, on their device."""
    import torch

    first = next(value for value in tensors.values() if value.is_floating_point())
    own = copy.deepcopy(given.model()).to(device=first.device, dtype=first.dtype)
    with torch.no_grad():
        for name, value in [*own.named_parameters(), *own.named_buffers()]:
            value.copy_(tensors[name])
    return own


def _built(file: ModuleType, sizes: tuple[Any, ...]) -> Any:
    """The file's model. It is built once per process, so that what its file draws at the top is drawn once too."""
    key = f"pergrad_model_{sizes!r}"
    if key not in vars(file):
        setattr(file, key, _checked(file.model, sizes))
    return getattr(file, key)


def _checked(make: Callable[..., Any], sizes: tuple[Any, ...]) -> Any:
    from torch import nn

    built = None if isinstance(make, nn.Module) else make(*sizes)
    if not isinstance(built, nn.Module):
        raise PluginError("`model` must be a function without arguments that returns a torch.nn.Module")
    if not any(value.requires_grad for value in built.parameters()):
        raise PluginError("no parameter of `model` requires a gradient")
    return built


def _array(value: Any) -> Any:
    value = value.detach().cpu()
    return (value.double() if value.is_floating_point() else value).numpy().copy()
