"""A real browser for the tests in this folder: Debian's chromium, driven by Playwright; without either they skip."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness import report
from harness.analysis.compare import compare
from harness.report.html import comparison
from tests import made_runs

SAMPLE = Path(__file__).parents[2] / "reports" / "sample" / "index.html"

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]

PAGES = ("normal", "quantities", "ugly", "two runs", "comparison", "sample")


@dataclass
class Visit:
    """An open page, and what it has done since it was opened."""

    page: Any
    problems: list[str] = field(default_factory=list)
    """Console errors and exceptions."""
    requests: list[str] = field(default_factory=list)
    """Addresses it asked for, itself first."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One chromium for all tests."""
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; use `tox -e browser`")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is not installed; `apt-get install chromium`")
    with driver.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every kind of page that pergrad writes, by name."""
    folder = tmp_path_factory.mktemp("pages")
    normal = made_runs.normal(folder / "results" / "normal")
    later = made_runs.normal(folder / "results" / "later", passes=2)
    return {
        "normal": report.write([normal], folder / "normal"),
        "quantities": report.write([made_runs.quantities(folder / "results" / "all")], folder / "quantities"),
        "ugly": report.write([made_runs.ugly(folder / "results" / "ugly")], folder / "ugly"),
        "two runs": report.write([normal, later], folder / "two"),
        "comparison": comparison.write(compare(normal, later), folder / "comparison"),
        "sample": SAMPLE,
    }


@pytest.fixture(params=PAGES)
def address(request: pytest.FixtureRequest, pages: dict[str, Path]) -> str:
    """Each of those pages; the sample only where it has been made."""
    path = pages[request.param]
    if not path.exists():
        pytest.skip("there is no reports/sample yet")
    return path.as_uri()


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    """A function that opens an address and notes what the page does: (address, width, **context) -> Visit."""
    contexts = []

    def open_page(address: str, width: int = 1000, **options: Any) -> Visit:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        found = Visit(context.new_page())
        found.page.on("console", lambda m: found.problems.append(m.text) if m.type in ("error", "warning") else None)
        found.page.on("pageerror", lambda error: found.problems.append(str(error)))
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.goto(address)
        return found

    yield open_page
    for context in contexts:
        context.close()
