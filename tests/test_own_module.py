"""A workload that gives a `torch.nn.Module`: what follows from the module, and what packages for modules make of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from harness import frameworks
from harness.core.find_strategies import discover
from harness.core.find_workloads import find
from harness.core.plugins import PluginError
from harness.core.workload import cast
from harness.reference import build, files
from harness.reference.workload_info import workload_info
from tests import bound

pytestmark = bound.needs("torch")

FILE = '''"""A module of one's own."""
import numpy as np
import torch
from torch import nn

frameworks = ("torch",)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(5, 5)
        self.o = nn.Linear(5, 3)
        {more}

    def forward(self, x, scale=1.0):
        {forward}


def model():
    torch.manual_seed(0)
    {model}


def loss(output, batch):
    return nn.functional.cross_entropy(output, batch["label"], reduction="none")


def batch(rng, size):
    return {{"x": rng.standard_normal((size, 5)), "label": rng.integers(3, size=size), "scale": rng.random((size, 1))}}
'''


def text(forward: str = "return self.o(torch.tanh(self.a(x)))", more: str = "pass", model: str = "return Net()") -> str:
    return FILE.format(forward=forward, more=more, model=model)


FROZEN = (
    text(
        "return self.o(torch.tanh(self.a(x)) * scale * self.factor + self.steps)",
        'self.a.requires_grad_(False); self.register_buffer("factor", torch.rand(5)); '
        'self.register_buffer("steps", torch.tensor(3))',
    )
    + """

def inputs(batch):
    return batch["x"], batch["scale"]
"""
)
"""A frozen layer, a buffer of floats and one of integers, and a call with two arguments."""

LOSSES = (
    text().replace("def loss(output", "def of(output").replace("def model", "def made")
    + """

MODEL = made()


def losses(parameters, batch):
    return of(torch.func.functional_call(MODEL, parameters, (batch["x"],)), batch)


def parameters(rng):
    return {name: value.detach().numpy() for name, value in MODEL.named_parameters()}
"""
)

OPACUS = ("torch/opacus-hooks", "torch/opacus-functorch", "torch/opacus-ghost-norms", "torch/opacus-ghost-clipping")
PEERS = (*OPACUS, "torch/backpack-batch-grad", "torch/expanded-weights")
GHOST, BACKPACK, EXPANDED = OPACUS[2:], PEERS[4:5], PEERS[5:]

TWICE = {GHOST: "Opacus refuses .* Parameter tying", BACKPACK: r"a\.weight, a\.bias is used twice"}

REFUSED: dict[str, tuple[str, dict[tuple[str, ...], str]]] = {
    "plain": (text(), {}),
    "frozen": (FROZEN, {}),
    "called_twice": (text("return self.o(torch.tanh(self.a(torch.tanh(self.a(x)))))"), TWICE),
    "shared": (
        text(
            "return self.o(torch.tanh(self.b(torch.tanh(self.a(x)))))",
            "self.b = nn.Linear(5, 5); self.b.weight = self.a.weight; self.b.bias = self.a.bias",
        ),
        TWICE,
    ),
    "without_a_rule": (
        text("return self.o(self.r(self.a(x)))", "self.r = nn.PReLU()"),
        {BACKPACK: r"r\.weight has no grad_batch: there is no rule for PReLU", EXPANDED: "handle function prelu"},
    ),
    "batch_norm": (
        text("return self.o(self.n(self.a(x)))", "self.n = nn.BatchNorm1d(5).eval()"),
        {OPACUS: "Opacus refuses .*BatchNorm cannot support", EXPANDED: "handle function batch_norm"},
    ),
    "in_eval_mode": (text(model="return Net().eval()"), {OPACUS: "Opacus refuses .* training mode"}),
    "losses_alone": (LOSSES, {PEERS: "give `model` and `loss`"}),
}
"""A file -> the packages that refuse it, and what they say; the others compute its rows."""


def write(folder: Path, content: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def test_packages_for_modules_are_right_on_the_users_own_module_or_refuse_it_with_their_reason(tmp_path: Path) -> None:
    paths = {name: str(write(tmp_path, content, f"{name}.py")) for name, (content, _) in REFUSED.items()}

    found = bound.run(bound.verdicts, "torch", "float32", list(paths.values()), [3], list(PEERS), framework="torch")

    expected = {
        f"{peer} on {paths[name]} at 3": next((why for peers, why in refusals.items() if peer in peers), "")
        for name, (_, refusals) in REFUSED.items()
        for peer in PEERS
    }
    assert found.keys() == expected.keys()
    for case, (status, reason) in found.items():
        if re.search("No module named|not installed", reason):
            continue  # a package beyond PyTorch
        assert status == ("unsupported" if expected[case] else "ok"), f"{case}: {reason}"
        assert re.search(expected[case], reason), f"{case}: {reason}"


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_state_of_a_module_is_in_the_dtype_under_test(tmp_path: Path, dtype: str) -> None:
    path = str(write(tmp_path, FROZEN))
    chosen = ["torch/func-vmap", "torch/grad-loop", "torch/expanded-weights"]

    found = bound.run(bound.verdicts, "torch", dtype, [path], [3], chosen, framework="torch", dtype=dtype)

    assert found == {f"{name} on {path} at 3": ["ok", ""] for name in chosen}


EMBEDDED = text("return self.o(self.e(x.long()).mean(1))", "self.e = nn.Embedding(5, 5)").replace(
    "rng.standard_normal((size, 5))", "rng.integers(5, size=(size, 4))"
)


def test_a_package_that_knows_an_embedding_in_float32_only_refuses_float64_and_the_others_run_it(
    tmp_path: Path,
) -> None:
    path = str(write(tmp_path, EMBEDDED.replace("self.a = nn.Linear(5, 5)", "pass")))

    found = bound.run(bound.verdicts, "torch", "float64", [path], [3], list(PEERS), framework="torch", dtype="float64")

    refused = {case for case, (status, _) in found.items() if status == "unsupported"}
    assert {status for status, _ in found.values()} <= {"ok", "unsupported"}, found
    for case in refused:
        assert re.search("BackPACK refuses this module: RuntimeError|not installed|No module named", found[case][1])


def test_buffers_and_frozen_parameters_are_state(tmp_path: Path) -> None:
    known = workload_info(find(write(tmp_path, FROZEN)))

    assert known.shapes == {"o.weight": (3, 5), "o.bias": (3,)}
    assert known.state == ("a.bias", "a.weight", "factor", "steps")


def test_a_parameter_that_is_shared_has_its_first_name_alone(tmp_path: Path) -> None:
    known = workload_info(find(write(tmp_path, REFUSED["shared"][0])))

    assert list(known.shapes) == ["a.weight", "a.bias", "o.weight", "o.bias"]


def the_module_after(path: str) -> dict[str, Any]:
    """What a package leaves behind on the user's own module; in the framework's process."""
    workload = find(path)
    adapter = frameworks.load("torch")
    parameters = cast(workload.initial_parameters(0), "float32")
    problem = adapter.bind(workload, parameters, adapter.device("cpu"), 3)
    batch = adapter.place(cast(workload.batches(0, 3, 1)[0], "float32"), adapter.device("cpu"))
    discover().find("torch/expanded-weights").build(problem)(batch)
    again = find(path).module
    assert workload.module is not None
    assert problem.module is not None
    assert again is not None
    own, one, other = workload.module.model(), problem.module.model(), problem.module.model()
    one.o.weight.data.zero_()
    return {
        "touched": [name for name, value in own.named_parameters() if hasattr(value, "grad_sample")],
        "built once": again.model() is own,
        "copies share": bool((other.o.weight == 0).any() or (own.o.weight == 0).any()),
    }


def test_a_package_is_given_a_copy_of_the_module(tmp_path: Path) -> None:
    left = bound.run(the_module_after, str(write(tmp_path, text())), framework="torch")

    assert left == {"touched": [], "built once": True, "copies share": False}


def refusal(path: str, reference: str) -> str:
    """What this process says of a reference that another one computed."""
    workload = find(path)
    parameters, batch = cast(workload.initial_parameters(0), "float32"), cast(workload.batches(0, 2, 1)[0], "float32")
    try:
        files.refuse_other_inputs(files.load(Path(reference))[0], workload, parameters, batch)
    except files.Irreproducible as error:
        return str(error)
    return ""


RANDOM_BUFFER = FROZEN.replace("torch.rand(5)", "torch.rand(5, generator=G)").replace(
    "class Net", "G = torch.Generator()\nG.seed()\n\n\nclass Net"
)


@pytest.mark.parametrize(
    ("content", "named"),
    [(text(), False), (FROZEN, False), (text(model="torch.seed(); return Net()"), True), (RANDOM_BUFFER, True)],
    ids=["seeded", "seeded with a buffer", "other weights", "another buffer"],
)
def test_a_module_that_differs_from_process_to_process_is_named(tmp_path: Path, content: str, named: bool) -> None:
    path, reference = str(write(tmp_path, content)), tmp_path / "reference.npz"
    build.write(reference, path, 2, 0, "float32")

    said = bound.run(refusal, path, str(reference), framework="torch")

    assert ("in every process" in said) == named


def test_a_file_is_described_without_being_executed(tmp_path: Path) -> None:
    workload = find(write(tmp_path, text() + '\nraise SystemExit("executed")\n'))

    assert (workload.written_for, workload.summary) == (("torch",), "A module of one's own.")
    assert workload.module is not None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (text().replace("def loss", "def cost"), r"lacks the function\(s\) loss"),
        (text().replace('frameworks = ("torch",)', ""), r'write frameworks = \("torch",\)'),
    ],
)
def test_a_file_that_gives_half_of_it_is_refused_with_the_reason(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        find(write(tmp_path, content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (text() + "\n\nmodel = Net()\n", "must be a function without arguments that returns a torch.nn.Module"),
        (text(model="return Net().requires_grad_(False)"), "no parameter of `model` requires a gradient"),
    ],
)
def test_a_model_that_cannot_be_differentiated_is_refused_with_the_reason(
    tmp_path: Path, content: str, message: str
) -> None:
    with pytest.raises(PluginError, match=message):
        build.write(tmp_path / "reference.npz", str(write(tmp_path, content)), 2, 0, "float32")
