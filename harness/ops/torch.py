"""The operations of `torch` and `torch.nn.functional`; images are (B, channels, height, width)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

expand_dims = torch.unsqueeze
squeeze = torch.squeeze
reshape = torch.reshape
transpose = torch.permute
concatenate = torch.cat
stack = torch.stack
matmul = torch.matmul
sum = torch.sum
mean = torch.mean
max = torch.amax
argmax = torch.argmax
maximum = torch.maximum
relu = F.relu
elu = F.elu
sigmoid = torch.sigmoid
tanh = torch.tanh
exp = torch.exp
log = torch.log
sqrt = torch.sqrt
abs = torch.abs
softmax = torch.softmax
log_softmax = torch.log_softmax


def dense(x: Any, weight: Any, bias: Any) -> Any:
    return torch.addmm(bias, x, weight) if x.ndim == 2 else F.linear(x, weight.mT, bias)


def conv2d(x: Any, kernel: Any, bias: Any, stride: int, padding: int) -> Any:
    return F.conv2d(x, kernel, bias, stride, padding)


def max_pool(x: Any, size: int, stride: int) -> Any:
    return F.max_pool2d(x, size, stride)


def average_pool(x: Any, size: int, stride: int) -> Any:
    return F.avg_pool2d(x, size, stride)


def flatten(x: Any) -> Any:
    return torch.flatten(x, 1)


def embedding(ids: Any, table: Any) -> Any:
    return F.embedding(ids, table)


def layer_norm(x: Any, scale: Any, offset: Any, epsilon: float) -> Any:
    return F.layer_norm(x, x.shape[-1:], scale, offset, epsilon)


def attention(query: Any, key: Any, value: Any, heads: int, causal: bool) -> Any:
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (query, key, value))
    # The fused kernel has no batching rule: `torch.func.vmap` would loop over the instances.
    attend = _attention_steps if _is_transformed(q, k, v) else F.scaled_dot_product_attention
    return attend(q, k, v, is_causal=causal).transpose(1, 2).flatten(2)


def _attention_steps(q: Any, k: Any, v: Any, is_causal: bool) -> Any:
    scores = (q * q.shape[-1] ** -0.5) @ k.mT
    if is_causal:
        length = scores.shape[-1]
        scores = scores + torch.full((length, length), -torch.inf, dtype=scores.dtype, device=scores.device).triu(1)
    return torch.softmax(scores, -1) @ v


def lstm(x: Any, input_weight: Any, hidden_weight: Any, bias: Any) -> Any:
    """The weights are transposed: (4 width, inputs) and (4 width, width)."""
    if _is_transformed(x, bias):
        return _lstm_cells(x, input_weight, hidden_weight, bias)  # the fused kernel has no batching rule
    start = x.new_zeros((1, x.shape[0], hidden_weight.shape[1]))
    weights = [input_weight, hidden_weight, bias, torch.zeros_like(bias)]
    # In training, which cuDNN wants where a gradient follows; without dropout it is the same function.
    return torch.lstm(x, (start, start), weights, True, 1, 0.0, True, False, True)[0]


def _lstm_cells(x: Any, input_weight: Any, hidden_weight: Any, bias: Any) -> Any:
    hidden = memory = x.new_zeros((x.shape[0], hidden_weight.shape[1]))
    outputs = []
    for projected in F.linear(x, input_weight, bias).unbind(1):
        i, f, g, o = torch.addmm(projected, hidden, hidden_weight.mT).chunk(4, -1)
        memory = torch.sigmoid(f) * memory + torch.sigmoid(i) * torch.tanh(g)
        hidden = torch.sigmoid(o) * torch.tanh(memory)
        outputs.append(hidden)
    return torch.stack(outputs, 1)


def dropout(x: Any, mask: Any, rate: float) -> Any:
    return x * mask / (1 - rate)


def masked_mean(x: Any, mask: Any) -> Any:
    return (x * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


def softmax_cross_entropy(labels: Any, logits: Any) -> Any:
    if logits.ndim == 2:
        return F.cross_entropy(logits, labels, reduction="none")
    flat = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none")
    return flat.view(labels.shape)


def sigmoid_cross_entropy(labels: Any, logits: Any) -> Any:
    return F.binary_cross_entropy_with_logits(logits, labels, reduction="none")


def gelu(x: Any, form: str) -> Any:
    return F.gelu(x, approximate={"exact": "none", "tanh": "tanh"}[form])


def less(a: Any, b: Any) -> Any:
    return (a < b).to(a.dtype)


def where(condition: Any, a: Any, b: Any) -> Any:
    return torch.where(condition != 0, a, b)


def stop_gradient(x: Any) -> Any:
    return x.detach()


def split(x: Any, count: int, axis: int) -> Sequence[Any]:
    parts: Sequence[Any] = torch.tensor_split(x, count, axis)
    return parts


def _is_transformed(*tensors: Any) -> bool:
    """Whether a transformation of `torch.func` (`vmap`, `grad`, ...) sees one of these tensors."""
    return any(torch._C._functorch.is_functorch_wrapped_tensor(tensor) for tensor in tensors)
