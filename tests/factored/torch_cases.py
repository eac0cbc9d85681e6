"""What `pergrad.torch` promises; run by `test_torch.py` in a process of its own."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, grad, vmap

from pergrad.torch import per_instance
from tests.factored.torch_reference import Largest, Loss, Tensors, error, norms_of, rows_of, total, worst

B = 5
QUANTITIES = ("gradients", "norms", "clipped_sum", "weighted_sum")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _seeded() -> Any:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # everything is small
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def R(*shape: int) -> Any:  # noqa: N802
    return torch.randn(shape)


def ids(entries: int, *shape: int) -> Any:
    return torch.randint(0, entries, shape)


# --- Whatever vmap(grad) can run -------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Self-attention, or, with `cross`, attention to the first three positions."""

    def __init__(self, weights: bool = False, cross: bool = False, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, **options)
        self.weights, self.cross = weights, cross

    def forward(self, x: Any) -> Any:
        other = x[:, :3] if self.cross else x
        return self.attention(x, other, other, need_weights=self.weights)[0]


class WithState(nn.Module):
    """An LSTM whose initial state comes with the instance; without, functorch refuses it."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 4, batch_first=True)

    def forward(self, x: Any, h: Any) -> Any:
        return self.lstm(x, (h[None], h[None]))[0]


MODULES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)), lambda: R(B, 4, 5)),
    "attention": (Attention, lambda: R(B, 5, 8)),
    "attention with weights": (lambda: Attention(weights=True), lambda: R(B, 5, 8)),
    "cross attention": (lambda: Attention(cross=True), lambda: R(B, 5, 8)),
    "attention, other keys": (lambda: Attention(kdim=8, vdim=8), lambda: R(B, 5, 8)),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), lambda: R(B, 5, 8)),
    "encoder layer, eval": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(),
        lambda: R(B, 5, 8),
    ),
    "group norm": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Conv2d(4, 4, 3, 2)),
        lambda: R(B, 3, 8, 8),
    ),
    "instance norm": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, affine=True)),
        lambda: R(B, 3, 8, 8),
    ),
    "batch norm, eval": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval(), lambda: R(B, 3, 8, 8)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, padding=2, dilation=2), lambda: R(B, 4, 11)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2, stride=2), lambda: R(B, 2, 5, 5, 5)),
    "conv2d, asymmetric": (lambda: nn.Conv2d(4, 6, (3, 2), (2, 1), (0, 1), (1, 2)), lambda: R(B, 4, 9, 8)),
    "conv2d, grouped": (lambda: nn.Conv2d(4, 6, 3, groups=2), lambda: R(B, 4, 7, 7)),
    "conv2d, depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4, padding=1), lambda: R(B, 4, 7, 7)),
    "conv2d, same": (lambda: nn.Conv2d(4, 4, 4, padding="same"), lambda: R(B, 4, 7, 7)),
    "conv2d, reflect": (lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), lambda: R(B, 4, 7, 7)),
    "conv2d, 1 x 1": (lambda: nn.Conv2d(4, 6, 1), lambda: R(B, 4, 5, 5)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1), lambda: R(B, 4, 5, 5)),
    "transposed, grouped": (lambda: nn.ConvTranspose1d(4, 6, 3, stride=2, groups=2), lambda: R(B, 4, 5)),
    "transposed, dilated, 3d": (lambda: nn.ConvTranspose3d(2, 3, 2, dilation=2), lambda: R(B, 2, 3, 3, 3)),
    "embedding": (lambda: nn.Embedding(9, 4), lambda: ids(9, B, 7)),
    "embedding, padding": (lambda: nn.Embedding(9, 4, padding_idx=2), lambda: ids(9, B, 7)),
    "embedding, counted": (lambda: nn.Embedding(9, 4, scale_grad_by_freq=True), lambda: ids(9, B, 7)),
    "embedding bag": (lambda: nn.EmbeddingBag(9, 4), lambda: ids(9, B, 7)),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(5, 7)), lambda: R(B, 5)),
    "spectral norm, eval": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(5, 7)).eval(), lambda: R(B, 5)),
    "prelu": (lambda: nn.Sequential(nn.Linear(5, 7), nn.PReLU(7)), lambda: R(B, 5)),
    "pools": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Conv2d(4, 4, 2), nn.AdaptiveAvgPool2d(1)),
        lambda: R(B, 3, 10, 10),
    ),
    "shuffle, upsample": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.PixelShuffle(2), nn.Upsample(scale_factor=2)),
        lambda: R(B, 3, 6, 6),
    ),
    "frozen first layer": (
        lambda: nn.Sequential(nn.Linear(5, 7).requires_grad_(False), nn.Linear(7, 3)),
        lambda: R(B, 5),
    ),
}


def loss_of(net: Any) -> Loss:
    """A loss of a module that wants a batch axis."""

    def loss(parameters: Tensors, instance: Tensors) -> Any:
        return functional_call(net, parameters, tuple(x[None] for x in instance.values())).tanh().pow(2).sum()

    return loss


def trained(net: Any) -> Tensors:
    return {name: value.detach() for name, value in net.named_parameters() if value.requires_grad}


@pytest.mark.parametrize("name", MODULES)
def test_modules_agree_with_the_loop(name: str) -> None:
    build, draw = MODULES[name]
    net = build()

    assert worst(loss_of(net), trained(net), {"x": draw()}, {"x": draw()}) < 1e-10


def test_bilinear_and_a_recurrent_module_with_a_given_state_agree_with_the_loop() -> None:
    net = nn.Bilinear(5, 5, 3)
    assert worst(loss_of(net), trained(net), {"x": R(B, 5), "y": R(B, 5)}) < 1e-10
    net = WithState().float()  # the batching rule knows float32 only
    assert worst(loss_of(net), trained(net), {"x": R(B, 3, 5).float(), "h": R(B, 1, 4).float()[:, 0]}) < 1e-5


def gru(p: Tensors, x: Any) -> Any:
    """A recurrent network as a loop: its weights are used once per step."""
    h = torch.zeros(p["u"].shape[0])
    for step in x:
        z, r, c = (step @ p["w"]).chunk(3, -1)
        hz, hr, hc = (h @ p["u"]).chunk(3, -1)
        z, candidate = torch.sigmoid(z + hz), torch.tanh(c + torch.sigmoid(r + hr) * hc)
        h = (1 - z) * h + z * candidate
    return h


def experts(p: Tensors, x: Any) -> Any:
    """A mixture of experts with batched weights."""
    gates = torch.softmax(x @ p["gate"], -1)
    hidden = torch.einsum("td,edh->teh", x, p["up"]).tanh()
    return torch.einsum("te,teh,ehd->td", gates, hidden, p["down"])


def layers(p: Tensors, x: Any) -> Any:
    """Attention layers with stacked parameters."""
    for i in range(len(p["qkv"])):
        q, k, v = (x @ p["qkv"][i]).chunk(3, -1)
        x = x + torch.softmax(q @ k.T, -1) @ v + (x @ p["up"][i]).tanh() @ p["down"][i]
    return x


class Exponential(torch.autograd.Function):
    """An operation with a gradient of its own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        return x.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, cotangent: Any) -> Any:
        return cotangent * ctx.saved_tensors[0]


def chained(p: Tensors, b: Tensors) -> Any:
    return ((((b["x"] @ p["w"]) @ p["w"]).tanh() @ p["w"] @ p["w"].T) @ p["w"].T).tanh().sum()


FUNCTIONS: dict[str, tuple[Loss, Callable[[], Tensors], Callable[[], Any]]] = {
    "recurrent": (lambda p, b: gru(p, b["x"]).tanh().sum(), lambda: {"w": R(3, 12), "u": R(4, 12)}, lambda: R(B, 3, 3)),
    "experts": (
        lambda p, b: experts(p, b["x"]).tanh().sum(),
        lambda: {"gate": R(4, 3), "up": R(3, 4, 6), "down": R(3, 6, 4)},
        lambda: R(B, 5, 4),
    ),
    "stacked layers": (
        lambda p, b: layers(p, b["x"]).tanh().sum(),
        lambda: {"qkv": 0.3 * R(2, 4, 12), "up": 0.3 * R(2, 4, 6), "down": 0.3 * R(2, 6, 4)},
        lambda: R(B, 5, 4),
    ),
    "one layer of a stack": (
        lambda p, b: (b["x"] @ p["w"][1]).tanh().sum(),
        lambda: {"w": R(3, 4, 4)},
        lambda: R(B, 4),
    ),
    "slices that overlap": (
        lambda p, b: ((b["x"] @ p["w"][:, :4]) * (b["x"] @ p["w"][:, 2:])).tanh().sum(),
        lambda: {"w": R(4, 6)},
        lambda: R(B, 3, 4),
    ),
    "slices with gaps": (lambda p, b: (b["x"] @ p["w"][:, ::2]).tanh().sum(), lambda: {"w": R(4, 6)}, lambda: R(B, 4)),
    "slice of a table and the table": (
        lambda p, b: (p["t"][b["x"]].sum(0) @ p["t"][2:5].T).tanh().sum(),
        lambda: {"t": R(9, 4)},
        lambda: ids(9, B, 7),
    ),
    "low rank": (
        lambda p, b: (b["x"] @ (p["w"] + p["a"] @ p["b"])).tanh().sum(),
        lambda: {"w": R(5, 7), "a": R(5, 2), "b": R(2, 7)},
        lambda: R(B, 2, 5),
    ),
    "low rank, transposed": (
        lambda p, b: F.linear(b["x"], p["a"] @ p["b"]).tanh().sum(),
        lambda: {"a": R(5, 2), "b": R(2, 7)},
        lambda: R(B, 2, 7),
    ),
    "index": (lambda p, b: p["t"][b["x"]].tanh().sum(), lambda: {"t": R(9, 4)}, lambda: ids(9, B, 7)),
    "negative index": (lambda p, b: p["t"][b["x"] - 9].tanh().sum(), lambda: {"t": R(9, 4)}, lambda: ids(9, B, 7)),
    "index along axis 1": (lambda p, b: p["t"][:, b["x"]].tanh().sum(), lambda: {"t": R(9, 4)}, lambda: ids(4, B, 7)),
    "pairs": (lambda p, b: p["t"][b["x"][0], b["x"][1]].tanh().sum(), lambda: {"t": R(9, 9)}, lambda: ids(9, B, 2, 5)),
    "gather": (lambda p, b: p["t"].gather(0, b["x"]).tanh().sum(), lambda: {"t": R(9, 4)}, lambda: ids(9, B, 3, 4)),
    "five uses, two transposed": (chained, lambda: {"w": R(5, 5)}, lambda: R(B, 5)),
    "tied square": (
        lambda p, b: ((b["x"] @ p["w"]).tanh() @ p["w"].T).tanh().sum(),
        lambda: {"w": R(4, 4)},
        lambda: R(B, 3, 4),
    ),
    "tied logits": (
        lambda p, b: torch.logsumexp(p["t"][b["x"]].tanh() @ p["t"].T, -1).sum(),
        lambda: {"t": R(60, 30)},
        lambda: ids(60, B, 7),
    ),
    "two lookups": (
        lambda p, b: (p["t"][b["x"][:3]].sum(0) * p["t"][b["x"][3:]].sum(0)).tanh().sum(),
        lambda: {"t": R(9, 4)},
        lambda: ids(9, B, 7),
    ),
    "kernel twice": (
        lambda p, b: F.conv2d(F.conv2d(b["x"][None], p["k"], padding=1).tanh(), p["k"]).tanh().sum(),
        lambda: {"k": R(3, 3, 3, 3)},
        lambda: R(B, 3, 7, 7),
    ),
    "a set of images": (
        lambda p, b: F.conv2d(b["x"], p["k"]).tanh().sum(),
        lambda: {"k": R(2, 3, 3, 3)},
        lambda: R(B, 4, 3, 6, 6),
    ),
    "a set of images, grouped": (
        lambda p, b: F.conv2d(b["x"], p["k"], groups=2).tanh().sum(),
        lambda: {"k": R(4, 3, 3, 3)},
        lambda: R(B, 4, 6, 6, 6),
    ),
    "heads": (
        lambda p, b: torch.einsum("td,dhk->htk", b["x"], p["w"]).tanh().sum(),
        lambda: {"w": R(4, 2, 3)},
        lambda: R(B, 5, 4),
    ),
    "batched product": (
        lambda p, b: torch.bmm(b["x"], p["w"]).tanh().sum(),
        lambda: {"w": R(3, 4, 5)},
        lambda: R(B, 3, 2, 4),
    ),
    "packed": (
        lambda p, b: (lambda q, k, v: ((b["x"] @ q) * (b["x"] @ k) + b["x"] @ v).tanh().sum())(*p["w"].chunk(3, 1)),
        lambda: {"w": R(4, 12)},
        lambda: R(B, 5, 4),
    ),
    "scaled": (lambda p, b: (b["x"] @ (-0.5 * p["w"] / 3)).tanh().sum(), lambda: {"w": R(4, 5)}, lambda: R(B, 4)),
    "penalty": (
        lambda p, b: (b["x"] @ p["w"]).tanh().sum() + p["w"].square().sum(),
        lambda: {"w": R(4, 5)},
        lambda: R(B, 4),
    ),
    "masked": (
        lambda p, b: (b["x"] @ (p["w"] * (torch.arange(20).view(4, 5) % 2))).tanh().sum(),
        lambda: {"w": R(4, 5)},
        lambda: R(B, 4),
    ),
    "outer, mv, dot": (
        lambda p, b: (torch.outer(b["x"], p["v"]) @ (p["w"] @ b["x"])[:3]).tanh().sum() + p["v"] @ b["x"][:3],
        lambda: {"w": R(4, 4), "v": R(3)},
        lambda: R(B, 4),
    ),
    "unused": (lambda p, b: (b["x"] @ p["w"]).tanh().sum(), lambda: {"w": R(4, 5), "u": R(3, 3)}, lambda: R(B, 4)),
    "linear": (lambda p, b: (p["v"] * b["x"]).sum(), lambda: {"v": R(4)}, lambda: R(B, 4)),
    "of the parameters alone": (lambda p, b: p["v"].sum(), lambda: {"v": R(4)}, lambda: R(B, 4)),
    "equal gradients": (
        lambda p, b: ((p["u"] + p["v"]) * b["x"]).tanh().sum(),
        lambda: {"u": R(4), "v": R(4)},
        lambda: R(B, 4),
    ),
    "scalar": (lambda p, b: (p["s"] * b["x"]).tanh().sum(), lambda: {"s": R()}, lambda: R(B, 4)),
    "decompositions": (
        lambda p, b: (
            torch.linalg.solve(p["w"] + 5 * torch.eye(4), b["x"]).sum() + torch.linalg.svdvals(p["w"] * b["x"]).sum()
        ),
        lambda: {"w": R(4, 4)},
        lambda: R(B, 4),
    ),
    "gradient inside": (
        lambda p, b: grad(lambda x: (x @ p["w"]).tanh().sum())(b["x"]).square().sum(),
        lambda: {"w": R(4, 5)},
        lambda: R(B, 4),
    ),
    "in place": (
        lambda p, b: (lambda y: y.mul_(2).add_(1).tanh().sum())(b["x"] @ p["w"]),
        lambda: {"w": R(4, 5)},
        lambda: R(B, 4),
    ),
    "sort, cumsum": (
        lambda p, b: torch.where(b["x"] > 0, p["v"], -p["v"] * 2).sort().values.cumsum(0).tanh().sum(),
        lambda: {"v": R(4)},
        lambda: R(B, 4),
    ),
    "own gradient": (
        lambda p, b: Exponential.apply(b["x"] @ p["w"]).tanh().sum(),
        lambda: {"w": R(4, 5)},
        lambda: R(B, 4),
    ),
    "fused attention": (
        lambda p, b: (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True))((b["x"] @ p["w"])[None]).sum(),
        lambda: {"w": R(4, 4)},
        lambda: R(B, 5, 4),
    ),
    "many axes": (
        lambda p, b: torch.einsum("abc,abcdefg->defg", b["x"], p["w"]).tanh().sum(),
        lambda: {"w": R(2, 1, 2, 1, 2, 1, 2)},
        lambda: R(B, 2, 1, 2),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_agree_with_the_loop(name: str) -> None:
    loss, parameters, draw = FUNCTIONS[name]

    assert worst(loss, parameters(), {"x": draw()}, {"x": draw()}) < 1e-10


def outer_product(p: Tensors, b: Tensors) -> Any:
    return b["x"] @ p["w"]


REFUSED: dict[str, Loss] = {
    "a branch on a value": lambda p, b: outer_product(p, b).sum() if b["x"].sum() > 0 else p["w"].sum(),
    "the value of a tensor": lambda p, b: outer_product(p, b).sum() * b["x"][0].item(),
    "a shape that depends on values": lambda p, b: outer_product(p, b)[b["x"].sum() > torch.zeros(5)].sum(),
    "NumPy": lambda p, b: outer_product(p, b).sum() * float(b["x"].numpy().sum()),
    "checkpoint": lambda p, b: torch.utils.checkpoint.checkpoint(
        lambda x: (x @ p["w"]).sum(), b["x"], use_reentrant=False
    ),
}


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("name", REFUSED)
def test_what_vmap_refuses_is_refused_in_its_own_words(name: str, quantity: str) -> None:
    parameters, batch = {"w": R(4, 5)}, {"x": R(B, 4)}
    with pytest.raises(RuntimeError) as wanted:
        vmap(grad(REFUSED[name]), (None, 0))(parameters, batch)

    weights = (torch.ones(B),) if quantity == "weighted_sum" else ()
    with pytest.raises(RuntimeError) as found:
        per_instance(REFUSED[name], quantity)(parameters, batch, *weights)

    assert str(found.value)[:100] == str(wanted.value)[:100]


def test_batch_norm_in_training_and_modules_that_write_are_refused() -> None:
    for net, x in ((nn.BatchNorm1d(4), R(B, 4)), (nn.GRU(5, 4, batch_first=True), R(B, 6, 5))):
        with pytest.raises(RuntimeError):
            per_instance(lambda p, b, net=net: functional_call(net, p, (b["x"][None],))[0].sum())(
                trained(net), {"x": x}
            )


# --- What is saved ---------------------------------------------------------------------------------------------------

WIDE: dict[str, tuple[Loss, Tensors, Callable[[], Any]]] = {
    "dense": (lambda p, b: (b["x"] @ p["w"]).tanh().sum(), {"w": torch.ones(200, 300)}, lambda: R(B, 4, 200)),
    "packed": (
        lambda p, b: sum((b["x"] @ w).tanh().sum() for w in p["w"].chunk(3, 1)),
        {"w": torch.ones(200, 300)},
        lambda: R(B, 4, 200),
    ),
    "stacked": (
        lambda p, b: ((b["x"] @ p["w"][0]).tanh() @ p["w"][1]).tanh().sum(),
        {"w": torch.ones(2, 200, 200)},
        lambda: R(B, 4, 200),
    ),
    "used five times": (chained, {"w": torch.ones(200, 200)}, lambda: R(B, 200)),
    "low rank": (
        lambda p, b: (b["x"] @ (p["w"] + p["a"] @ p["b"])).tanh().sum(),
        {"w": torch.ones(200, 300), "a": torch.ones(200, 2), "b": torch.ones(2, 300)},
        lambda: R(B, 2, 200),
    ),
    "experts": (
        lambda p, b: torch.einsum("td,edf->tef", b["x"], p["w"]).tanh().sum(),
        {"w": torch.ones(4, 100, 150)},
        lambda: R(B, 3, 100),
    ),
    "convolution": (
        lambda p, b: F.conv2d(b["x"][None], p["k"]).tanh().sum(),
        {"k": torch.ones(64, 64, 3, 3)},
        lambda: R(B, 64, 5, 5),
    ),
    "table": (lambda p, b: p["t"][b["x"]].tanh().sum(), {"t": torch.ones(3000, 20)}, lambda: ids(3000, B, 7)),
    "table tied with logits": (
        lambda p, b: (p["t"][b["x"]].tanh() @ p["t"].T).tanh().sum(),
        {"t": torch.ones(2000, 30)},
        lambda: ids(2000, B, 7),
    ),
}


@pytest.mark.parametrize("quantity", ["norms", "clipped_sum"])
@pytest.mark.parametrize("name", WIDE)
def test_norms_and_clipped_sums_make_nothing_as_large_as_the_rows(name: str, quantity: str) -> None:
    loss, shapes, draw = WIDE[name]
    parameters = {key: R(*value.shape) for key, value in shapes.items()}
    function, batch = per_instance(loss, quantity), {"x": draw()}
    function(parameters, batch)

    with Largest() as largest:
        function(parameters, batch)

    assert largest.elements < B * max(value.numel() for value in parameters.values())


# --- Digits ----------------------------------------------------------------------------------------------------------


def tied(size: float) -> Loss:
    """The table's uses cancel but for `size`: a lookup against the product with the same one-hot vectors."""

    def loss(p: Tensors, b: Tensors) -> Any:
        hot = (b["i"][:, None] == torch.arange(200)).to(p["w"].dtype)
        return p["w"][b["i"]].sum() - (hot @ p["w"]).sum() + size * (b["x"] @ p["w"].T).sum()

    return loss


def opposed(size: float) -> Loss:
    """Two uses of one weight cancel but for `size`."""
    return lambda p, b: (b["x"] @ p["w"]).sum() - (b["x"] @ p["w"].T.T).sum() * (1 - size)


def alternating(size: float) -> Loss:
    """The positions of one product cancel but for `size`."""

    def loss(p: Tensors, b: Tensors) -> Any:
        return (torch.cat([b["x"], -b["x"] * (1 - size)]) @ p["w"]).sum()

    return loss


CANCELLING = {"tied": tied, "opposed": opposed, "alternating": alternating}


@pytest.mark.parametrize("size", [1.0, 1e-2, 1e-3, 1e-4, 1e-6])
@pytest.mark.parametrize("name", CANCELLING)
def test_norms_keep_their_digits_where_contributions_cancel(name: str, size: float) -> None:
    loss = CANCELLING[name](size)
    width = 32 if name == "tied" else 200
    parameters = {"w": R(200, width)}
    batch = {"i": ids(200, B, 5), "x": R(B, 1 if name == "tied" else 3, width if name == "tied" else 200)}
    wanted = norms_of(rows_of(loss, parameters, batch))
    single = {key: value.float() for key, value in parameters.items()}
    floats = {key: value.float() if value.is_floating_point() else value for key, value in batch.items()}
    rows = per_instance(loss)(single, floats)

    found = per_instance(loss, "norms")(single, floats)
    clipped = per_instance(loss, "clipped_sum", clip_norm=float(wanted.median()))(single, floats)

    rounded = norms_of({key: row.double() for key, row in rows.items()})
    assert float((found / rounded - 1).abs().max()) < 3e-4
    if size >= 1e-4:  # below, a sum of cancelling float32 numbers depends on their order
        factors = (wanted.median() / wanted.clamp(min=wanted.median())).float()
        assert error(clipped, total(rows, factors)) < 1e-2


def test_only_the_instance_that_cancels_pays_for_it() -> None:
    def loss(p: Tensors, b: Tensors) -> Any:
        return (torch.stack([b["x"], -b["x"] * b["c"]]) @ p["w"]).sum()

    parameters, batch = {"w": R(200, 200)}, {"x": R(B, 200), "c": torch.tensor([0.0, 1 - 1e-6, 0.5, 0.0, 0.0])}
    norms = per_instance(loss, "norms")
    norms(parameters, batch)

    with Largest() as largest:
        found = norms(parameters, batch)

    assert largest.elements < 2 * 200 * 200
    assert float((found / norms_of(rows_of(loss, parameters, batch)) - 1).abs().max()) < 1e-9


def test_zero_gradients_have_zero_norms_and_finite_sums() -> None:
    def loss(p: Tensors, b: Tensors) -> Any:
        return ((b["x"] @ p["w"]) * b["on"]).tanh().sum() + p["t"][b["i"]].sum() * b["on"]

    parameters = {"w": R(50, 60), "t": R(50, 3)}
    batch = {"x": R(B, 3, 50), "on": torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0]), "i": ids(50, B, 4)}

    norms = per_instance(loss, "norms")(parameters, batch)
    clipped = per_instance(loss, "clipped_sum")(parameters, batch)

    assert (norms == 0).tolist() == [True, False, True, False, True]
    assert all(bool(value.isfinite().all()) for value in clipped.values())
    assert worst(loss, parameters, batch) < 1e-10


def test_what_is_not_a_number_stays_with_its_instance() -> None:
    batch = {"x": R(B, 3, 50)}
    batch["x"][2, 1, 7] = torch.nan

    found = per_instance(lambda p, b: (b["x"] @ p["w"]).tanh().sum(), "norms")({"w": R(50, 60)}, batch)

    assert found.isnan().tolist() == [False, False, True, False, False]


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_norms_survive_squares_that_leave_the_range_of_float32(scale: float) -> None:
    parameters, batch = {"w": torch.ones(50, 60).float()}, {"x": R(B, 3, 50).float()}

    found = per_instance(lambda p, b: (b["x"] @ p["w"]).sum() * scale, "norms")(parameters, batch)
    rows = per_instance(lambda p, b: (b["x"] @ p["w"]).sum() * scale)(parameters, batch)

    assert torch.equal(found, torch.linalg.vector_norm(rows["w"].flatten(1), dim=1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.complex64])
def test_other_dtypes_agree_with_vmap(dtype: Any) -> None:
    def loss(p: Tensors, b: Tensors) -> Any:
        return (b["x"] @ p["w"]).tanh().abs().sum()

    parameters, batch = {"w": R(40, 50).to(dtype)}, {"x": R(B, 3, 40).to(dtype)}
    rows = vmap(grad(loss), (None, 0))(parameters, batch)
    norms = torch.linalg.vector_norm(rows["w"].flatten(1), dim=1)

    assert torch.equal(per_instance(loss)(parameters, batch)["w"], rows["w"])
    assert torch.equal(per_instance(loss, "norms")(parameters, batch), norms)


def test_parameters_of_two_dtypes_have_norms_in_the_wider_one() -> None:
    def loss(p: Tensors, b: Tensors) -> Any:
        return ((b["x"] @ p["w"]).double() @ p["v"]).tanh().sum()

    parameters = {"w": R(4, 5).float(), "v": R(5)}
    batch = {"x": R(B, 4).float()}

    norms = per_instance(loss, "norms")(parameters, batch)
    sums = per_instance(loss, "clipped_sum")(parameters, batch)

    assert norms.dtype == torch.float64
    assert torch.allclose(norms, norms_of({k: v.double() for k, v in rows_of(loss, parameters, batch).items()}))
    assert {key: value.dtype for key, value in sums.items()} == {key: value.dtype for key, value in parameters.items()}


# --- What a trace freezes, and what it does not ----------------------------------------------------------------------

FACTOR = 1.0


def simple(p: Tensors, b: Tensors) -> Any:
    return (b["x"] @ p["w"]).tanh().sum()


def agrees(function: Any, loss: Loss, parameters: Tensors, batch: Tensors) -> bool:
    return error(function(parameters, batch), vmap(grad(loss), (None, 0))(parameters, batch)) < 1e-10


def test_parameters_are_read_anew_by_every_call() -> None:
    function, parameters, batch = per_instance(simple), {"w": R(4, 5)}, {"x": R(B, 4)}
    function(parameters, batch)
    parameters["w"].mul_(2)
    assert agrees(function, simple, parameters, batch)
    assert agrees(function, simple, {"w": R(4, 5)}, batch)


def test_captured_tensors_are_read_anew_changed_in_place_or_rebound() -> None:
    scale = torch.ones(4)

    def loss(p: Tensors, b: Tensors) -> Any:
        return (p["v"] * b["x"] * (scale * 2 + 1)).tanh().sum()

    function, parameters, batch = per_instance(loss), {"v": R(4)}, {"x": R(B, 4)}
    function(parameters, batch)
    scale.mul_(3)
    assert agrees(function, loss, parameters, batch)
    scale = torch.full((4,), 0.1)
    assert agrees(function, loss, parameters, batch)
    scale = torch.full((1,), 0.2)  # of another shape
    assert agrees(function, loss, parameters, batch)


def test_two_names_of_one_tensor_may_part() -> None:
    a = torch.ones(4)
    b = a

    def loss(p: Tensors, batch: Tensors) -> Any:
        return (p["v"] * batch["x"] * a + b * p["v"]).tanh().sum()

    function, parameters, batch = per_instance(loss), {"v": R(4)}, {"x": R(B, 4)}
    function(parameters, batch)
    b = torch.full((4,), 3.0)
    assert agrees(function, loss, parameters, batch)


def test_a_plain_value_that_changes_means_a_new_trace_and_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    power = 1.0

    def loss(p: Tensors, b: Tensors) -> Any:
        return (p["v"] * b["x"]).tanh().sum() * power * FACTOR

    function, parameters, batch = per_instance(loss), {"v": R(4)}, {"x": R(B, 4)}
    function(parameters, batch)
    power = 3.0
    with pytest.warns(RuntimeWarning, match="power"):
        assert agrees(function, loss, parameters, batch)
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    with pytest.warns(RuntimeWarning, match="FACTOR"):
        assert agrees(function, loss, parameters, batch)


def test_the_value_of_a_captured_tensor_is_not_frozen() -> None:
    scale = torch.tensor(1.0)

    def loss(p: Tensors, b: Tensors) -> Any:
        return simple(p, b) * (scale.item() if scale > 0 else 7.0)

    function, parameters, batch = per_instance(loss), {"w": R(4, 5)}, {"x": R(B, 4)}
    function(parameters, batch)
    for value in (3.0, -1.0):
        scale.fill_(value)
        assert agrees(function, loss, parameters, batch)


def test_training_and_evaluation_have_traces_of_their_own() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    function, batch = per_instance(loss_of(net)), {"x": R(B, 4)}
    function(trained(net), batch)
    net.eval()
    assert agrees(function, loss_of(net), trained(net), batch)
    net.train()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = function(trained(net), batch)["0.weight"]
    assert bool((rows.abs().sum(2) == 0).any())  # units that were dropped


def test_attributes_of_modules_and_frozen_parameters_and_buffers_are_seen() -> None:
    net = nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.LayerNorm(4), nn.BatchNorm1d(4).eval())
    function, parameters, batch = per_instance(loss_of(net)), trained(net), {"x": R(B, 4)}
    function(parameters, batch)
    net[0].weight.data = R(4, 4)
    assert agrees(function, loss_of(net), parameters, batch)
    net[0].weight = nn.Parameter(R(4, 4), requires_grad=False)
    assert agrees(function, loss_of(net), parameters, batch)
    net[2].running_mean = R(4)
    net[2].running_var.mul_(3)
    assert agrees(function, loss_of(net), parameters, batch)
    net[1].eps = 0.5
    assert agrees(function, loss_of(net), parameters, batch)


def test_entries_of_dictionaries_are_frozen_as_documented() -> None:
    box = {"factor": 1.0}

    def loss(p: Tensors, b: Tensors) -> Any:
        return simple(p, b) * box["factor"]

    function, parameters, batch = per_instance(loss), {"w": R(4, 5)}, {"x": R(B, 4)}
    before = function(parameters, batch)
    box["factor"] = 3.0
    assert error(function(parameters, batch), before) == 0


def test_dropout_draws_a_mask_per_instance_and_call_that_the_seed_repeats() -> None:
    net = nn.Sequential(nn.Linear(50, 50, bias=False), nn.Dropout(0.5))
    norms, rows = per_instance(loss_of(net), "norms"), per_instance(loss_of(net))
    parameters, batch = trained(net), {"x": torch.ones(B, 50)}
    first = rows(parameters, batch)["0.weight"].abs().sum(2) > 0
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first, rows(parameters, batch)["0.weight"].abs().sum(2) > 0)
    assert not torch.equal(norms(parameters, batch), norms(parameters, batch))
    seeded = []
    for _ in range(2):
        torch.manual_seed(1)
        seeded.append(norms(parameters, batch))
    assert torch.equal(*seeded)


def test_autocast_is_part_of_the_signature() -> None:
    function, parameters, batch = per_instance(simple), {"w": R(40, 50).float()}, {"x": R(B, 3, 40).float()}
    plain = function(parameters, batch)["w"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast, wanted = function(parameters, batch)["w"], vmap(grad(simple), (None, 0))(parameters, batch)["w"]
    assert torch.equal(cast, wanted)
    assert not torch.equal(cast, plain)
    assert torch.equal(function(parameters, batch)["w"], plain)


# --- Memory ----------------------------------------------------------------------------------------------------------


def test_fresh_results_stay_and_reused_ones_are_overwritten() -> None:
    for name in ("stacked layers", "index", "kernel twice", "equal gradients", "tied logits"):
        loss, parameters, draw = FUNCTIONS[name]
        p, first, second = parameters(), {"x": draw()}, {"x": draw()}
        fresh, reused = per_instance(loss), per_instance(loss, reuse=True)
        kept = fresh(p, first)
        copies = {key: value.clone() for key, value in kept.items()}
        fresh(p, second)
        assert error(kept, copies) == 0
        for batch in (first, second, first):
            assert error(reused(p, batch), rows_of(loss, p, batch)) < 1e-10
        once, twice = reused(p, first), reused(p, second)
        large = max(p, key=lambda key: p[key].numel())
        assert name == "equal gradients" or once[large].data_ptr() == twice[large].data_ptr()


@pytest.mark.parametrize("name", ["linear", "of the parameters alone", "equal gradients", "unused", "index", "penalty"])
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_results_share_memory_with_nothing(name: str, quantity: str) -> None:
    loss, build, draw = FUNCTIONS[name]
    parameters, batch, weights = build(), {"x": draw()}, torch.ones(B)
    function = per_instance(loss, quantity)

    def call() -> list[Any]:
        found = function(parameters, batch, *((weights,) if quantity == "weighted_sum" else ()))
        return list(found.values()) if isinstance(found, dict) else [found]

    inputs = [*parameters.values(), *batch.values(), weights]
    before, results = [x.clone() for x in inputs], call()
    wanted = [x.clone() for x in results]
    for number, result in enumerate(results):
        result.fill_(7)
        assert all(torch.equal(x, y) for x, y in zip(results[number + 1 :], wanted[number + 1 :], strict=True))
    assert all(torch.equal(x, y) for x, y in zip(inputs, before, strict=True))
    assert all(torch.equal(x, y) for x, y in zip(call(), wanted, strict=True))


def test_threads_may_share_a_function() -> None:
    loss, build, draw = FUNCTIONS["kernel twice"]
    parameters, function = build(), per_instance(loss, "clipped_sum")
    batches = [{"x": draw()} for _ in range(4)]
    wanted = [function(parameters, batch) for batch in batches]
    errors: list[float] = []

    def work(number: int) -> None:
        errors.extend(error(function(parameters, batches[number]), wanted[number]) for _ in range(10))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(errors) == 0
    assert len(errors) == 40


# --- Arguments -------------------------------------------------------------------------------------------------------


def test_batches_of_every_size_and_layout() -> None:
    parameters = {"w": R(4, 5)}
    for x in (R(6, 3, 4), R(6, 7, 4), R(1, 3, 4), R(2, 3, 4), R(4, 3, 6).permute(2, 1, 0), R(1, 3, 4).expand(6, 3, 4)):
        assert worst(simple, parameters, {"x": x}) < 1e-10
    assert worst(simple, {"w": R(5, 4).T}, {"x": R(6, 3, 4)}) < 1e-10


@pytest.mark.parametrize("name", ["recurrent", "experts", "stacked layers", "tied logits", "kernel twice", "low rank"])
def test_a_batch_of_one(name: str) -> None:
    loss, parameters, draw = FUNCTIONS[name]

    assert worst(loss, parameters(), {"x": draw()[:1]}) < 1e-10


def test_one_function_takes_several_batch_sizes_in_turn() -> None:
    function, parameters = per_instance(simple, reuse=True), {"w": R(4, 5)}
    for size in (6, 2, 6, 3, 2):
        batch = {"x": R(size, 3, 4)}
        assert error(function(parameters, batch), rows_of(simple, parameters, batch)) < 1e-10


def test_an_empty_batch_has_empty_rows_and_zero_sums() -> None:
    parameters, batch = {"w": R(4, 5)}, {"x": R(0, 4)}
    assert per_instance(simple)(parameters, batch)["w"].shape == (0, 4, 5)
    assert per_instance(simple, "norms")(parameters, batch).shape == (0,)
    assert torch.equal(per_instance(simple, "clipped_sum")(parameters, batch)["w"], torch.zeros(4, 5))
    assert torch.equal(per_instance(simple, "weighted_sum")(parameters, batch, R(0))["w"], torch.zeros(4, 5))


def test_trees_keep_their_structure() -> None:
    def loss(p: Any, b: Any) -> Any:
        return (b[0] @ p["a"]["w"] + b[1][0] * p["c"][0]).tanh().sum()

    parameters, batch = {"a": {"w": R(4, 5)}, "c": [R(5)]}, (R(B, 4), [R(B, 5)])
    wanted = vmap(grad(loss), (None, 0))(parameters, batch)

    found = per_instance(loss)(parameters, batch)
    summed = per_instance(loss, "weighted_sum")(parameters, batch, torch.ones(B))

    assert torch.allclose(found["a"]["w"], wanted["a"]["w"])
    assert torch.allclose(found["c"][0], wanted["c"][0])
    assert torch.allclose(summed["c"][0], wanted["c"][0].sum(0))


def test_parameters_that_require_a_gradient_are_taken_and_keep_theirs() -> None:
    parameters, batch = {"w": R(4, 5).requires_grad_()}, {"x": R(B, 4)}
    for quantity in ("gradients", "clipped_sum"):
        assert not per_instance(simple, quantity)(parameters, batch)["w"].requires_grad
    assert parameters["w"].grad is None


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="quantity"):
        per_instance(simple, "row")
    with pytest.raises(ValueError, match="clip_norm"):
        per_instance(simple, "clipped_sum", clip_norm=0.0)
    with pytest.raises(ValueError, match="first axis"):
        per_instance(simple)({"w": R(4, 5)}, {"x": R(B, 4), "y": R(3)})
    with pytest.raises(ValueError, match="weights"):
        per_instance(simple, "weighted_sum")({"w": R(4, 5)}, {"x": R(B, 4)}, R(3))
    with pytest.raises(TypeError, match="tensors"):
        per_instance(simple)({"w": R(4, 5)}, {"x": R(B, 4), "y": 3})


# --- Random compositions ---------------------------------------------------------------------------------------------

WIDTH, ENTRIES = 4, 7


def step_of(kind: str, number: int, p: Tensors, x: Any, b: Tensors) -> Any:
    """One step of a random network on x (T, WIDTH); `p` has parameters of its own for each step, and shared ones."""
    own = p.get(f"p{number}")
    return {
        "dense": lambda: x @ own,
        "tied": lambda: x @ p["shared"],
        "tied, transposed": lambda: F.linear(x, p["shared"]),
        "heads": lambda: torch.einsum("td,dhk->thk", x, own).flatten(1),
        "experts": lambda: torch.einsum("td,edk->tk", x, own),
        "stacked": lambda: (x @ own[0]).tanh() @ own[1],
        "packed": lambda: (lambda u, v: (x @ u) * torch.sigmoid(x @ v))(*own.chunk(2, 1)),
        "convolution": lambda: F.conv1d(x.T[None], own, padding=1)[0].T,
        "depthwise": lambda: F.conv1d(x.T[None], own, padding=1, groups=WIDTH)[0].T,
        "norm": lambda: F.layer_norm(x, (WIDTH,), own[0], own[1]),
        "lookup": lambda: x + p["table"][b["i"]],
        "embedding": lambda: x + F.embedding(b["i"], p["table"]).sum(0),
        "logits": lambda: torch.softmax(x @ p["table"].T, -1) @ p["table"],
        "attention": lambda: torch.softmax(x @ own @ x.T, -1) @ x,
        "turned": lambda: (x.T.reshape(-1, WIDTH)[: len(x)] @ own.T).roll(1, 0),
        "recurrent": lambda: torch.stack(list(recurrent(x, own))),
        "scaled": lambda: x @ (-0.5 * own) / 2 + own.sum(0),
    }[kind]().tanh()


def recurrent(x: Any, weight: Any) -> Any:
    h = torch.zeros(WIDTH)
    for row in x:
        h = (row + h @ weight).tanh()
        yield h


SHAPES = {
    "heads": (WIDTH, 2, 2),
    "experts": (3, WIDTH, WIDTH),
    "stacked": (2, WIDTH, WIDTH),
    "packed": (WIDTH, 2 * WIDTH),
    "convolution": (WIDTH, WIDTH, 3),
    "depthwise": (WIDTH, 1, 3),
    "norm": (2, WIDTH),
}
KINDS = sorted(
    {*SHAPES, "dense", "tied", "tied, transposed", "lookup", "embedding", "logits", "attention", "turned", "recurrent"}
    | {"scaled"}
)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4), size=st.integers(1, 4), length=st.integers(1, 4))
def test_random_compositions_agree_with_the_loop(kinds: list[str], size: int, length: int) -> None:
    torch.manual_seed(len(kinds))
    shapes = {f"p{i}": SHAPES.get(kind, (WIDTH, WIDTH)) for i, kind in enumerate(kinds)}
    parameters = {name: R(*shape) for name, shape in shapes.items()}
    parameters |= {"shared": R(WIDTH, WIDTH), "table": R(ENTRIES, WIDTH)}

    def loss(p: Tensors, b: Tensors) -> Any:
        x = b["x"]
        for number, kind in enumerate(kinds):
            x = step_of(kind, number, p, x, b)
        return x.square().sum()

    batch = {"x": R(size, length, WIDTH), "i": ids(ENTRIES, size, length)}

    assert worst(loss, parameters, batch) < 1e-9


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    inputs=st.permutations("bcd").flatmap(lambda axes: st.integers(1, 3).map(lambda n: "".join(axes[:n]))),
    weights=st.permutations("bcde").flatmap(lambda axes: st.integers(1, 4).map(lambda n: "".join(axes[:n]))),
    keep=st.integers(0, 15),
)
def test_random_einsums_agree_with_the_loop(inputs: str, weights: str, keep: int) -> None:
    lengths = {"b": 2, "c": 3, "d": 1, "e": 4}
    labels = sorted({*inputs, *weights})
    output = "".join(axis for number, axis in enumerate(labels) if keep >> number & 1)

    def loss(p: Tensors, b: Tensors) -> Any:
        return torch.einsum(f"{inputs},{weights}->{output}", b["x"], p["w"]).tanh().sum()

    parameters = {"w": R(*(lengths[axis] for axis in weights))}

    assert worst(loss, parameters, {"x": R(3, *(lengths[axis] for axis in inputs))}) < 1e-9
