"""The reports of a migration: what they hold, and that no text from outside becomes markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gbfix.cli import migration_reports
from gbfix.cli.main import app
from gbfix.errors import UserError
from gbfix.migrate.outcome import Error, MigratedFile, Outcome
from gbfix.report.html import page
from gbfix.report.markdown import summary
from tests.generators_migration import outcome, with_totals

HOSTILE = "</script><script>alert(1)</script><!--<script><img src=x onerror=alert(1)>&amp;\u2028]]>"


class _Page(HTMLParser):
    """The tags of a page, and the text of its scripts and styles, as a browser splits them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = dict(attrs).get("id") or tag

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        self.texts[self._open] = self.texts.get(self._open, "") + data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def hostile() -> Outcome:
    """An outcome in which all that a user's code can decide is an attack."""
    given = outcome(6)
    files = tuple(_hostile(file) for file in given.files)
    errors = (Error(f"{HOSTILE}.py", HOSTILE), Error("odd\udc80name.py", "it is not readable."))
    return with_totals(replace(given, root=f"/tmp/{HOSTILE}", files=files, errors=errors))


def _hostile(file: MigratedFile) -> MigratedFile:
    sites = tuple(
        replace(site, message=f"{HOSTILE} `{HOSTILE}`", function=HOSTILE) for site in file.sites
    )
    diff = (
        f"--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@ {HOSTILE}\n-{HOSTILE}\n+x = 1  # \u202e\n {HOSTILE}\n"
    )
    return replace(file, path=f"{HOSTILE}{file.path}", sites=sites, diff=diff, reason=HOSTILE)


def _data(text: str) -> Any:
    return json.loads(_Page(text).texts["data"])


def test_page_holds_the_whole_outcome() -> None:
    given = outcome(12)
    data = _data(page(given))
    assert data["project"] == "vision_models"
    assert [file["path"] for file in data["files"]] == [file.path for file in given.files]
    assert data["totals"]["sites"] == given.totals.sites
    for shipped, file in zip(data["files"], given.files, strict=True):
        assert shipped.get("diff", "") == file.diff
        for site, original in zip(shipped.get("sites", ()), file.sites, strict=True):
            reasons = [data["reasons"][index] for index in site.get("refusals", ())]
            assert [r["sentence"] for r in reasons] == [r.sentence for r in original.refusals]
            offers = [data["offers"][index] for index in site.get("offers", ())]
            assert [o["reason"] for o in offers] == [o.reason for o in original.offers]


def test_what_was_not_measured_is_not_zero() -> None:
    given = outcome(3, checked=1)
    before = given.checked[0].before
    assert before is not None
    one = replace(given.checked[0], before=replace(before, left_out=None, fullgraph=False))
    shipped = _data(page(replace(given, checked=(one,))))["checked"][0]["before"]
    assert "left_out" not in shipped
    assert shipped["fullgraph"] is False
    assert shipped["recompiles"] == before.recompiles


def test_text_from_outside_never_becomes_markup() -> None:
    harmless, attacked = _Page(page(outcome(6))), _Page(page(hostile()))
    names = [tag for tag, _ in harmless.tags]
    assert [tag for tag, _ in attacked.tags] == names
    assert attacked.count("script") == 2
    assert not any(key.startswith("on") for _, held in attacked.tags for key in held)
    data = json.loads(attacked.texts["data"])
    assert data["files"][0]["path"].startswith(HOSTILE)
    assert data["errors"][0]["sentence"] == HOSTILE


def test_page_is_ascii_and_asks_for_nothing() -> None:
    for text in (page(outcome(3)), page(hostile())):
        assert text.isascii()
        parsed = _Page(text)
        links = [v for _, held in parsed.tags for k, v in held.items() if k in ("src", "href")]
        assert links == ["#files"]
        assert not re.search(r"@import|url\(", parsed.texts["style"])


def test_policy_allows_exactly_the_script_and_style_of_the_page() -> None:
    parsed = _Page(page(hostile()))
    policy = next(
        held["content"] or ""
        for tag, held in parsed.tags
        if tag == "meta" and held.get("http-equiv") == "Content-Security-Policy"
    )
    digests = {
        name: base64.b64encode(hashlib.sha256(parsed.texts[name].encode()).digest()).decode()
        for name in ("script", "style")
    }
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digests['style']}'; "
        f"script-src 'sha256-{digests['script']}'"
    )


@pytest.mark.parametrize(
    "forbidden", ["innerHTML", "outerHTML", "insertAdjacent", "eval(", "fetch("]
)
def test_scripts_never_parse_markup_or_load_anything(forbidden: str) -> None:
    assert forbidden not in _Page(page(outcome(1))).texts["script"]


def test_thousands_of_files_stay_small() -> None:
    text = page(outcome(1000, checked=20))
    assert len(text) < 6_000_000


def test_summary_says_the_figures() -> None:
    given = outcome(40)
    text = summary(given)
    totals = given.totals
    assert f"**{totals.fixed} of {totals.sites} break sites fixed**" in text
    assert f"| break sites, found by reading | {totals.sites} | {totals.left} |" in text
    assert totals.breaks is not None
    assert f"| graph breaks, in what was run | {totals.breaks.before} | 0 |" in text
    assert "`models/broken.py`: line 3 cannot be parsed: unexpected indent." in text
    assert text.count("<details>") == text.count("</details>")


def test_a_site_without_reasons_has_a_fix_that_was_not_asked_for() -> None:
    given = outcome(1, seed=3)
    sites = tuple(replace(site, fix=None, refusals=()) for site in given.files[0].sites)
    file = replace(given.files[0], sites=sites)
    text = summary(with_totals(replace(given, files=(file,))))
    assert f"`fix not taken`, {len(sites)} times; most often: What is on offer" in text


def test_summary_of_nothing_run_says_so() -> None:
    given = outcome(10, checked=0)
    text = summary(replace(given, policy=replace(given.policy, verify=False)))
    assert "Nothing was run to verify them." in text
    assert "graph breaks" not in text


def test_summary_fits_a_comment_and_closes_what_it_opens() -> None:
    given = outcome(300)
    long = tuple(replace(file, path=f"{'deep/' * 900}{file.path}") for file in given.files)
    text = summary(replace(given, files=long))
    assert len(text) < 65_536
    assert text.count("<details>") == text.count("</details>")
    assert text.endswith("The rest is in the HTML report.\n")


def test_summary_escapes_text_from_outside() -> None:
    text = summary(hostile())
    outside_code = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert "<script" not in outside_code.replace("\\<", "")
    assert "<img" not in outside_code.replace("\\<", "")
    for line in text.splitlines():
        assert "alert(1)" not in line or not line.startswith("<")


def test_reports_are_written_where_asked(tmp_path: Path) -> None:
    given = outcome(3)
    report, short = tmp_path / "report.html", tmp_path / "summary.md"
    migration_reports.write(given, report, None)
    assert report.read_text() == page(given)
    assert not short.exists()
    migration_reports.write(given, None, short)
    assert short.read_text() == summary(given)


def test_a_report_without_a_place_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="its folder does not exist"):
        migration_reports.check_places(None, tmp_path / "missing" / "report.html")
    with pytest.raises(UserError, match="is a folder"):
        migration_reports.check_places(tmp_path)
    migration_reports.check_places(None, tmp_path / "report.html")


def test_migrate_writes_its_reports(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    source = "import torch\n\n\n@torch.compile\ndef f(x):\n    print(x.sum())\n    return x\n"
    (folder / "model.py").write_text(source)
    report, short = tmp_path / "report.html", tmp_path / "summary.md"
    arguments = ["migrate", str(folder), "--no-verify", "--require", "review", "--dry-run"]
    result = CliRunner().invoke(app, [*arguments, "--report", str(report), "--summary", str(short)])
    assert result.exit_code == 0, result.output
    data = _data(report.read_text())
    assert data["project"] == "project"
    assert [(file["path"], file["state"]) for file in data["files"]] == [("model.py", "planned")]
    assert "-    print(x.sum())" in data["files"][0]["diff"]
    assert "1 of 1 break site could be fixed" in short.read_text()
    assert (folder / "model.py").read_text() == source
