"""Every command and code block of the documentation is run, block by block, in a folder like a reader's.

A block is run in a new folder, after the `pergrad new` commands that stand above it in the same document. It is
skipped, by name, where a framework that it mentions is not installed.
"""

from __future__ import annotations

import itertools
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness.advise import race
from harness.cli.app import app
from harness.core import find_strategies
from harness.core.find_strategies import FOLDER
from harness.system import detect
from tests import made_runs
from tests.conftest import installed
from tests.stub_machine import Machine

ROOT = Path(__file__).resolve().parent.parent
build_catalogue = runpy.run_path(str(ROOT / "docs" / "build_catalogue.py"))

DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])

ASK = cache(detect._ask)
"""What the frameworks are is found out once, not again by every command; it takes seconds."""

CHEAP = {
    "--workload": "policy",
    "--strategy": "numpy/outer-products",
    "--batch-size": "2",
    "--passes": "1",
    "--target": "0.02s",
}
"""Option of `pergrad run` -> its value where a command does not give one, so that it ends in seconds."""

TRANSLATED = {
    "tox -e bench --": "pergrad run",
    "tox -e bench": "pergrad run",
    "tox -e all --": "",
}
"""How a command of tox begins -> what is run here, where everything is installed already."""

MAY_FAIL = ("compare", "doctor")
"""Commands whose exit status 1 is an answer: a case became slower, this machine is busy."""


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, its language and its text."""

    document: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.document.name}:{self.line}"

    @property
    def frameworks(self) -> set[str]:
        """The frameworks it mentions, by import, by the name of a strategy or of a file."""
        return set(re.findall(r"\b(tf1|tf2|jax|torch)(?=\b|_)", self.text))

    @property
    def commands(self) -> list[str]:
        """Its lines without comments, cut at `&&`."""
        lines = [line.partition("  #")[0].strip() for line in self.text.splitlines()]
        return [part.strip() for line in lines if line for part in line.split("&&")]


def blocks(document: Path) -> list[Block]:
    text = document.read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(document, text.count("\n", 0, match.start()) + 1, match[1], match[2]) for match in found]


BLOCKS = [block for document in DOCUMENTS for block in blocks(document)]


def of_language(language: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == language], ids=str)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a reader has: the examples, the documentation and two runs, in the current folder."""
    for name in ("examples", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("sample", "other"):
        made_runs.normal(tmp_path / "results" / name, passes=1, rounds=5)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(detect, "_ask", ASK)
    return tmp_path


def pergrad(*arguments: str, allowed: tuple[int, ...] = (0,)) -> str:
    """What a command of pergrad prints; it is run in this process, its workers in theirs."""
    result = CliRunner().invoke(app, arguments)
    said = f"pergrad {shlex.join(arguments)}\n{result.output[-3000:]}"
    assert result.exception is None or isinstance(result.exception, SystemExit), f"{said}\n{result.exception!r}"
    assert result.exit_code in allowed, said
    return result.output


def advise(*arguments: str) -> None:
    """Ask with made-up times, so that the answer does not hang on how busy this machine is; the reference is real."""
    slower_and_slower: defaultdict[str, float] = defaultdict(itertools.count(100.0, 50.0).__next__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(race.workers, "measure", Machine(slower_and_slower).measure)
        assert " use " in pergrad(*arguments, "--within", "600s")  # the last of two counts


def python(*arguments: str) -> str:
    """What Python prints, in a process of its own."""
    command, variables = [sys.executable, *arguments], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def skip_without(frameworks: set[str]) -> None:
    if missing := sorted(framework for framework in frameworks if not installed(framework)):
        pytest.skip(f"{', '.join(missing)} is not installed")


def translated(command: str) -> list[str]:
    """The words that are run for a command; none for an environment of tox that is not run from a test."""
    if command.startswith("tox "):
        environment = command.split()[2]
        assert f"[testenv:{environment}]" in (ROOT / "tox.ini").read_text(), f"tox has no environment {environment}"
        begins = next((start for start in TRANSLATED if command.startswith(start)), None)
        if begins is None:
            return []
        command = command.replace(begins, TRANSLATED[begins], 1)
    return shlex.split(command)


def cheap(arguments: list[str], block: Block) -> list[str]:
    """The arguments of a command of pergrad, with those that make it end soon."""
    if arguments[0] == "run" and "--resume" not in arguments:
        arguments = [
            "mlp-small" if word == "all" else word for word in arguments
        ]  # the reference of all takes a minute
        own_model = "torch" in block.frameworks and "--workload" in arguments and "mlp-small" not in arguments
        given = {**CHEAP, "--strategy": "torch/func-vmap"} if own_model else CHEAP
        return arguments + [word for option in given.items() if option[0] not in arguments for word in option]
    if arguments[0] == "check" and "--workload" not in arguments:
        return [*arguments, "--workload", "policy"]
    return arguments


def execute(command: str, block: Block) -> None:
    """Run a command, or see that what it names exists where running it would take minutes."""
    words = translated(command)
    if not words:
        return
    if words[0] == "pergrad":
        arguments = cheap(words[1:], block)
        if "--resume" in arguments:  # there has to be a run to go on with
            pergrad(*cheap(["run", "--name", arguments[arguments.index("--resume") + 1]], block))
        if arguments[0] == "advise":
            advise(*arguments)
        else:
            pergrad(*arguments, allowed=(0, 1) if arguments[0] in MAY_FAIL else (0,))
    elif words[0] == "python":
        into = words.index(">") if ">" in words else len(words)
        printed = python(*words[1:into])
        for target in words[into + 1 :]:
            assert printed == (ROOT / target).read_text(encoding="utf-8"), f"{target} differs from: {command}"
    elif words[0] == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert {name for some in re.findall(r"\[(.+?)\]", command) for name in some.split(",")} <= set(extras)
    elif words[0] == "pytest":
        assert [word for word in words[1:] if "/" in word and not (ROOT / word).exists()] == []
    else:
        assert os.access(ROOT / words[0], os.X_OK), f"{command} is no command"


@of_language("bash")
def test_every_command_works(block: Block) -> None:
    skip_without(block.frameworks)
    above = [other for other in blocks(block.document) if other.language == "bash" and other.line < block.line]
    for command in [command for other in above for command in other.commands if command.startswith("pergrad new ")]:
        execute(command, block)

    for command in block.commands:
        execute(command, block)


@of_language("python")
def test_every_code_block_works(block: Block, folder: Path) -> None:
    """A strategy and a workload take all checks in a real worker, anything else is run as a script."""
    skip_without(block.frameworks)
    path = folder / "block.py"
    path.write_text(block.text)

    if "@strategy(" in block.text:
        pergrad("check", str(path), "--workload", "policy")
    elif "def losses(" in block.text:
        name = "torch/func-vmap" if "torch" in block.frameworks else "numpy/autograd-loop"
        pergrad("check", name, "--workload", str(path))
    else:
        python(str(path))


@of_language("toml")
def test_every_piece_of_toml_can_be_read(block: Block) -> None:
    assert tomllib.loads(block.text)


def test_no_block_is_left_without_a_test() -> None:
    # A tree of folders, which has no language, is looked at below.
    languages = {str(block): block.language for block in BLOCKS}

    assert {name for name, language in languages.items() if language not in ("bash", "python", "toml", "")} == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_every_link_to_a_file_leads_to_one(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text(encoding="utf-8"))

    assert [target for target in targets if not (document.parent / target).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_every_path_in_the_text_exists(document: Path) -> None:
    folders = "|".join(path.name for path in ROOT.iterdir() if path.is_dir())
    named = re.findall(rf"`((?:{folders})/[\w./-]*)`", document.read_text(encoding="utf-8"))
    written = {"strategies/torch/my_idea.py"}  # by a command that is shown

    assert {path for path in named if not (ROOT / path).exists()} - written == set()


def test_every_document_is_reachable_from_the_readme() -> None:
    linked = set(re.findall(r"\]\((docs/[^)]+)\)", (ROOT / "README.md").read_text()))

    assert linked == {f"docs/{document.name}" for document in (ROOT / "docs").glob("*.md")}


def test_the_list_of_rooms_names_exactly_those_that_exist() -> None:
    (tree,) = [block.text for block in blocks(ROOT / "CONTRIBUTING.md") if not block.language]
    inside = set(re.findall(r"(?<= )(\w+)/", tree))
    outside = set(re.findall(r"^([\w.]+)/", tree, re.MULTILINE))

    rooms = {path.parent.name for path in (ROOT / "harness").glob("*/__init__.py")}
    assert inside - {"reports"} == rooms
    assert {name for name in outside if not (ROOT / name).is_dir()} == set()


def test_the_catalogue_is_that_of_the_strategies() -> None:
    own = [strategy for strategy in find_strategies.discover().strategies if FOLDER in strategy.path.parents]

    page = (ROOT / "docs" / "catalogue.md").read_text(encoding="utf-8")

    assert page == build_catalogue["markdown"](own) + "\n", (
        "make it anew: python docs/build_catalogue.py > docs/catalogue.md"
    )
