"""How a strategy is used in a file of its own: a small model, to be replaced by the reader's."""

from __future__ import annotations

IMPORTS = {
    "jax": "import jax\nimport jax.numpy as jnp\nimport numpy as np",
    "torch": "import torch",
    "tf1": "import numpy as np\nimport tensorflow.compat.v1 as tf",
    "tf2": "import tensorflow as tf",
    "numpy": "import autograd.numpy as anp\nimport numpy as np",
}

SQUARES = {
    "jax": "jnp.square({}).sum(1)",
    "torch": "({}).square().sum(1)",
    "tf1": "tf.reduce_sum(tf.square({}), 1)",
    "tf2": "tf.reduce_sum(tf.square({}), 1)",
    "numpy": "anp.sum(({}) ** 2, 1)",
}

DRAWN = {
    "jax": "jnp.asarray(np.random.randn({}), jnp.float32)",
    "torch": "torch.randn({})",
    "tf1": "np.random.randn({}).astype(np.float32)",
    "tf2": "tf.random.normal([{}])",
    "numpy": "np.random.randn({})",
}

VARIABLE = {"tf1": "tf.Variable({})", "tf2": "tf.Variable({})"}

MODULE = """
import torch
from torch import nn

# Your module in place of this one, and one loss for every instance, shape (B,), not averaged.
model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


def inputs(batch):
    return (batch["x"],)


def loss(output, batch):
    return nn.functional.cross_entropy(output, batch["label"], reduction="none")


batch = {"x": torch.randn(4, 5), "label": torch.randint(3, (4,))}
example = {name: value[:1] for name, value in batch.items()}
problem = Problem(model, inputs, loss, batch_size=4, example=example)
"""


def usage(framework: str, function: str, through_ops: bool, module: bool, asked: frozenset[str]) -> str:
    """The part below a strategy's function: what is executed.

    Args:
        function: the strategy's name in the file.
        through_ops: whether its layer rules read the loss, which is written with `ops` then.
        module: whether it differentiates a `torch.nn.Module`.
        asked: the attributes of the problem that the file uses.
    """
    model = MODULE if module else _losses(framework, through_ops, asked)
    return f"{model.strip()}\n\nstep = {function}(problem)\ngradients = step(batch)\nprint(gradients)\n"


def _losses(framework: str, through_ops: bool, asked: frozenset[str]) -> str:
    arguments = "parameters, batch, ops=ops" if through_ops else "parameters, batch"
    output = 'batch["x"] @ parameters["weight"] + parameters["bias"]'
    output = 'ops.dense(batch["x"], parameters["weight"], parameters["bias"])' if through_ops else output
    with_ops = (
        "\n# Its layers are those of `ops`; everything between them is the framework's own." if through_ops else ""
    )
    drawn, variable = DRAWN[framework], VARIABLE.get(framework, "{}")
    graph = framework == "tf1"
    given = ["losses", "parameters", "batch_size=4"]
    given += ['inputs={"x": (tf.float32, (5,)), "y": (tf.float32, (3,))}'] if graph else []
    given += [f"weights={drawn.format('4')}"] if "weights" in asked else []
    given += ["device=jax.devices()[0]"] if "device" in asked else []
    given += ["ops=ops"] if through_ops else []
    eager = "tf.disable_eager_execution()\n" if graph else ""
    return f"""
{IMPORTS[framework]}
{eager}
# Your model in place of this one: one loss for every instance, shape (B,), not averaged.{with_ops}
def losses({arguments}):
    output = {output}
    return {SQUARES[framework].format('output - batch["y"]')}


parameters = {{
    "weight": {variable.format(drawn.format("5, 3"))},
    "bias": {variable.format(drawn.format("3"))},
}}
batch = {{"x": {drawn.format("4, 5")}, "y": {drawn.format("4, 3")}}}
problem = {"GraphProblem" if graph else "Problem"}({", ".join(given)})
"""
