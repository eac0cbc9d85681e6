"""A strategy as a file of its own, which runs with the reader's model and the framework alone.

The text of the strategy's function is kept as it is. What it takes from its helpers and from pergrad stands above it,
as far as it is used, and below it an example of its use. `pergrad.jax`, `pergrad.torch` and `pergrad.tensorflow` stay
imports: each is one file that needs nothing of ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from harness.core.standalone.source import Conflict, Imports, Source, collect, module_source
from harness.core.standalone.usage import IMPORTS, usage

LAYERS = ("dense", "conv2d", "embedding", "layer_norm", "lstm", "transpose", "matmul", "sum", "expand_dims", "squeeze")
"""The operations that a loss is written with, for layer rules to read it; all others are the framework's own."""


def standalone(
    text: str,
    name: str,
    function: str,
    source: str = "",
    requires: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> str:
    """The file to be copied.

    Args:
        text: the strategy's file. It is returned as it is for a framework that pergrad does not come with, and where
            the function is not defined in it or a helper goes by another name there.
        name: the strategy's, which begins with its framework's.
        function: its function in that file.
        source: where the idea comes from.
        requires: packages beside the framework.
        environment: variables that are set before the framework is imported.
    """
    framework = name.partition("/")[0]
    try:
        strategy = Source(text)
    except Conflict:
        return text
    if framework not in IMPORTS or not strategy.defines(function):
        return text
    module = strategy.imports("own_module")
    kind = "module_problem" if module else "graph_problem" if framework == "tf1" else "problem"
    imports = Imports()
    problem = module_source(f"harness.core.standalone.texts.{kind}")
    body = collect(strategy, problem, (function, "GraphProblem" if framework == "tf1" else "Problem"), imports)
    asked = frozenset(re.findall(r"\bproblem\.(\w+)", body))
    through_ops = "ops" in asked
    used = Source(usage(framework, function, through_ops, module, asked))
    imports.add(used)
    body = _without_fields({"weights", "clip_norm", "device", "ops", "facts"} - asked, body)
    parts = [body, *([_operations(framework)] if through_ops else []), used.without_imports()]
    code = "\n\n\n".join(part.strip() for part in parts)
    variables = "".join(f'os.environ["{key}"] = "{value}"\n' for key, value in (environment or {}).items())
    needs = [*requires, *(f"`{found}` of pergrad" for found in sorted(set(re.findall(r"from (pergrad\.\w+) ", code))))]
    facts = [f"Source: {source}"] * bool(source) + [f"Needs {', '.join(needs)}."] * bool(needs)
    docstring = "\n".join((f'"""{name}', "", strategy.summary(function), *facts, '"""'))
    first = "import os\n\n" + variables if environment else ""
    head = (docstring, "from __future__ import annotations", first.strip(), imports.text(code))
    return "\n\n".join(part for part in head if part) + "\n\n" + code + "\n"


def _without_fields(names: set[str], body: str) -> str:
    """The problem without what nobody asks it for."""
    for name in names:
        body = re.sub(rf"^    {name}: .*\n", "", body, flags=re.MULTILINE)
    return body


def _operations(framework: str) -> str:
    """The layers of `ops`, in a namespace of that name."""
    name = "tensorflow" if framework.startswith("tf") else framework
    operations, imports = module_source(f"harness.ops.{name}"), Imports()
    body = collect(operations, Source(""), tuple(layer for layer in LAYERS if operations.defines(layer)), imports)
    lines = f"{imports.text(body)}\n\n{body}\n\nreturn SimpleNamespace(**locals())".replace("\n\n\n", "\n\n")
    indented = "\n".join(f"    {line}" if line else "" for line in lines.splitlines())
    docstring = '    """Layers that there are rules for. Everything else in a loss may be the framework\'s own."""'
    head = f"def layers_of_{name}():\n{docstring}\n    from types import SimpleNamespace"
    return f"{head}\n{indented}\n\n\nops = layers_of_{name}()"
