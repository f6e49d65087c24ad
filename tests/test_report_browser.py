"""The HTML report in headless Chromium: what a reader can do with it, from a file, at any width.

Needs Debian's packages `chromium` and `chromium-driver`, and selenium.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gbfix.migrate.summary import fragments_of
from gbfix.report.html import page
from tests.generators_migration import outcome
from tests.test_report_migration import hostile

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="chromium and chromium-driver are not installed"
)

_ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
_FILES = 5_000
_MOST_SECONDS = 5.0
"""What opening a report of 5,000 files may take on a busy machine; on an idle one it is below one."""


class Browser:
    """A driver with the questions that the tests ask."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path, fragment: str = "") -> None:
        self.driver.get("about:blank")
        self.driver.get(path.as_uri() + fragment)
        self.wait("document.documentElement.dataset.ready === 'true'")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: str) -> None:
        """Wait until an expression of JavaScript is true."""
        from selenium.webdriver.support.wait import WebDriverWait

        WebDriverWait(self.driver, 10, 0.02).until(lambda _: self.run(f"return {condition}"))

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0]).textContent", selector))

    def choose(self, selector: str, value: str) -> None:
        self.run(
            "const s = document.querySelector(arguments[0]); s.value = arguments[1];"
            "s.dispatchEvent(new Event('change'))",
            selector, value,
        )  # fmt: skip

    def look(self, width: int, *, dark: bool = False) -> None:
        """Emulate a screen of a width, in pixels, and the reader's preference."""
        metrics = {"width": width, "height": 812, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        # Smooth scrolling would move what the driver is about to click.
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme, still]})


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in _ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield Browser(driver)
    driver.quit()


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """The browser; afterwards nothing must have been complained of, nor asked of a network."""
    chromium.look(1280)
    chromium.driver.get_log("browser")
    yield chromium
    assert chromium.driver.get_log("browser") == []
    assert chromium.run("return performance.getEntriesByType('resource').map((r) => r.name)") == []


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a migration of 150 files."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page(outcome(150)), encoding="ascii")
    return path


def test_totals_and_sections(browser: Browser, report: Path) -> None:
    totals = outcome(150).totals
    browser.open(report)
    assert browser.text("h1") == "vision_models"
    assert f"{totals.fixed:,} fixed" in browser.text("#totals")
    assert len(browser.all("#totals .bar-row")) == len(totals.by_code)
    assert len(browser.all("#entries > .rows > .row")) == 6
    assert "could not be processed" in browser.text("#declined")


def test_filters_narrow_files_and_say_so(browser: Browser, report: Path) -> None:
    given = outcome(150)
    browser.open(report)
    wanted = [f for f in given.files if any(s.code == "GBF103" for s in f.sites)]
    browser.choose("#by-code", "GBF103")
    assert browser.text("#files .count").startswith(f"{len(wanted)} of 150 files")
    assert "code=GBF103" in browser.driver.current_url
    wanted = [
        f for f in wanted
        if any(s.code == "GBF103" and s.fix and s.fix.safety == "unsafe" for s in f.sites)
    ]  # fmt: skip
    browser.choose("#by-safety", "unsafe")
    assert browser.text("#files .count").startswith(f"{len(wanted)} of 150 files")
    browser.all(".active .quiet")[0].click()
    assert browser.text("#files .count").startswith("150 files")
    browser.choose("#by-verdict", "verified")
    verified = sum(file.verdict == "verified" for file in given.files)
    assert browser.text("#files .count").startswith(f"{verified} of 150 files")
    assert len(browser.all("#entries > .rows > .row")) == verified


def test_search_finds_words_of_paths_and_diffs(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.all("#q")[0].send_keys("loss torch.where")
    expected = [f for f in outcome(150).files if "loss" in f.path and "torch.where" in f.diff]
    found = f"document.querySelector('#files .count').textContent.startsWith('{len(expected)} of')"
    browser.wait(found)
    browser.all("#q")[0].clear()
    browser.all("#q")[0].send_keys("no such thing")
    browser.wait("document.querySelector('#files .empty')")


def test_a_link_carries_the_filters(browser: Browser, report: Path) -> None:
    browser.open(report, "#state=withheld")
    withheld = outcome(150).totals.withheld
    assert browser.text("#files .count").startswith(f"{withheld} of 150 files")


def test_diffs_are_drawn_when_opened_by_keyboard(browser: Browser, report: Path) -> None:
    browser.open(report)
    assert browser.all("#files table.diff") == []
    summary = browser.all("#files .row > summary")[0]
    browser.run("arguments[0].focus()", summary)
    summary.send_keys("\ue007")
    browser.wait("document.querySelector('#files table.diff')")
    signs = [cell.text for cell in browser.all("#files table.diff .new .sign")]
    assert signs and set(signs) == {"+"}
    assert "torch.where(" in browser.text("#files table.diff .new .code")
    numbers = "document.querySelector('#files table.diff .new .num:not(:empty)')"
    height = browser.run(f"return {numbers}.offsetHeight")
    browser.run(f"{numbers}.textContent = '1234567'")
    assert browser.run(f"return {numbers}.offsetHeight") == height
    assert browser.all("#files .row .sites li")


def test_entries_count_fragments_as_the_totals_do(browser: Browser, report: Path) -> None:
    browser.open(report)
    shown = browser.run(
        "return [...document.querySelectorAll('#entries .figures')].map((e) => "
        "[...e.querySelectorAll('b')].map((b) => Number(b.textContent)))"
    )
    fragments = fragments_of(outcome(150).checked)
    assert fragments is not None
    assert [sum(side) for side in zip(*shown, strict=True)] == [fragments.before, fragments.after]


def test_graphs_of_an_entry_show_what_cut_them(browser: Browser, report: Path) -> None:
    one = outcome(150).checked[0]
    assert one.before is not None
    browser.open(report)
    browser.all("#entries .row > summary")[0].click()
    browser.wait("document.querySelector('#entries .lane')")
    before, after = browser.all("#entries .row[open] .lane")
    pieces = before.find_elements("css selector", ".fragment:not(.skipped)")
    assert len(pieces) == len(one.before.fragments)
    assert len(before.find_elements("css selector", ".cut")) == len(one.before.breaks)
    assert one.before.breaks[0].reason in before.text
    assert len(after.find_elements("css selector", ".fragment")) == 1


def test_map_leads_into_folders_and_files(browser: Browser, report: Path) -> None:
    browser.open(report)
    assert len(browser.all(".treemap .cell")) > 20
    browser.all("#map .bars .bar-row")[0].click()
    folder = browser.text("#map [aria-current]")
    assert folder.startswith("family_")
    inside = sum(f"/{folder}/" in file.path for file in outcome(150).files)
    assert browser.text("#files .count").startswith(f"{inside} of 150 files")
    browser.all("#map .crumbs button")[0].click()
    assert browser.text("#files .count").startswith("150 files")
    # In the "before" view, nothing of a cell has the colour of what is fixed.
    browser.all("#map .switch:last-child button")[0].click()
    cell = browser.all(".treemap .cell:not(.head)")[0]
    assert cell.value_of_css_property("background-image") == "none"
    # The other measure: what was seen by running, in the files that were run.
    browser.all("#map .switch:first-child button")[1].click()
    breaks = outcome(150).totals.breaks
    assert breaks is not None
    assert f"{breaks.before}" in browser.text("#map h3")
    assert browser.all("#map .bars .bar-row")[0].is_displayed()


@pytest.mark.parametrize("width", [390, 1280])
def test_no_number_of_the_map_is_cut(browser: Browser, tmp_path: Path, width: int) -> None:
    browser.look(width)
    path = tmp_path / "report.html"
    path.write_text(page(outcome(300)), encoding="ascii")
    browser.open(path)
    cut = browser.run(
        "return [...document.querySelectorAll('.cell .n')].filter((n) => "
        "n.scrollWidth > n.clientWidth || n.getBoundingClientRect().right > "
        "n.parentElement.getBoundingClientRect().right).map((n) => n.textContent)"
    )
    assert browser.all(".cell .n") and cut == []


def test_figures_of_files_stand_below_each_other(browser: Browser, report: Path) -> None:
    browser.open(report)
    lefts = browser.run(
        "return [...document.querySelectorAll('#files .row-marks .split')]"
        ".map((bar) => Math.round(bar.getBoundingClientRect().left))"
    )
    assert len(lefts) > 10 and len(set(lefts)) == 1


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [375, 1280])
def test_fits_any_width_and_can_be_read(
    browser: Browser, report: Path, width: int, dark: bool
) -> None:
    browser.look(width, dark=dark)
    browser.open(report)
    browser.run(
        "for (const row of [...document.querySelectorAll('.row')].slice(0, 12)) row.open = true"
    )
    browser.wait("document.querySelector('#files table.diff')")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run(_CONTRASTS) == []


# The texts whose colour against what is behind them is below 4.5 to 1, as WCAG AA asks. Backgrounds
# of several colours are left out.
_CONTRASTS = """
const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
const painted = (colours) => {
  canvas.clearRect(0, 0, 1, 1);
  for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const luminance = (rgb) => {
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = rgb.slice(0, 3).map((v) => linear(v / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const found = new Set();
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
  if (element.closest('.sr, .skip, script, option')) continue;
  const behind = [];
  let mixed = false;
  for (let e = element; e; e = e.parentElement) {
    const style = getComputedStyle(e);
    mixed = mixed || style.backgroundImage !== 'none';
    behind.unshift(style.backgroundColor);
  }
  if (mixed) continue;
  const colour = getComputedStyle(element).color;
  const [a, b] = [luminance(painted(behind)), luminance(painted([...behind, colour]))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) found.add(`${element.tagName}.${element.className} ${ratio.toFixed(2)}`);
}
return [...found];
"""


def test_everything_that_can_be_used_has_a_name(browser: Browser, report: Path) -> None:
    browser.open(report)
    nameless = browser.run(
        "return [...document.querySelectorAll('button, select, input, a, summary')].filter("
        "(e) => !e.closest('[aria-hidden]') && !e.hidden && !(e.getAttribute('aria-label')"
        " || e.textContent.trim() || e.labels?.length)).map((e) => e.outerHTML)"
    )
    assert nameless == []
    levels = browser.run("return [...document.querySelectorAll('h1,h2,h3')].map((h) => h.tagName)")
    assert levels[0] == "H1" and levels.count("H1") == 1


def test_hostile_text_stays_text(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page(hostile()), encoding="ascii")
    browser.open(path)
    browser.run("for (const row of document.querySelectorAll('.row')) row.open = true")
    browser.wait("document.querySelector('#files table.diff')")
    assert browser.all("img, iframe, [onerror]") == []
    assert len(browser.all("script")) == 2
    assert "onerror=alert(1)" in browser.text("#files table.diff")
    # What would turn the direction of the text around is shown as what it is.
    assert "U+202E" in browser.text("#files table.diff .new")


def test_thousands_of_files_open_fast(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page(outcome(_FILES, checked=200)), encoding="ascii")
    browser.open(path)
    loaded = browser.run("return performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000
    assert loaded < _MOST_SECONDS
    assert browser.run("return document.getElementsByTagName('*').length") < 15_000
    filtered = browser.run(
        "const from = performance.now(); const s = document.querySelector('#by-code');"
        "s.value = 'GBF103'; s.dispatchEvent(new Event('change'));"
        "document.body.offsetHeight; return (performance.now() - from) / 1000"
    )
    assert filtered < 1.0
    print(f"{_FILES} files: loaded in {loaded:.2f} s, filtered in {filtered:.3f} s")
