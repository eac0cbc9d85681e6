"""What a reader's browser makes of the pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.conftest import Visit

Open = Callable[..., Visit]

SHIFT = """() => new Promise(done => {
  let total = 0;
  new PerformanceObserver(list => list.getEntries().forEach(entry => { total += entry.value; }))
    .observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(total), 300);
})"""

UNNAMED = """() => [...document.querySelectorAll("img, svg")].filter(image =>
  !image.getAttribute("alt") && !(image.getAttribute("role") === "img" && image.getAttribute("aria-label"))).length"""


def rows(visit: Visit, column: int = 1, table: str = "[data-table]") -> list[str]:
    """The first line of a column's visible cells."""
    script = """([table, column]) => [...document.querySelectorAll(`${table} tbody tr`)].filter(row => !row.hidden)
        .map(row => row.cells[column - 1].innerText.split("\\n")[0].trim())"""
    found: list[str] = visit.page.evaluate(script, [table, column])
    return found


def column(visit: Visit, title: str) -> int:
    """The position of a heading, from 1."""
    titles = visit.page.locator("[data-table] thead th").all_inner_texts()
    return 1 + next(position for position, text in enumerate(titles) if text.startswith(title))


def test_a_page_asks_for_nothing_and_complains_about_nothing(visit: Open, address: str) -> None:
    found = visit(address)

    assert found.requests == [address]
    assert found.problems == []


@pytest.mark.parametrize("width", [360, 1000, 1600])
def test_a_page_never_scrolls_sideways(visit: Open, address: str, width: int) -> None:
    assert visit(address, width).page.evaluate("document.documentElement.scrollWidth") <= width


def test_nothing_moves_after_the_first_paint(visit: Open, address: str) -> None:
    assert visit(address).page.evaluate(SHIFT) < 0.01


def test_every_image_has_a_text(visit: Open, address: str) -> None:
    assert visit(address).page.evaluate(UNNAMED) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(visit: Open, address: str, scheme: str) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is not installed; use tox -e browser"
    )
    found = visit(address, color_scheme=scheme)

    results = axe.Axe().run(found.page)

    assert results.violations_count == 0, results.generate_report()


def test_without_javascript_the_table_is_complete(visit: Open, pages: dict[str, Path]) -> None:
    found = visit(pages["normal"].as_uri(), java_script_enabled=False)

    assert found.page.locator("[data-table] tbody tr:visible").count() == 35
    assert found.page.locator(".controls:visible, .picks:visible").count() == 0


def test_a_click_on_a_heading_sorts_by_number_and_another_turns_it_round(visit: Open, pages: dict[str, Path]) -> None:
    # given a table whose times have several units, and one case without a time
    found = visit(pages["normal"].as_uri())
    position = column(found, "time per call")
    heading = found.page.locator(f"[data-table] thead th:nth-child({position})")
    # when its heading is clicked once, and once more
    heading.locator("button").click()
    up, direction = rows(found, position), heading.get_attribute("aria-sort")
    heading.locator("button").click()
    down = rows(found, position)
    # then the fastest stands first, then the slowest, and what has no time is last in both
    assert direction == "ascending"
    assert up[0].endswith("µs")
    assert down[0].endswith("ms")
    assert up[-1] == down[-1] == "no time"
    assert up[:-1] == down[-2::-1]


def test_slower_counts_as_less_than_faster(visit: Open, pages: dict[str, Path]) -> None:
    found = visit(pages["normal"].as_uri())
    position = column(found, "against the baseline")
    found.page.locator(f"[data-table] thead th:nth-child({position}) button").click()

    values = rows(found, position)

    assert "slower" in values[0]
    assert "faster" in values[-2]


def test_filters_leave_what_was_asked_for_and_say_how_much_that_is(visit: Open, pages: dict[str, Path]) -> None:
    found = visit(pages["normal"].as_uri())
    found.page.get_by_label("framework").select_option("=tf2")
    assert set(rows(found)) == {"tf2/jacobian", "tf2/vectorized-map"}
    assert found.page.locator("output").inner_text() == "10 of 35 cases"

    found.page.get_by_label("strategy contains").fill("JACOB")
    assert set(rows(found)) == {"tf2/jacobian"}

    found.page.get_by_label("framework").select_option("")
    found.page.get_by_label("strategy contains").fill("")
    found.page.get_by_label("status").select_option(label="↷ skipped")
    assert rows(found) == ["tf1/unstack"]


def test_a_picked_line_stands_out_and_is_named(visit: Open, pages: dict[str, Path]) -> None:
    # given a figure in which most of 35 lines are grey
    found = visit(pages["ugly"].as_uri())
    figure = found.page.locator("figure[data-chart]").first
    button = figure.get_by_role("button", name="odd/strategy-30")
    # when one of those is picked by keyboard
    button.focus()
    found.page.keyboard.press("Enter")
    # then it is on, it has its name, and another press takes both back
    assert button.get_attribute("aria-pressed") == "true"
    assert figure.locator(".line.on").count() > 0
    assert figure.locator("text.name").all_text_contents() == ["odd/strategy-30"]
    button.click()
    assert figure.locator(".line.on, text.name").count() == 0


def test_hostile_names_in_buttons_and_filters_stay_text(visit: Open, pages: dict[str, Path]) -> None:
    found = visit(pages["ugly"].as_uri())

    assert found.page.locator("button img, option img, label script").count() == 0
    assert found.page.evaluate("document.scripts.length") == 1


def test_on_paper_the_whole_table_is_there(visit: Open, pages: dict[str, Path]) -> None:
    found = visit(pages["normal"].as_uri())
    found.page.emulate_media(media="print")

    box = found.page.locator(".tall")

    assert box.evaluate("box => box.clientHeight === box.scrollHeight")
    assert found.page.locator(".controls:visible, nav:visible").count() == 0
