"""How strategies and workloads are found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.core import find_strategies, find_workloads
from harness.core.plugins import PluginError
from harness.core.strategy import strategy

SEVEN = {
    "tf1/session-loop",
    "tf1/unstack",
    "tf1/concurrent-sessions",
    "tf2/jacobian",
    "tf2/vectorized-map",
    "jax/vmap",
    "torch/func-vmap",
}


def write_plugin(folder: Path, name: str, body: str = "return lambda batch: {}") -> Path:
    path = folder / f"{name}.py"
    path.write_text(
        "from harness import strategy\n\n\n"
        '@strategy(framework="numpy")\n'
        f'def {name}(problem):\n    """A plugin."""\n    {body}\n'
    )
    return path


def test_the_seven_strategies_of_the_question_are_found() -> None:
    assert set(find_strategies.discover().names()) >= SEVEN


def test_a_name_is_framework_and_function_with_hyphens() -> None:
    @strategy(framework="torch")
    def my_own_idea(problem):  # type: ignore[no-untyped-def]
        """Idea."""

    assert my_own_idea.name == "torch/my-own-idea"


def test_finding_and_listing_loads_no_framework() -> None:
    script = (
        "import sys, pergrad; from harness import report; from harness.core import find_strategies, find_workloads; "
        "from harness.runner import execute; find_strategies.discover(); "
        "find_workloads.builtin(); print([m for m in ('tensorflow', 'jax', 'torch') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_a_plugin_file_from_elsewhere_is_found(tmp_path: Path) -> None:
    path = write_plugin(tmp_path, "elsewhere")

    assert find_strategies.discover([path]).find("numpy/elsewhere").path == path


def test_a_plugin_that_cannot_be_imported_is_listed_with_the_reason_and_stops_nobody(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("import a_package_that_nobody_has\n")

    catalogue = find_strategies.discover([path])

    (broken,) = catalogue.unavailable
    assert "a_package_that_nobody_has" in broken.reason
    assert {s.name for s in catalogue.strategies} >= SEVEN


def test_a_file_without_a_strategy_is_listed_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.write_text("")

    (empty,) = find_strategies.discover([path]).unavailable

    assert "decorate a function" in empty.reason


def test_a_workload_that_cannot_be_read_is_named_with_the_reason_and_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "workloads").mkdir()
    functions = "".join(f"def {name}(*given):\n    ...\n" for name in ("losses", "parameters", "batch"))
    for name, line in (("sound", ""), ("broken", "import a_package_that_nobody_has\n"), ("newer", "interface = 99\n")):
        (tmp_path / "workloads" / f"{name}.py").write_text(line + functions)
    (tmp_path / "workloads" / "empty.py").write_text("")
    monkeypatch.chdir(tmp_path)

    assert "sound" in {workload.name for workload in find_workloads.others()}
    reasons = find_workloads.unavailable()
    assert "a_package_that_nobody_has" in reasons["broken"]
    assert "written for version 99" in reasons["newer"]
    assert "lacks the function(s) losses" in reasons["empty"]


def test_planted_duplicate_name_is_an_error_that_names_both_files(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = write_plugin(tmp_path / "a", "twin"), write_plugin(tmp_path / "b", "twin")

    with pytest.raises(PluginError, match="numpy/twin") as error:
        find_strategies.discover([first, second])

    assert str(first) in str(error.value)
    assert str(second) in str(error.value)


STRATEGY = """
from pergrad import strategy


@strategy(framework="numpy")
def {name}(problem):
    \"\"\"Nothing.\"\"\"
    return lambda batch: {{}}
"""


def test_a_strategy_that_another_file_imports_is_found_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "first_idea.py").write_text(STRATEGY.format(name="first_idea"))
    (tmp_path / "second_idea.py").write_text(
        "from first_idea import first_idea\n" + STRATEGY.format(name="second_idea")
    )
    monkeypatch.syspath_prepend(tmp_path)

    found = find_strategies.discover([tmp_path / "second_idea.py", tmp_path / "first_idea.py"])

    names = [strategy.name for strategy in found.strategies if "idea" in strategy.name]
    assert names == ["numpy/first-idea", "numpy/second-idea"]


def test_of_the_current_folder_only_strategy_files_in_framework_folders_are_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("numpy", "notes"):
        (tmp_path / "strategies" / folder).mkdir(parents=True)
    trap = "open('executed', 'w').close()\n"
    (tmp_path / "strategies" / "notes" / "script.py").write_text(trap + STRATEGY.format(name="noted"))
    (tmp_path / "strategies" / "numpy" / "script.py").write_text(trap + "strategy = '@strategy'\n")
    (tmp_path / "strategies" / "numpy" / "mine.py").write_text(STRATEGY.format(name="mine"))
    monkeypatch.chdir(tmp_path)

    catalogue = find_strategies.discover()

    assert "numpy/mine" in catalogue.names()
    assert not {"numpy/noted", "numpy/script", "notes/script"} & set(catalogue.names())
    assert not (tmp_path / "executed").exists()


SCRIPT, MODULE = [str(Path(sys.executable).with_name("pergrad"))], [sys.executable, "-m", "pergrad"]
MEASURED = "--batch-size 3 --passes 1 --target 0.01s --workload policy --name x"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("list strategies", "numpy/outer-products"),
        ("check numpy/outer-products --workload policy", "numpy/outer-products: right"),
        (f"run --strategy numpy/outer-products {MEASURED}", "numpy/outer-products B=3 pass 1: ok"),
    ],
    ids=["list", "check", "run"],
)
@pytest.mark.parametrize("start", [SCRIPT, MODULE], ids=["script", "module"])
def test_files_of_the_current_folder_shadow_nothing(start: list[str], command: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "strategies").mkdir()
    names = ["harness", "report", "store", "strategies/__init__", "random", "numbers", "json", "numpy", "cpuinfo"]
    for name in [*names, "pergrad"] if start is SCRIPT else names:
        # Whoever catches the exit leaves the file behind nevertheless, in whichever process it was.
        trap = f"open({str(tmp_path / 'executed')!r}, 'a').write({name!r})\nraise SystemExit({name!r})\n"
        (tmp_path / f"{name}.py").write_text(trap)

    done = subprocess.run([*start, *command.split()], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert said in done.stdout + done.stderr
    assert not (tmp_path / "executed").exists(), (tmp_path / "executed").read_text()


def test_a_plugin_file_that_does_not_exist_is_said() -> None:
    with pytest.raises(PluginError, match=r"nowhere\.py does not exist"):
        find_strategies.discover([Path("nowhere.py")])


def test_an_unknown_strategy_suggests_the_nearest_name() -> None:
    with pytest.raises(PluginError, match="did you mean 'jax/vmap'"):
        find_strategies.discover().find("jax/vmapp")


def test_an_unknown_workload_suggests_the_nearest_name() -> None:
    with pytest.raises(PluginError, match="did you mean 'policy'"):
        find_workloads.find("polcy")


@pytest.mark.parametrize(
    ("keyword", "value"), [("framework", "caffe"), ("quantity", "hessians"), ("devices", ["abacus"])]
)
def test_a_keyword_outside_the_interface_is_refused_with_what_is_allowed(keyword: str, value: object) -> None:
    arguments = {"framework": "jax", keyword: value}

    with pytest.raises(PluginError, match="is not one of"):
        strategy(**arguments)  # type: ignore[arg-type]
