"""Every command and code block of the documentation is run, document by document, in a folder like a reader's."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import catalogue, strategies
from harness.strategies import FOLDER
from tests import made_runs
from tests.conftest import installed

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
EXECUTED = ("bash", "python", "toml")

CHEAP = {
    "--workload": ["--workload", "policy"],
    "--batch-size": ["--batch-size", "2"],
    "--strategy": ["--budget", "1s"],
    "--target": ["--target", "0.02s"],
}
"""Option of `pergrad run` -> what is added where a command does not have it, so that it ends soon."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line it begins at."""

    language: str
    text: str
    line: int


def blocks(document: Path) -> list[Block]:
    text = document.read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(match[1], match[2], text.count("\n", 0, match.start()) + 1) for match in found]


def commands(block: Block) -> list[str]:
    """The lines of a block without comments, cut at `&&`."""
    lines = [line.partition("  #")[0].strip() for line in block.text.splitlines()]
    return [part.strip() for line in lines if line for part in line.split("&&")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a reader has: the examples, a strategy folder, and three runs."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for name in ("sample", "other", "RUN"):
        made_runs.normal(tmp_path / "results" / name, passes=1, rounds=5)
    return tmp_path


def pergrad(arguments: list[str]) -> list[str]:
    """A command of pergrad as it is run here."""
    if arguments[0] == "run":
        if "--resume" in arguments:
            return ["run", "--help"]  # tests/test_interruptions.py resumes runs
        for option, cheap in CHEAP.items():
            arguments = arguments if option in arguments else [*arguments, *cheap]
        arguments = ["mlp-small" if word == "all" else word for word in arguments]  # the truth of all takes a minute
    if arguments[0] == "advise":
        arguments = [*arguments, "--within", "40s"]  # the last of two counts
    if arguments[0] == "check" and "--workload" not in arguments:
        arguments = [*arguments, "--workload", "policy"]
    return arguments


def run(command: list[str], folder: Path, allowed: tuple[int, ...] = (0,)) -> None:
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode in allowed, f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"


def execute(command: str, folder: Path) -> None:
    """Run a command of the documentation, or see that what it names exists where running it would take minutes."""
    words = shlex.split(command)
    if words[:2] == ["tox", "-e"]:
        assert f"[testenv:{words[2]}]" in (ROOT / "tox.ini").read_text()
        rest = words[words.index("--") + 1 :] if "--" in words else []
        if words[2] == "bench":
            words = ["pergrad", "run", *rest]
        elif words[2] == "all" and rest[0] == "pergrad":
            words = rest
        else:
            return
    if words[0] == "pip":
        named = re.findall(r"\[(.+?)\]", command)
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert all(extra in extras for name in named for extra in name.split(","))
    elif words[0] == "pergrad":
        # A comparison that finds a case slower than is allowed says so by its exit status.
        run([sys.executable, "-m", "harness.cli", *pergrad(words[1:])], folder, (0, 1) if "compare" in words else (0,))
    elif words[0] == "python":
        run([sys.executable, *[word for word in words[1:] if word not in (">", "docs/catalogue.md")]], folder)
    else:
        assert os.access(ROOT / words[0], os.X_OK), f"{command} is no command"


def execute_python(block: Block, folder: Path) -> None:
    """A strategy or a workload is checked, anything else is run as a script."""
    path = folder / f"block_{block.line}.py"
    path.write_text(block.text)
    check = [sys.executable, "-m", "harness.cli", "check"]
    if "@strategy(" in block.text:
        elsewhere = folder / "elsewhere"  # the same name may stand in strategies/ already
        elsewhere.mkdir(exist_ok=True)
        run([*check, str(path), "--workload", "policy"], elsewhere)
    elif "def losses(" in block.text:
        name = "torch/func-vmap" if "import torch" in block.text else "numpy/autograd-loop"
        run([*check, name, "--workload", str(path)], folder)
    else:
        run([sys.executable, str(path)], folder)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_every_command_and_code_block_works(document: Path, folder: Path) -> None:
    found = blocks(document)
    if "torch" in "".join(block.text for block in found) and not (installed("torch") and installed("jax")):
        pytest.skip("torch or jax is not installed")

    for block in found:
        assert block.language in (*EXECUTED, "") or document.name == "catalogue.md", f"line {block.line}"
        if block.language == "bash":
            for command in commands(block):
                execute(command, folder)
        elif block.language == "python":
            execute_python(block, folder)
        elif block.language == "toml":
            tomllib.loads(block.text)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_every_link_to_a_file_leads_to_one(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text(encoding="utf-8"))

    assert [target for target in targets if not (document.parent / target).exists()] == []


def test_every_document_is_reachable_from_the_readme() -> None:
    linked = set(re.findall(r"\]\((docs/[^)]+)\)", (ROOT / "README.md").read_text()))

    assert linked == {f"docs/{document.name}" for document in (ROOT / "docs").glob("*.md")}


def test_the_tree_of_the_house_names_modules_that_exist() -> None:
    (tree,) = [block.text for block in blocks(ROOT / "CONTRIBUTING.md") if not block.language]
    named = set(re.findall(r"\b(\w+\.py)\b", tree))

    assert {name for name in named if not (ROOT / "harness" / name).exists()} == set()
    here = {path.name for path in (ROOT / "harness").glob("*.py")} - {"__init__.py"}
    assert here - named == set()


def test_the_catalogue_is_that_of_the_strategies() -> None:
    own = [strategy for strategy in strategies.discover().strategies if FOLDER in strategy.path.parents]

    page = (ROOT / "docs" / "catalogue.md").read_text(encoding="utf-8")

    assert page == catalogue.markdown(own) + "\n", "make it anew: python -m harness.catalogue > docs/catalogue.md"
