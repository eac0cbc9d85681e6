"""What a reader of the report may rely on."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import report
from harness.analysis import formats
from harness.analysis import panels as grouped
from harness.analysis.panels import Panel
from harness.analysis.statistics import Interval
from harness.core import store
from harness.core.records import Measurement, Status
from harness.core.store import Run
from harness.report.data import answer, captions, sections, sources, tables
from harness.report.figures import drawing, labels, theme
from harness.report.html import page
from tests import made_runs
from tests.made_runs import failed, ok

BASE = "tf1/session-loop"
VOID = {"meta", "br", "img", "hr", "link", "input", "wbr"}


SIGHT = {
    "full": np.eye(3),
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
"""Machado, Oliveira and Fernandes, "A physiologically-based model for simulation of color vision deficiency"
(2009), severity 1, for linear RGB."""


class Reader(HTMLParser):
    """Reads a page as a browser does, and keeps what the tests ask about."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.cells: list[str] = []
        self.unbalanced: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID and (not self.open or self.open.pop() != tag):
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data

    def attributes(self, *names: str) -> list[str]:
        return [values[name] for _, values in self.tags for name in names if name in values]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="module")
def normal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("normal")
    return report.write([made_runs.normal(folder / "results" / "made")], folder / "reports" / "made")


@pytest.fixture(scope="module")
def ugly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ugly")
    return report.write([made_runs.ugly(folder / "results" / "made")], folder / "reports" / "made")


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("empty")
    return report.write([made_runs.empty(folder / "results" / "made")], folder / "reports" / "made")


@pytest.fixture(params=["normal", "ugly", "empty"])
def any_page(request: pytest.FixtureRequest) -> Reader:
    index: Path = request.getfixturevalue(request.param)
    return read(index)


def read(index: Path) -> Reader:
    return Reader(index.read_text(encoding="utf-8"))


def panel_of(*rows: Measurement) -> Panel:
    (panel,) = grouped.panels([Run(Path("made"), {"baseline": BASE}, rows)])
    return panel


def around(nanoseconds: int) -> list[int]:
    return [nanoseconds + step * nanoseconds // 1000 for step in range(-5, 6)]


class TestPage:
    def test_it_opens_with_the_answer_made_from_the_numbers(self, normal: Path) -> None:
        html = normal.read_text(encoding="utf-8")
        heading = Reader(html[html.index("<h1>") : html.index("</h1>") + 5]).text.replace("\u00a0", " ")

        assert re.fullmatch(
            r"For policy at batch size 256, use jax/vmap ?: [\d.]+ µs per call, "
            r"[\d,]+ times faster \[[\d,]+, [\d,]+\] than tf1/session-loop\.",
            heading,
        )

    def test_every_case_is_in_the_table_with_its_status_as_word_and_sign(self, normal: Path) -> None:
        text = read(normal).text

        assert text.count("✓ ok") == 34 + 1  # 34 cases, and the explanation of the word
        assert "↷ skipped" in text
        assert "B=64 took 8.1 s to build" in text

    def test_no_cell_is_blank(self, any_page: Reader) -> None:
        assert [cell for cell in any_page.cells if not cell.strip()] == []

    def test_it_loads_nothing_and_runs_only_its_own_script(self, any_page: Reader) -> None:
        # given the tags of a page
        loading = {"link", "iframe", "object", "embed", "img", "source", "audio", "video", "base", "form"}
        scripts = [values for tag, values in any_page.tags if tag == "script"]
        # then none of them fetches, the only script is the page's own, and no attribute runs
        assert not loading & {tag for tag, _ in any_page.tags}
        assert scripts == [{}]
        assert not [name for _, values in any_page.tags for name in values if name.startswith("on")]
        assert all(re.match(r"https?://|#|[\w./%-]+$", address) for address in any_page.attributes("href"))
        assert all(address.startswith("#") for address in any_page.attributes("xlink:href"))

    def test_its_tags_are_balanced_and_its_ids_unique(self, any_page: Reader) -> None:
        ids = any_page.attributes("id")

        assert any_page.unbalanced == []
        assert any_page.open == []
        assert len(ids) == len(set(ids))

    def test_links_within_the_page_lead_somewhere(self, any_page: Reader) -> None:
        anchors = {address[1:] for address in any_page.attributes("href") if address.startswith("#")}

        assert anchors <= set(any_page.attributes("id"))

    def test_it_can_be_used_without_seeing_it(self, any_page: Reader) -> None:
        tags = [tag for tag, _ in any_page.tags]
        levels = [int(tag[1]) for tag in tags if re.fullmatch(r"h[1-6]", tag)]
        images = [values for tag, values in any_page.tags if tag == "svg"]
        regions = [values for _, values in any_page.tags if values.get("role") == "region"]

        assert dict(any_page.tags)["html"] == {"lang": "en"}
        assert {"header", "nav", "main", "footer", "title"} <= set(tags)
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
        assert all(image["role"] == "img" and image["aria-label"] for image in images)
        assert all(region["tabindex"] == "0" and region["aria-label"] for region in regions)

    def test_pictures_are_described_by_their_numbers(self, normal: Path) -> None:
        labels = [values["aria-label"] for tag, values in read(normal).tags if tag == "svg"]

        assert len(labels) == 2
        assert "jax/vmap 72.6 µs" in labels[0]
        assert "tf1/unstack at batch size 64: build 7 s" in labels[1]

    def test_gaps_are_named_below_the_figures(self, normal: Path) -> None:
        assert "Not shown: tf1/unstack at batch size 256 (skipped)." in read(normal).text

    def test_a_workload_on_which_nothing_is_ok_has_a_section_that_says_so(self, ugly: Path) -> None:
        text = read(ugly).text

        assert "No strategy has a time on hopeless, so there is nothing to recommend" in text
        assert "there is nothing to draw" in text

    def test_hostile_text_is_shown_as_text(self, ugly: Path) -> None:
        html = ugly.read_text(encoding="utf-8")

        assert html.lower().count("<script") == 1  # the page's own
        assert "<script>alert" not in html.lower()
        assert "<img" not in html.lower()
        assert "{{ 7*7 }}" in read(ugly).text  # a docstring is no template
        assert 'href="javascript' not in html

    def test_hostile_text_in_the_files_of_figures_is_text_too(self, ugly: Path) -> None:
        files = list(ugly.parent.glob("*.svg"))

        assert files
        for file in files:
            tags = {element.tag for element in ElementTree.parse(file).iter()}  # well-formed, too
            assert not [tag for tag in tags if tag.endswith(("script", "img", "foreignObject"))]

    def test_huge_error_texts_do_not_make_the_page_huge(self, ugly: Path) -> None:
        assert ugly.stat().st_size < 2_000_000

    def test_a_run_without_rows_gives_a_page_that_says_so(self, empty: Path) -> None:
        assert "Nothing was measured in this run" in read(empty).text

    def test_how_it_was_measured_and_how_to_repeat_it_is_on_the_page(self, normal: Path) -> None:
        text = read(normal).text

        for word in ("AMD EPYC 9R14", "2.13.0", "pergrad run --batch-size", "16 GB", "intra 2, inter 1", "noise floor"):
            assert word in text

    def test_the_source_of_each_strategy_is_there_and_highlighted(self, normal: Path) -> None:
        html = normal.read_text(encoding="utf-8")

        assert html.count("return</span>") >= 7
        assert 'class="n">problem</span>' not in html  # what has no colour takes no place either
        assert "strategies/jax/vmap.py" in html

    def test_figures_and_table_lie_beside_the_page(self, normal: Path) -> None:
        names = {file.name for file in normal.parent.iterdir()}
        figures = {f"policy-{kind}.{ending}" for kind in ("time", "first-call") for ending in ("png", "svg")}

        assert names == {"index.html", "summary.md", *page.CSV_FILES} | figures
        assert sum(file.stat().st_size for file in normal.parent.iterdir()) < 1_000_000

    def test_raw_data_nearby_is_linked_and_far_away_is_only_named(self, tmp_path: Path, normal: Path) -> None:
        # given a report beside its run, and one whose path to the run would tell how the machine is laid out
        far = tmp_path / "a" / "b" / "c" / "d" / "e"
        index = report.write([made_runs.empty(tmp_path / "run")], far)
        # then only the near one links to it
        assert "../../results/made/measurements.jsonl" in read(normal).attributes("href")
        assert not [address for address in read(index).attributes("href") if ".." in address]

    def test_the_same_run_gives_the_same_page(self, tmp_path: Path) -> None:
        run = made_runs.normal(tmp_path / "run", passes=1)

        pages = [report.write([run], tmp_path / name).read_bytes() for name in ("one", "two")]

        assert pages[0] == pages[1]

    def test_two_runs_stand_side_by_side(self, tmp_path: Path) -> None:
        runs = [made_runs.normal(tmp_path / name, passes=1, rounds=5) for name in ("first", "second")]

        text = read(report.write(runs, tmp_path / "report")).text

        assert "run first and second" in text
        assert "gradients, cpu, float32, run second" in text

    def test_the_reading_half_loads_no_framework(self) -> None:
        code = "import sys, harness.report; print({'tensorflow', 'jax', 'torch'} & set(sys.modules))"

        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

        assert found.stdout.strip() == "set()"

    def test_no_run_at_all_is_said_by_name(self, tmp_path: Path) -> None:
        with pytest.raises(store.StoreError, match="not a run"):
            report.write([tmp_path / "nowhere"], tmp_path / "report")


class TestAnswer:
    def test_two_strategies_that_cannot_be_told_apart_are_named_together(self) -> None:
        found = answer.recommend(
            panel_of(
                ok(BASE, 4, 1, around(90_000)), ok("jax/vmap", 4, 1, around(1000)), ok("torch/vmap", 4, 1, around(1001))
            )
        )

        assert found.supported
        assert (
            "use jax/vmap or torch/vmap (they cannot be told apart): 1 µs per call, 90 times faster" in found.sentence
        )

    def test_it_is_withheld_where_all_strategies_are_alike(self) -> None:
        found = answer.recommend(panel_of(ok(BASE, 4, 1, around(1000)), ok("jax/vmap", 4, 1, around(1005))))

        assert not found.supported
        assert "the 2 strategies that have a time cannot be told apart" in found.sentence

    def test_it_is_withheld_where_the_gain_over_the_baseline_is_below_the_noise_floor(self) -> None:
        rows = [ok(name, 4, 1, around(time)) for name, time in (("jax/vmap", 1000), (BASE, 1100), ("torch/slow", 9000))]

        found = answer.recommend(panel_of(*rows))

        assert not found.supported
        assert "1.1 times [0.888, 1.36], does not clearly exceed the noise floor of 20 %" in found.sentence

    def test_it_is_withheld_where_one_call_is_all_there_is(self) -> None:
        found = answer.recommend(panel_of(ok(BASE, 4, 1, [9000]), ok("jax/vmap", 4, 1, [1000])))

        assert not found.supported
        assert "one timed call says nothing about noise" in found.sentence

    def test_a_baseline_without_a_time_is_named_with_its_status(self) -> None:
        rows = [failed(BASE, 4, 1, Status.TIMEOUT, "60 s"), ok("jax/vmap", 4, 1, around(1000))]

        assert "tf1/session-loop has no time to compare with (timeout)" in answer.recommend(panel_of(*rows)).sentence

    def test_a_baseline_that_wins_is_recommended(self) -> None:
        rows = [ok(BASE, 4, 1, around(1000)), ok("jax/vmap", 4, 1, around(9000))]

        assert (
            "use tf1/session-loop: 1 µs per call, the baseline, which nothing here beats"
            in answer.recommend(panel_of(*rows)).sentence
        )

    def test_wrong_numbers_are_never_recommended_however_fast(self) -> None:
        wrong = failed("jax/wrong", 4, 1, Status.DISAGREES, "0 digits", samples_ns=(1, 1, 1), median_s=1e-9)

        found = answer.recommend(panel_of(ok(BASE, 4, 1, around(9000)), ok("jax/vmap", 4, 1, around(1000)), wrong))

        assert found.leaders == ("jax/vmap",)


class TestNumbers:
    @pytest.mark.parametrize(
        ("seconds", "text"),
        [
            (72e-6, "72 µs"),
            (1.3321e-3, "1.33 ms"),
            (999.6e-6, "1 ms"),
            (224.0, "224 s"),
            (3e-10, "0.3 ns"),
            (1e5, "100,000 s"),
        ],
    )
    def test_times_have_a_unit_and_at_most_three_digits(self, seconds: float, text: str) -> None:
        assert formats.duration(seconds) == text

    def test_ratios_have_a_direction_and_an_interval(self) -> None:
        assert formats.speedup(Interval(1911, 1722, 2081)) == "1,910 times faster [1,720, 2,080]"
        assert formats.speedup(Interval(0.5, 0.4, 0.8), short=True) == "2× slower [1.25, 2.5]"
        assert formats.speedup(Interval(2.0, None, None)) == "2 times faster [no interval]"

    def test_an_interval_shares_its_unit_if_it_can(self) -> None:
        assert formats.duration_interval(70e-6, 75e-6) == "[70, 75] µs"
        assert formats.duration_interval(990e-6, 1.1e-3) == "[990 µs, 1.1 ms]"

    @given(st.floats(min_value=1e-10, max_value=1e6))
    def test_a_time_is_read_back_to_half_a_percent(self, seconds: float) -> None:
        value, unit = formats.duration(seconds).replace(",", "").split(" ")

        assert float(value) * {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1}[unit] == pytest.approx(seconds, rel=5.1e-3)

    @given(st.text(), st.integers(min_value=1, max_value=80))
    def test_clipped_text_is_one_short_line(self, text: str, length: int) -> None:
        found = formats.clipped(text, length)

        assert len(found) <= length
        assert found.isprintable()


class TestFigures:
    @given(st.lists(st.floats(min_value=-1, max_value=2), max_size=40), st.floats(min_value=0.001, max_value=0.2))
    def test_labels_never_overlap_and_stay_within_the_figure(self, wanted: list[float], gap: float) -> None:
        placed = labels.spread(wanted, gap, 0.0, 1.0)

        room = min(gap, 1 / max(1, len(wanted) - 1))
        assert all(-1e-9 <= y <= 1 + 1e-9 for y in placed)
        assert all(after - before >= room - 1e-9 for before, after in itertools.pairwise(sorted(placed)))
        ranks = sorted(range(len(wanted)), key=lambda index: (wanted[index], index))
        assert [placed[index] for index in ranks] == sorted(placed)

    def test_labels_that_fit_are_left_where_they_are(self) -> None:
        assert labels.spread([0.9, 0.1, 0.5], 0.1, 0.0, 1.0) == pytest.approx([0.9, 0.1, 0.5])

    @given(st.floats(min_value=1e-10, max_value=1e4), st.floats(min_value=1.6, max_value=1e9))
    def test_a_log_axis_has_two_to_a_dozen_round_ticks_within_its_limits(self, low: float, span: float) -> None:
        ticks = drawing.decades(low, low * span)

        assert all(low <= tick <= low * span for tick in ticks)
        assert 2 <= len(ticks) <= 12

    def test_follow_the_readers_theme(self, normal: Path) -> None:
        svg = (normal.parent / "policy-time.svg").read_text(encoding="utf-8")
        drawn = svg[svg.index("</style>") :]

        assert "prefers-color-scheme: dark" in svg
        assert not re.findall(r"(?:fill|stroke): #[0-9a-f]{6}", drawn)

    def test_of_35_strategies_label_the_leading_ones_and_say_how_many_are_grey(self, ugly: Path) -> None:
        assert "25 more strategies are grey; all are in the table." in read(ugly).text

    def test_many_gaps_are_counted_instead_of_named(self) -> None:
        rows = [failed(f"x/{number}", 4, 1, Status.ERROR, "no") for number in range(30)]

        assert captions.gaps(panel_of(*rows).cases).endswith("; 18 more are in the table.")


class TestColours:
    GROUNDS = ("ground", "panel")
    TEXTS = (
        "ink",
        "muted",
        "accent",
        "good",
        "bad",
        "warn",
        "hue-tf1",
        "hue-tf2",
        "hue-jax",
        "hue-torch",
        "hue-numpy",
        "hue-other",
    )

    @pytest.mark.parametrize("colours", [theme.LIGHT, theme.DARK], ids=["light", "dark"])
    def test_every_text_has_a_contrast_of_4_5_on_every_ground(self, colours: dict[str, str]) -> None:
        assert [
            (text, ground)
            for text in self.TEXTS
            for ground in self.GROUNDS
            if contrast(colours[text], colours[ground]) < 4.5
        ] == []

    @pytest.mark.parametrize("sight", SIGHT)
    @pytest.mark.parametrize("colours", [theme.LIGHT, theme.DARK], ids=["light", "dark"])
    def test_frameworks_differ_for_colour_blind_readers(self, colours: dict[str, str], sight: str) -> None:
        hues = [np.clip(np.array(SIGHT[sight]) @ linear(colours[f"hue-{name}"]), 0, 1) for name in FRAMEWORKS]

        assert min(distance(one, other) for one, other in itertools.combinations(hues, 2)) > 15

    def test_strategies_of_one_framework_differ_without_colour(self) -> None:
        found = theme.looks((f"jax/{number}", "jax") for number in range(20))

        assert len({(look.marker, look.dash) for look in found.values()}) == 20


FRAMEWORKS = ("tf1", "tf2", "jax", "torch", "numpy")


def linear(colour: str) -> np.ndarray:
    """Linear RGB of a hexadecimal colour (IEC 61966-2-1)."""
    values = np.array([int(colour[start : start + 2], 16) for start in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """Contrast ratio of WCAG 2."""
    low, high = sorted(float(np.dot([0.2126, 0.7152, 0.0722], linear(colour))) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """CIE 1976 colour difference of two linear RGB colours."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    labs = []
    for colour in (one, other):
        x, y, z = np.cbrt(to_xyz @ colour / np.array([0.9505, 1.0, 1.089]) + 1e-9)
        labs.append(np.array([116 * y, 500 * (x - y), 200 * (y - z)]))
    return float(np.linalg.norm(labs[0] - labs[1]))


def test_a_report_leaves_the_backend_of_a_notebook_as_it_is(tmp_path: Path) -> None:
    """In a process of its own, in which nothing has drawn yet."""
    run = made_runs.normal(tmp_path / "run", passes=1)
    code = (
        "import matplotlib; matplotlib.use('svg'); from harness import report; from pathlib import Path; "
        f"report.write([Path({str(run)!r})], Path({str(tmp_path / 'page')!r})); print(matplotlib.get_backend())"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stdout.split() == ["svg"], done.stderr
    assert list((tmp_path / "page").rglob("*.png"))


def test_no_cell_of_a_csv_file_is_a_formula(tmp_path: Path) -> None:
    reasons = ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "a reason", ""]
    tables.to_csv(pd.DataFrame({"reason": reasons, "time_s": [-1.5, 2, 3, 4, 5, 6, None]}), tmp_path / "cases.csv")

    found = pd.read_csv(tmp_path / "cases.csv", keep_default_na=False)

    assert list(found["reason"]) == [f"'{reason}" for reason in reasons[:5]] + reasons[5:]
    assert found["time_s"][0] == "-1.5"


def test_docstrings_flow_again_and_lists_keep_their_lines() -> None:
    found = sources.paragraphs("One\nsentence.\n\nTwo\nlines.\n\n- a\n- b\n")

    assert found == ["One sentence.", "Two lines.", "- a\n- b"]


def test_text_in_backticks_is_code_and_only_http_addresses_are_links() -> None:
    found = sources.prose("`vmap` of https://docs.jax.dev/x, not javascript:alert(1)")

    assert [piece.text for piece in found if piece.code] == ["vmap"]
    assert [piece.address for piece in found if piece.address] == ["https://docs.jax.dev/x"]


def test_file_names_of_panels_are_safe_and_unique() -> None:
    rows = [ok(BASE, 4, 1, around(9), workload=name) for name in ("../../etc", "a b", "a-b", "<script>", "...")]

    stems = sections.stems(grouped.panels([Run(Path("made"), {}, tuple(rows))]))

    assert len(set(stems)) == 5
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9-]*", stem) for stem in stems)


def test_dimensions_that_differ_become_columns_and_the_others_are_said_once() -> None:
    rows = [ok(BASE, 4, 1, around(9), device=device) for device in ("cpu", "gpu")]
    panels = grouped.panels([Run(Path("made"), {}, tuple(rows))])

    assert tables.varying(panels) == ["device"]
    assert ("dtype", "float32") in tables.shared(panels)
    assert [line.dimensions for line in tables.lines(panels)] == [("cpu",), ("gpu",)]


def test_of_too_many_cases_the_page_has_the_fastest_and_what_failed_and_says_where_the_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "made"
    store.create(folder, {})
    for workload in ("one", "two"):
        for strategy, milliseconds in ((BASE, 9), ("jax/vmap", 1), ("jax/scan", 4)):
            store.append(folder, ok(strategy, 4, 1, around(milliseconds), workload=workload))
        for strategy, status in (("torch/wrong", Status.DISAGREES), ("torch/absent", Status.UNAVAILABLE)):
            store.append(folder, failed(strategy, 4, 1, status, "why", workload=workload))
    monkeypatch.setattr(tables, "MOST_LINES", 4)

    index = report.write([folder], tmp_path / "report")

    lines = tables.lines(grouped.panels([store.load(folder)]))
    assert [line.strategy for line in lines] == ["jax/vmap", "jax/scan", "torch/wrong"] * 2
    assert "6 of 10 cases: the fastest strategies of each condition, and all that failed" in read(index).text
    assert len(pd.read_csv(index.parent / page.CASES_FILE)) == 10


def test_where_a_run_has_two_devices_every_sentence_and_table_names_its_own(tmp_path: Path) -> None:
    index = report.write([made_runs.two_devices(tmp_path / "made")], tmp_path / "report")
    page = index.read_text(encoding="utf-8")

    assert "at batch size 64 on the CPU, use jax/vmap" in text_of(page)
    assert "at batch size 64 on the GPU, use torch/func-vmap" in text_of(page)
    assert len(re.findall("<h3>Run made on the CPU</h3>", page)) == 2  # what to use, and the claims
    assert len(re.findall("<h3>Run made on the GPU</h3>", page)) == 2
    assert "not yet verified on a GPU" in page
    assert "The NVIDIA driver on your system is too old" in page
    assert {line.split(",")[0] for line in (index.parent / "claims.csv").read_text().splitlines()[1:]} == {
        "made on the CPU",
        "made on the GPU",
    }


def test_a_run_on_the_cpu_alone_names_no_device_and_says_nothing_of_gpus(tmp_path: Path) -> None:
    page = report.write([made_runs.normal(tmp_path / "made")], tmp_path / "report").read_text(encoding="utf-8")

    assert "on the CPU, use" not in text_of(page)
    assert "verified on a GPU" not in page


def text_of(page: str) -> str:
    return " ".join(re.sub("<[^>]+>", "", page).split())
