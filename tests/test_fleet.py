"""A fleet, as far as no machine is needed for it: kinds, versions, prices, what travels, what is refused."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from harness.cli.app import app
from harness.core import find_strategies
from harness.core.find_workloads import find
from harness.core.task import Task
from harness.fleet import files, kinds
from harness.fleet.kinds import FleetError, Machine
from harness.runner.look import Look
from harness.runner.one_heat import Heat

GIB = 1 << 30
CARD = {
    "processor": "AMD EPYC 7763 64-Core Processor",
    "architecture": "x86_64",
    "cores_physical": 4,
    "cores_logical": 8,
    "cores_available": 8,
    "memory_bytes": 32 * GIB,
    "gpus": None,
    "python": "3.11.9",
}
LOOK = Look(("cpu",), CARD, (), {}, {"jax": "0.10.1"}, {}, {})


def machine(name: str, pergrad: str = "0.1.0+1", versions: dict[str, str] | None = None, **card: object) -> Machine:
    look = replace(LOOK, machine={**CARD, **card}, versions=versions or LOOK.versions)
    return Machine(f"tcp://{name}", name, pergrad, look, (), 10, tuple(range(8)))


def test_machines_that_differ_in_nothing_that_matters_are_one_kind() -> None:
    found = kinds.kinds([machine("b"), machine("a", memory_bytes=32 * GIB + 5000), machine("c", cores_available=4)])

    assert [[one.name for one in kind.machines] for kind in found] == [["a", "b"], ["c"]]
    assert [kind.label for kind in found] == ["epyc-7763-64-core-8-cores-32-gib", "epyc-7763-64-core-4-cores-32-gib"]
    assert len({kind.resource for kind in found}) == 2


def test_kinds_that_look_alike_have_labels_of_their_own() -> None:
    found = kinds.kinds([machine("a"), machine("b", versions={"jax": "0.11.0"})])

    assert [kind.label for kind in found] == [
        "epyc-7763-64-core-8-cores-32-gib-1",
        "epyc-7763-64-core-8-cores-32-gib-2",
    ]


def test_dask_workers_of_one_host_share_its_memory() -> None:
    (kind,) = kinds.kinds([machine("host/0"), machine("host/1"), machine("other")])

    assert kind.most_workers == 5


def test_differing_versions_are_refused_with_a_sentence_that_names_them() -> None:
    machines = [machine("a"), machine("b"), machine("c", versions={"jax": "0.11.0"})]

    with pytest.raises(FleetError, match=r"jax 0\.10\.1 \(a, b\) and 0\.11\.0 \(c\).*--across-versions"):
        kinds.refuse_other_versions(machines, "0.1.0+1", across_versions=False)
    kinds.refuse_other_versions(machines, "0.1.0+1", across_versions=True)


def test_another_pergrad_than_here_is_refused() -> None:
    with pytest.raises(FleetError, match=r"pergrad 0\.1\.0\+2 \(here\) and 0\.1\.0\+1 \(a\)"):
        kinds.refuse_other_versions([machine("a")], "0.1.0+2", across_versions=False)


def test_a_price_is_for_the_one_kind_whose_label_has_the_words() -> None:
    found = kinds.kinds([machine("a"), machine("b", cores_available=4)])

    assert kinds.price_of({"4-cores": 0.42}, found) == {"epyc-7763-64-core-4-cores-32-gib": 0.42}
    with pytest.raises(FleetError, match="several of the kinds"):
        kinds.price_of({"epyc": 1.0}, found)
    with pytest.raises(FleetError, match="none of the kinds"):
        kinds.price_of({"xeon": 1.0}, found)


def test_cores_that_a_machine_lacks_are_refused() -> None:
    with pytest.raises(FleetError, match="a has 0,1,2,3,4,5,6,7"):
        kinds.refuse_missing_cores([machine("a")], (7, 8))


def heat_of(plugin: str, source: str) -> Heat:
    task = Task("numpy/x", "numpy", plugin, "w", "gradients", "cpu", "float32", (4,), 1, {4: "/here"}, 0, 60.0, 1.0)
    return Heat("1 1 cpu default", (replace(task, source=source),), "numpy/x", 0.02, "0 1 0")


def test_a_heat_is_the_same_after_its_way_as_json() -> None:
    heat = heat_of("module:attribute", "policy")

    assert Heat.from_json(heat.as_json()) == heat


def test_what_lies_beside_a_plugin_travels_and_is_found_where_it_arrives(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "package").mkdir(parents=True)
    (here / "package" / "__init__.py").write_text("SIZE = 3\n")
    (here / "beside.py").write_text("from package import SIZE\n")
    (here / "numbers.txt").write_text("4")
    (here / "my_model.py").write_text(
        '"""A model."""\nfrom pathlib import Path\nimport numpy as np\nfrom beside import SIZE\n'
        "FOUR = int((Path(__file__).parent / 'numbers.txt').read_text())\n"
        "def parameters(rng): return {'w': np.ones((SIZE, FOUR))}\n"
        "def batch(rng, size): return {'x': np.ones((size, SIZE))}\n"
        "def losses(ops, parameters, batch): return ops.sum(batch['x'] @ parameters['w'], axis=1)\n"
    )
    source = find(here / "my_model.py").source
    travelling = files.travelling(heat_of("module:attribute", source))
    carried, left = files.pack([source])
    for path in sorted(here.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()

    files.unpack(carried, there)

    (task,) = Heat.from_json(travelling.as_json()).tasks
    arrived = find(files.here(task.source, there))
    assert not left
    assert arrived.name == "my-model"
    assert arrived.initial_parameters(0)["w"].shape == (3, 4)
    assert str(tmp_path) not in str(travelling.as_json())


def test_pergrads_own_strategies_are_found_in_another_checkout() -> None:
    plugin = find_strategies.discover().find("jax/vmap").plugin
    (task,) = files.travelling(heat_of(plugin, "policy")).tasks

    assert not task.plugin.startswith("/")
    assert files.here(task.plugin, Path("/nowhere")) == str(Path(plugin).resolve())
    assert (task.source, task.references) == ("policy", {})


def test_what_is_too_large_stays_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST", 3)
    (tmp_path / "plugin.py").write_text("a=1")
    (tmp_path / "data.bin").write_bytes(b"1234")

    carried, left = files.pack([str(tmp_path / "plugin.py")])

    assert [Path(name).name for name in carried] == ["plugin.py"]
    assert left == [str(tmp_path / "data.bin")]


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(st.sampled_from("abcd"), st.binary(max_size=4)), st.sampled_from("abcd"))
def test_a_digest_tells_files_apart(contents: dict[str, bytes], name: str) -> None:
    changed = {**contents, name: contents.get(name, b"") + b"!"}

    assert files.digest(contents) == files.digest(dict(reversed(contents.items())))
    assert files.digest(contents) != files.digest(changed)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--each"], "so give --cluster too"),
        (["--price", "epyc=0.42"], "so give --cluster too"),
        (["--cluster", "nowhere"], "give local:2 for a first try"),
        (["--cluster", "local:1", "--price", "epyc=cheap"], "what an hour costs"),
        (["--cluster", "local:1", "--each", "--spread"], "give one of them"),
        (["--cluster", "local:1", "--python", f"jax={sys.executable}"], "where the Dask workers are started"),
        (["--cluster", "local:1", "--resume", "x", "--each"], "--each cannot be given with it"),
    ],
)
def test_what_does_not_go_together_is_refused_in_a_sentence(
    options: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PERGRAD_PYTHON_JAX",):
        monkeypatch.setenv(name, "")
    result = CliRunner().invoke(app, ["run", *options], env={"COLUMNS": "200"})

    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())


def test_without_a_cluster_nothing_of_dask_is_imported() -> None:
    code = (
        "import sys; from harness.cli.app import app\n"
        "try: app(['run', '--strategy', 'nothing/of-that-name'])\n"
        "except SystemExit: pass\n"
        "assert not {'dask', 'distributed'} & set(sys.modules)"
    )

    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
