"""Code actions and the language server, as an editor uses them."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gbfix.analysis import read_files
from gbfix.analysis.modules import Module
from gbfix.analysis.read_files import ReadFiles
from gbfix.cli.main import main
from gbfix.editor.actions import actions_at, apply_action
from gbfix.editor.fixing import fix_all, line_edits
from gbfix.editor.positions import Position, offset_of, position_of, range_of
from gbfix.errors import UserError
from gbfix.settings import Settings
from gbfix.source.text import Edit, SourceFile

MODEL = """import torch
from torch import nn


class Block(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        s = "😀"; print("😀 largest", x.max()); y = x
        if x.sum() > 1:
            x = x * 2
        return x
"""


def model(text: str = MODEL) -> SourceFile:
    return SourceFile(Path("model.py"), text)


def edited(text: str, edits: list[dict[str, Any]]) -> str:
    """The text after LSP edits, applied the way an editor does: last one first."""
    source = model(text)
    for edit in sorted(edits, key=lambda e: e["range"]["start"]["line"], reverse=True):
        start = offset_of(source, Position(**edit["range"]["start"]))
        end = offset_of(source, Position(**edit["range"]["end"]))
        text = text[:start] + edit["newText"] + text[end:]
    return text


# Places


@pytest.mark.parametrize(("encoding", "column"), [("utf-16", 3), ("utf-8", 5), ("utf-32", 2)])
def test_columns_count_code_units(encoding: str, column: int) -> None:
    source = model("😀a = 1\r\nb")
    assert position_of(source, 2, encoding) == Position(0, column)
    assert offset_of(source, Position(0, column), encoding) == 2
    assert position_of(source, len(source.text), encoding) == Position(1, 1)


def test_a_place_inside_a_character_or_past_the_end_is_moved_to_a_real_one() -> None:
    source = model("😀a\nb")
    assert offset_of(source, Position(0, 1)) == 0
    assert offset_of(source, Position(0, 99)) == 2
    assert offset_of(source, Position(99, 0)) == len(source.text)


def test_form_feeds_and_separators_end_no_line() -> None:
    source = model("a\f\u2028b\nc")
    assert range_of(source, 3, 4).start == Position(0, 3)
    assert position_of(source, 5) == Position(1, 0)


# Actions


def test_actions_of_a_line_and_of_a_column() -> None:
    assert [a.finding.code for a in actions_at(model(), Settings(), (8, None)).actions] == [
        "GBF101"
    ] * len(actions_at(model(), Settings(), (8, None)).actions)
    assert [a.finding.code for a in actions_at(model(), Settings(), (7, 20)).actions] == ["GBF201"]
    assert actions_at(model(), Settings(), (1, None)).findings == ()


def test_an_action_gives_what_apply_gives() -> None:
    action = actions_at(model(), Settings(), (8, None)).actions[0]
    after = apply_action(model(), action)
    assert "torch.cond(" in after
    assert after.replace(
        after[after.index("        if torch") : after.index("        return")], ""
    ) == (MODEL.replace("        if x.sum() > 1:\n            x = x * 2\n", ""))


def test_new_lines_are_those_of_the_file() -> None:
    source = model(MODEL.replace("\n", "\r\n"))
    for action in actions_at(source, Settings(), None).actions:
        assert "\n" not in apply_action(source, action).replace("\r\n", "")
        assert all("\n" not in e.new_text.replace("\r\n", "") for e in action.edits)


def test_an_action_brings_the_import_it_needs() -> None:
    text = (
        "from torch import nn\n\n\nclass B(nn.Module):\n"
        "    def forward(self, x):\n        print(1)\n        return x\n"
    )
    (action,) = actions_at(model(text), Settings(), (6, None)).actions
    assert "import torch\n" in apply_action(model(text), action)


def test_fix_all_touches_only_lines_that_change() -> None:
    source = model()
    edits = fix_all(source, Settings())
    after = source.apply(edits)
    assert "is_compiling" in after and "torch.cond" in after
    assert all(edit.start >= MODEL.index("        s = ") for edit in edits)
    assert line_edits(source, MODEL) == ()


def test_a_buffer_that_does_not_parse_is_one_sentence() -> None:
    with pytest.raises(UserError, match="not valid Python at line 2"):
        actions_at(model("import torch\ndef f(:\n"), Settings())


# Command line


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def give(text: str) -> None:
        stream = SimpleNamespace(buffer=io.BytesIO(text.encode()))
        monkeypatch.setattr(sys, "stdin", stream)

    return give


def test_quickfix_prints_actions_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.py"
    path.write_text(MODEL, encoding="utf-8")
    assert main(["quickfix", f"{path}:7:20", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (action,) = document["actions"]
    assert (action["code"], action["safety"], action["transform"]) == ("GBF201", "review", "guard")
    assert action["title"] and action["explanation"]
    # The emoji before the call counts twice.
    end = action["edits"][0]["range"]["end"]
    assert end["character"] == len(MODEL.splitlines()[6].encode("utf-16-le")) // 2
    assert "is_compiling" in edited(MODEL, action["edits"])


def test_quickfix_reads_a_buffer_and_prints_it(
    stdin: Callable[[str], None], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    stdin(MODEL)
    assert main(["quickfix", "-:8", "--stdin-filename", "x/model.py", "--apply", "1"]) == 0
    assert b"torch.cond(" in capfdbinary.readouterr().out


def test_quickfix_applies_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(MODEL, encoding="utf-8")
    assert main(["quickfix", f"{path}:8", "--apply", "1"]) == 0
    assert "torch.cond(" in path.read_text(encoding="utf-8")


def test_quickfix_says_why_there_is_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.py"
    path.write_text(MODEL, encoding="utf-8")
    assert main(["quickfix", f"{path}:1"]) == 1
    assert capsys.readouterr().out == "No break site here.\n"
    assert main(["quickfix", f"{path}:8", "--apply", "9"]) == 2
    assert "there is no action 9" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["model.py", "model.py:x", "model.py:0", ":3", "3"])
def test_quickfix_refuses_what_is_no_place(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quickfix", place]) == 2
    assert place in capsys.readouterr().err


# Language server


def drive(
    talk: Callable[[Any, asyncio.Queue[Any]], Awaitable[None]], *, versions: bool = False
) -> None:
    """Start the server as an editor does, over its standard streams, and talk to it."""
    lsp = pytest.importorskip("lsprotocol.types")
    from pygls.lsp.client import LanguageClient

    async def run() -> None:
        client = LanguageClient("test", "1")
        published: asyncio.Queue[Any] = asyncio.Queue()

        @client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def diagnostics(params: Any) -> None:
            published.put_nowait(params)

        await client.start_io(sys.executable, "-m", "gbfix", "server")
        workspace = lsp.WorkspaceClientCapabilities(
            workspace_edit=lsp.WorkspaceEditClientCapabilities(document_changes=versions)
        )
        capabilities = lsp.ClientCapabilities(workspace=workspace)
        await client.initialize_async(lsp.InitializeParams(capabilities=capabilities))
        client.initialized(lsp.InitializedParams())
        await talk(client, published)
        await client.shutdown_async(None)
        client.exit(None)
        assert await asyncio.wait_for(client._server.wait(), 10) == 0
        await client.stop()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_server_follows_typing_and_offers_fixes(tmp_path: Path) -> None:
    lsp = pytest.importorskip("lsprotocol.types")
    uri = (tmp_path / "model.py").as_uri()
    text = MODEL.replace("\n", "\r\n")

    async def talk(client: Any, published: asyncio.Queue[Any]) -> None:
        client.text_document_did_open(
            lsp.DidOpenTextDocumentParams(lsp.TextDocumentItem(uri, "python", 1, text))
        )
        found = (await published.get()).diagnostics
        assert [d.code for d in found] == ["GBF201", "GBF101"]
        call = found[0].range
        line = text.split("\r\n")[6]
        units = line.encode("utf-16-le")
        shown = units[2 * call.start.character : 2 * call.end.character].decode("utf-16-le")
        assert shown == 'print("😀 largest", x.max())'

        document = lsp.TextDocumentIdentifier(uri)
        hover = await client.text_document_hover_async(lsp.HoverParams(document, call.start))
        assert "GB0059" in hover.contents.value and "guard" in hover.contents.value

        actions = await client.text_document_code_action_async(
            lsp.CodeActionParams(document, call, lsp.CodeActionContext(found))
        )
        quick = [a for a in actions if a.kind == "quickfix"]
        assert [a.is_preferred for a in quick] == [True]
        (every,) = [a for a in actions if a.kind == "source.fixAll.gbfix"]
        edits = every.edit.changes[uri]
        after = edited(text, [_plain(e) for e in edits])
        assert "torch.cond(" in after and "\n" not in after.replace("\r\n", "")

        client.text_document_did_change(_change(lsp, uri, 2, after))
        assert not (await published.get()).diagnostics

        # While the text is no Python, what was known stays; then it is right again.
        client.text_document_did_change(_change(lsp, uri, 3, text + "def ("))
        client.text_document_did_change(_change(lsp, uri, 4, text))
        assert len((await published.get()).diagnostics) == 2

        client.text_document_did_close(lsp.DidCloseTextDocumentParams(document))
        assert not (await published.get()).diagnostics

    drive(talk)


def test_server_ties_edits_to_the_version_and_keeps_to_what_is_asked(tmp_path: Path) -> None:
    lsp = pytest.importorskip("lsprotocol.types")
    uri = (tmp_path / "model.py").as_uri()

    async def talk(client: Any, published: asyncio.Queue[Any]) -> None:
        client.text_document_did_open(
            lsp.DidOpenTextDocumentParams(lsp.TextDocumentItem(uri, "python", 7, MODEL))
        )
        await published.get()
        document = lsp.TextDocumentIdentifier(uri)
        start = lsp.Position(7, 4)
        context = lsp.CodeActionContext([], only=[lsp.CodeActionKind.QuickFix])
        actions = await client.text_document_code_action_async(
            lsp.CodeActionParams(document, lsp.Range(start, start), context)
        )
        assert {a.kind for a in actions} == {"quickfix"}
        assert {a.diagnostics[0].code for a in actions} == {"GBF101"}
        (change,) = actions[0].edit.document_changes
        assert change.text_document.version == 7

    drive(talk, versions=True)


IMPORTING = """import torch
from torch import nn
from .parts import limit

class Net(nn.Module):
    def forward(self, x: torch.Tensor):
        if x.sum() > limit(x):
            x = x + 1
        if limit(x):
            x = x * 2
        return x
"""


def test_files_that_are_imported_are_read_again_when_they_change(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").touch()
    parts = tmp_path / "parts.py"
    source = SourceFile(tmp_path / "net.py", IMPORTING)
    read = ReadFiles()
    told: list[int] = []
    for body in ("return 1", "return 1", "return x.mean() > 0"):
        if not parts.exists() or body not in parts.read_text(encoding="utf-8"):
            parts.write_text(f"def limit(x):\n    {body}\n", encoding="utf-8")
        told.append(len(actions_at(source, Settings(), read=read).findings))
        assert told[-1] == len(actions_at(source, Settings()).findings)
    assert told == [1, 1, 2]


def test_a_file_is_parsed_once_for_all_analyses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "__init__.py").touch()
    (tmp_path / "parts.py").write_text("def limit(x):\n    return 1\n", encoding="utf-8")
    parsed: list[str] = []
    made = read_files.unparsed_module

    def counted(source: SourceFile) -> Module:
        parsed.append(source.path.name)
        return made(source)

    monkeypatch.setattr(read_files, "unparsed_module", counted)
    source = SourceFile(tmp_path / "net.py", IMPORTING)
    read = ReadFiles()
    edits = [fix_all(source, Settings(), read) for _ in range(2)]
    assert edits[0] == edits[1] != ()
    assert parsed.count("parts.py") == 1
    monkeypatch.setattr(read_files, "_HELD", 0)
    read.let_go()
    assert fix_all(source, Settings(), read) == edits[0]
    assert parsed.count("parts.py") == 2


def test_fixing_everything_is_worked_out_once_for_a_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("lsprotocol.types")
    from gbfix.editor import server

    asked: list[SourceFile] = []

    def fixed(source: SourceFile, settings: Settings, read: ReadFiles) -> tuple[Edit, ...]:
        asked.append(source)
        return ()

    monkeypatch.setattr(server, "fix_all", fixed)
    document = server.Document(model(), Settings(), actions_at(model(), Settings()))
    assert [server._fix_all(document, ReadFiles()) for _ in range(3)] == [(), (), ()]
    assert len(asked) == 1


def _change(lsp: Any, uri: str, version: int, text: str) -> Any:
    return lsp.DidChangeTextDocumentParams(
        lsp.VersionedTextDocumentIdentifier(version, uri),
        [lsp.TextDocumentContentChangeWholeDocument(text)],
    )


def _plain(edit: Any) -> dict[str, Any]:
    start, end = edit.range.start, edit.range.end
    return {
        "range": {
            "start": {"line": start.line, "character": start.character},
            "end": {"line": end.line, "character": end.character},
        },
        "newText": edit.new_text,
    }
