"""The HTML report in headless Chromium: no console error; search, sorting, linking, keys, themes.

Needs Debian's `chromium` and `chromium-driver` (which `.ci/run` installs); skipped elsewhere.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import regdem
from regdem.binary import Cubin, Kernel
from regdem.report.html import html_report
from regdem.report.inspection import inspect_kernel

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DATA = Path(__file__).parent / "data"


def kernels() -> list[Kernel]:
    paths = ("unroll/variance_unrolled", "neighbour/neighbour")
    return [Cubin.parse((EXAMPLES / f"{p}.cubin").read_bytes()).kernels[0] for p in paths]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chosen = kernels()
    reports = [inspect_kernel(kernel, 256) for kernel in chosen]
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html_report("two kernels <&>", chosen, reports, [{0: "LDC R1 <>"}, {}]))
    return path


class _Parser(HTMLParser):
    void = frozenset({"meta", "link", "input", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.external: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        if tag not in self.void:
            self.open.append(tag)
        if names.get("id"):
            self.ids.append(names["id"] or "")
        for key in ("src", "href"):
            value = names.get(key) or "#"
            if not value.startswith(("#", "data:")):
                self.external.append(value)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.void:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


def test_page_is_well_formed_and_self_contained(page: Path) -> None:
    parser = _Parser()
    text = page.read_text()
    parser.feed(text)
    assert parser.open == []
    assert len(parser.ids) == len(set(parser.ids)), "ids are unique"
    assert parser.external == []
    assert "two kernels &lt;&amp;&gt;" in text
    data = re.search(r'id="data">(.*?)</script>', text)
    assert data is not None
    columns = json.loads(data.group(1))["kernels"][0]
    assert columns["text"][0] == "LDC R1 <>"
    lengths = {len(columns[key]) for key in ("text", "live", "control", "depth", "line")}
    assert lengths == {kernels()[0].instruction_count}


def test_the_same_kernel_twice_has_ids_of_its_own() -> None:
    twice = [kernels()[1]] * 2
    parser = _Parser()
    parser.feed(html_report("x", twice, [inspect_kernel(kernel) for kernel in twice], [{}, {}]))
    assert len(parser.ids) == len(set(parser.ids))


def test_without_the_disassembler_registers_are_shown(page: Path) -> None:
    data = re.search(r'id="data">(.*?)</script>', page.read_text())
    assert data is not None
    texts: list[str] = json.loads(data.group(1))["kernels"][1]["text"]
    assert any(re.search(r"FFMA  writes R\d+  reads R\d+, R\d+, R\d+", text) for text in texts)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1300,1000"):
        options.add_argument(argument)
    options.add_argument("--disable-dev-shm-usage")
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    instance = webdriver.Chrome(
        options=options, service=webdriver.ChromeService(executable_path=driver)
    )
    yield instance
    instance.quit()


@pytest.fixture
def opened(browser: Any, page: Path) -> Iterator[Any]:
    """The page freshly loaded; afterwards nothing may stand in the console."""
    browser.get("about:blank")
    browser.get(page.as_uri())
    yield browser
    assert browser.get_log("browser") == []


def visible_section(browser: Any) -> Any:
    sections = browser.find_elements("css selector", "section.kernel")
    (shown,) = [section for section in sections if section.is_displayed()]
    return shown


def current(browser: Any) -> dict[str, str]:
    """The current row: read in one step, since scrolling draws the rows anew."""
    script = """
      const row = document.querySelector('section.kernel:not([hidden]) .row.current');
      return row && {i: row.dataset.i, id: row.id, text: row.innerText,
                     offset: row.querySelector('.off').textContent};
    """
    return browser.execute_script(script)


def test_first_kernel_is_shown_with_its_listing(opened: Any) -> None:
    section = visible_section(opened)
    assert section.get_attribute("id") == "kernel-0"
    rows = section.find_elements("css selector", ".row")
    assert 20 < len(rows) < 200, "only the visible rows are drawn"
    assert "stall" in section.find_element("css selector", ".listing").text
    assert section.find_elements("css selector", "svg.curve path.area")
    assert section.find_elements("css selector", "svg.curve path.blocks")


def test_search_finds_and_steps(opened: Any) -> None:
    section = visible_section(opened)
    field = section.find_element("css selector", "input[type=search]")
    opened.find_element("css selector", "body").send_keys("/")
    assert opened.switch_to.active_element == field
    field.send_keys("spill store")
    found = section.find_element("css selector", "output").text
    assert re.fullmatch(r"1 of 16 found", found)
    first = current(opened)["i"]
    field.send_keys("\n")
    assert int(current(opened)["i"]) > int(first)
    assert "spill store" in current(opened)["text"]


def test_tables_sort_both_ways(opened: Any) -> None:
    table = opened.find_element("css selector", "#kernels")
    button = table.find_elements("css selector", "th button")[1]
    heading = table.find_elements("css selector", "th")[1]

    def registers() -> list[int]:
        cells = table.find_elements("css selector", "tbody tr td:nth-child(2)")
        return [int(cell.text) for cell in cells]

    button.click()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert registers() == [48, 64]
    button.click()
    assert heading.get_attribute("aria-sort") == "descending"
    assert registers() == [64, 48]


def test_source_lines_link_both_ways(opened: Any) -> None:
    section = visible_section(opened)
    link = section.find_elements("css selector", "[data-source]")[5]
    index = link.get_attribute("data-source")
    opened.execute_script("arguments[0].click()", link)
    row = section.find_element("css selector", f'[data-line-row="{index}"]')
    assert row.get_attribute("aria-current") == "true"
    marked = section.find_elements("css selector", ".row.sameline")
    assert marked
    script = """
      const button = arguments[0].querySelector('.row:not(.sameline) button.line');
      const line = button.dataset.line;
      button.click();
      return line;
    """
    wanted = opened.execute_script(script, section)
    row = section.find_element("css selector", f'[data-line-row="{wanted}"]')
    assert row.get_attribute("aria-current") == "true"


def test_offsets_lead_into_the_listing(opened: Any) -> None:
    section = visible_section(opened)
    link = section.find_element("css selector", "h3 [data-goto]")
    opened.execute_script("arguments[0].click()", link)
    assert current(opened)["i"] == link.get_attribute("data-goto")
    assert current(opened)["offset"] == link.text


def test_keys_move_in_the_listing(opened: Any) -> None:
    section = visible_section(opened)
    box = section.find_element("css selector", ".listing")
    box.send_keys("\ue010")  # End
    count = kernels()[0].instruction_count
    assert current(opened)["i"] == str(count - 1)
    assert box.get_attribute("aria-activedescendant") == current(opened)["id"]
    box.send_keys("\ue011\ue015")  # Home, ArrowDown
    assert current(opened)["i"] == "1"


def test_second_kernel_by_link(opened: Any) -> None:
    opened.find_element("css selector", '#kernels a[href="#kernel-1"]').click()
    section = visible_section(opened)
    for _ in range(50):  # the page follows its address in an event of its own
        if section.get_attribute("id") == "kernel-1":
            break
        time.sleep(0.1)
        section = visible_section(opened)
    assert section.get_attribute("id") == "kernel-1"
    assert "pair_forces" in section.text
    assert section.find_elements("css selector", ".row")


def test_dark_and_light(opened: Any) -> None:
    def background() -> str:
        script = "return getComputedStyle(document.body).backgroundColor"
        return opened.execute_script(script)

    before = background()
    opened.find_element("css selector", "#theme").click()
    assert background() != before
    opened.find_element("css selector", "#theme").click()
    assert background() == before


def test_twenty_thousand_instructions_scroll(browser: Any, tmp_path: Path, page: Path) -> None:
    """The columns of a kernel repeated to 20,000 rows: drawing stays proportional to the window."""
    text = page.read_text()
    data = re.search(r'id="data">(.*?)</script>', text)
    assert data is not None
    value = json.loads(data.group(1))
    columns = value["kernels"][0]
    times = -(-20_000 // len(columns["live"]))
    for key in ("text", "live", "control", "depth", "line"):
        columns[key] = columns[key] * times
    big = tmp_path / "big.html"
    packed = json.dumps(value).replace("<", "\\u003c")
    big.write_text(text[: data.start(1)] + packed + text[data.end(1) :])
    browser.get(big.as_uri())
    section = visible_section(browser)
    script = """
      const box = arguments[0].querySelector('.listing'), start = performance.now();
      for (let k = 0; k < 50; k++) {
        box.scrollTop = k * 8000;
        box.dispatchEvent(new Event('scroll'));
      }
      return performance.now() - start;
    """
    assert browser.execute_script(script, section) < 10_000  # on a busy machine, too
    assert len(section.find_elements("css selector", ".row")) < 200
    field = section.find_element("css selector", "input[type=search]")
    field.send_keys("STL")
    assert " found" in section.find_element("css selector", "output").text
    assert browser.get_log("browser") == []


@pytest.fixture(scope="module")
def demoted() -> Kernel:
    """The neighbour example with values demoted to slots."""
    (kernel,) = Cubin.parse((EXAMPLES / "neighbour" / "neighbour.cubin").read_bytes()).kernels
    return regdem.demote(kernel, registers=40, threads=256).kernel


def _page_of(kernel: Kernel, path: Path) -> dict[str, Any]:
    report = inspect_kernel(kernel, 256, predict=False)
    path.write_text(html_report("one", [kernel], [report], [{}]))
    data = re.search(r'id="data">(.*?)</script>', path.read_text())
    assert data is not None
    return json.loads(data.group(1))["kernels"][0]


def test_slots_and_spills_are_marked(demoted: Kernel, tmp_path: Path) -> None:
    """A rewrite's slots, and ptxas's spills in shared and in local memory, are told apart."""
    (shared,) = Cubin.parse((DATA / "shared_spills.cubin").read_bytes()).kernels
    local = kernels()[0]
    words = {
        name: {mark for _, mark in _page_of(kernel, tmp_path / f"{name}.html")["marks"]}
        for name, kernel in (("demoted", demoted), ("shared", shared), ("local", local))
    }
    assert words["demoted"] == {"slot store (shared, demoted)", "slot load (shared, demoted)"}
    assert words["shared"] == {
        "spill store (shared, by ptxas)",
        "spill load (shared, by ptxas)",
    }
    assert words["local"] == {"spill store (local, by ptxas)", "spill load (local, by ptxas)"}


def test_marks_can_be_read_in_both_themes(browser: Any, demoted: Kernel, tmp_path: Path) -> None:
    path = tmp_path / "demoted.html"
    columns = _page_of(demoted, path)
    browser.get(path.as_uri())
    options = browser.find_elements("css selector", ".filter option")
    next(option for option in options if option.get_attribute("value") == "slot").click()
    found = browser.find_element("css selector", "output").text
    assert f"of {len(columns['marks'])} found" in found
    script = """
      const cell = document.querySelector('.row .slot'), style = getComputedStyle(cell);
      return [style.color, getComputedStyle(document.body).backgroundColor, cell.textContent];
    """
    for _ in range(2):
        colour, ground, text = browser.execute_script(script)
        assert "slot" in text
        assert _contrast(colour, ground) > 4.5, "readable, as WCAG asks"
        browser.find_element("css selector", "#theme").click()
    assert browser.get_log("browser") == []


def _contrast(one: str, other: str) -> float:
    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
