"""What a framework says, as the status it means: what a transformation cannot do is no error of the strategy."""

from __future__ import annotations

from typing import Any

import pytest

from harness.core.framework import framework
from harness.core.records import Status
from harness.measure.worker import classify
from tests import bound

VMAP = {
    "a recurrent layer": "functional_call(gru, p, (x[None],))[0].sum()",
    "in-place arithmetic on a captured tensor": "torch.zeros(3).add_(x * p['w']).sum()",
    "a value taken out of a tensor": "p['w'].sum() * float(x.sum())",
    "a boolean mask": "(p['w'] * x)[x > 0].sum()",
    "checkpointing": "checkpoint(lambda x: x * p['w'], x, use_reentrant=False).sum()",
    "a derivative inside the loss": "torch.autograd.grad((x.clone().requires_grad_() * p['w']).sum(), x)[0].sum()",
    "random numbers": "torch.dropout(p['w'] * x, 0.5, True).sum()",
    "indices that depend on values": "(p['w'] * x)[torch.nonzero(x > 0)].sum()",
    "a tensor that is written to": "torch.zeros(3).index_fill_(0, torch.tensor([0]), (p['w'] * x).sum()).sum()",
    "mixed precision": "half(norm)((p['w'] * x)[None]).float().sum()",
    "sparse matrices": "torch.sparse.mm(torch.eye(3).to_sparse(), (p['w'] * x)[:, None]).sum()",
    "nested tensors": "(torch.nested.nested_tensor([x]).to_padded_tensor(0.0) * p['w']).sum()",
    "a function with its own derivative": "squared.apply(p['w'] * x).sum()",
}
"""Losses of one instance that a plain loop runs and `vmap(grad)` does not."""


def statuses() -> dict[str, list[str]]:
    """What PyTorch raises for them under `vmap(grad)`, classified; in its process."""
    import torch
    from torch.func import functional_call, grad, vmap
    from torch.utils.checkpoint import checkpoint

    class Squared(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> Any:
            return 2 * ctx.saved_tensors[0] * cotangent

    gru = torch.nn.GRU(3, 3, batch_first=True)
    known = {"torch": torch, "functional_call": functional_call, "checkpoint": checkpoint, "gru": gru}
    known |= {"half": torch.autocast("cpu", dtype=torch.bfloat16), "squared": Squared}
    known |= {"norm": torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.LayerNorm(3))}
    found = {}
    for name, loss in VMAP.items():
        recurrent = name == "a recurrent layer"
        parameters = dict(gru.named_parameters()) if recurrent else {"w": torch.ones(3)}
        x = torch.randn(2, 4, 3) if recurrent else torch.randn(2, 3)
        try:
            vmap(grad(eval(f"lambda p, x: {loss}", known)), (None, 0))(parameters, x)
        except Exception as error:
            status, reason = classify(error, framework("torch"))
            found[name] = [str(status), reason]
    return found


@pytest.mark.parametrize("framework", bound.each("torch"))
def test_what_vmap_cannot_do_is_unsupported_with_the_reason_of_pytorch(framework: str) -> None:
    found = bound.run(statuses, framework=framework)

    assert set(found) == set(VMAP)
    for name, (status, reason) in found.items():
        assert status == "unsupported", (name, reason)
        assert len(reason.split()) > 5


def test_an_error_in_user_code_of_tensorflow_is_told_by_its_own_line() -> None:
    message = (
        'in user code:\n\n    File "model.py", line 9, in losses  *\n        return w * x if x > 0 else 3 * w\n\n'
        "    OperatorNotAllowedInGraphError: Using a symbolic `tf.Tensor` as a Python `bool` is not allowed.\n"
    )

    status, reason = classify(RuntimeError(message), framework("tf2"))

    assert status is Status.UNSUPPORTED
    assert reason.startswith("data-dependent control flow: OperatorNotAllowedInGraphError: Using a symbolic")


def test_a_mistake_stays_an_error() -> None:
    status, reason = classify(KeyError("label"), framework("torch"))

    assert (status, reason) == (Status.ERROR, "KeyError: 'label'")
