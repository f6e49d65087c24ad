"""A language server: diagnostics while typing, quick fixes, fix-all, and hover.

Translates between the Language Server Protocol and code actions. Analyses run one at a time in a
thread of their own, so that the server answers while one is under way. It never imports torch or
the code that it looks at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

from gbfix import __version__
from gbfix.analysis.read_files import ReadFiles
from gbfix.analysis.trees import forget
from gbfix.config import load_config
from gbfix.diagnoses import DIAGNOSES
from gbfix.editor.actions import Action, Place, actions_at, text_edits
from gbfix.editor.fixing import fix_all
from gbfix.editor.positions import Position, Range, offset_of, range_of
from gbfix.errors import UserError
from gbfix.findings import Finding
from gbfix.settings import Settings
from gbfix.source.text import Edit, SourceFile

# Long enough that a burst of key strokes makes one analysis, short enough to seem immediate.
DELAY = 0.25
FIX_ALL = "source.fixAll.gbfix"


@dataclass(frozen=True)
class Document:
    """An open document at one version, and what was found in it.

    `fixed` holds the edits of all fixes, once they were asked for: editors ask with every move.
    """

    source: SourceFile
    settings: Settings
    place: Place
    fixed: list[tuple[Edit, ...]] = field(default_factory=list)


@dataclass
class _State:
    """What the server remembers of each open document."""

    documents: dict[tuple[str, int | None], Document] = field(default_factory=dict)
    pending: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    running: dict[tuple[str, int | None], asyncio.Future[Document]] = field(default_factory=dict)
    read: ReadFiles = field(default_factory=ReadFiles)
    executor: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(max_workers=1))


class GbfixServer(LanguageServer):
    """The server, with its state."""

    def __init__(self) -> None:
        # Whole documents: what counts as a line end differs between libraries.
        super().__init__(
            "gbfix", __version__, text_document_sync_kind=lsp.TextDocumentSyncKind.Full
        )
        self.state = _State()

    @property
    def encoding(self) -> str:
        """The code units that the editor and the server have agreed on."""
        return str(getattr(self.workspace.position_encoding, "value", "utf-16"))

    async def analysed(self, uri: str) -> Document | None:
        """What is known of a document at its present version; None if it cannot be analysed."""
        document = self.workspace.get_text_document(uri)
        key = (uri, document.version)
        if key not in self.state.documents:
            source = SourceFile(Path(to_fs_path(uri) or "untitled.py"), document.source)
            loop = asyncio.get_running_loop()
            running = self.state.running
            if key not in running:  # diagnostics and actions may be asked for at the same time
                work = partial(_analyse, source, self.state.read)
                running[key] = loop.run_in_executor(self.state.executor, work)
                running[key].add_done_callback(lambda _: running.pop(key, None))
            try:
                made = await asyncio.shield(running[key])
            except UserError as error:
                self.window_log_message(lsp.LogMessageParams(lsp.MessageType.Info, str(error)))
                return None
            for other in [k for k in self.state.documents if k[0] == uri]:
                del self.state.documents[other]
            self.state.documents[key] = made
        return self.state.documents[key]

    async def publish(self, uri: str) -> None:
        """Tell the editor what is found in a document."""
        version = self.workspace.get_text_document(uri).version
        document = await self.analysed(uri)
        # A document that does not parse for the moment keeps the diagnostics that it has.
        if document is not None:
            found = [_diagnostic(document, f, self.encoding) for f in document.place.findings]
            self.text_document_publish_diagnostics(
                lsp.PublishDiagnosticsParams(uri, found, version=version)
            )

    def publish_soon(self, uri: str, delay: float = DELAY) -> None:
        """Publish when no further change has come for a while."""
        earlier = self.state.pending.pop(uri, None)
        if earlier is not None:
            earlier.cancel()

        async def wait() -> None:
            await asyncio.sleep(delay)
            await self.publish(uri)

        self.state.pending[uri] = asyncio.get_running_loop().create_task(wait())

    def forget(self, uri: str) -> None:
        """Drop what is known of a document that was closed."""
        pending = self.state.pending.pop(uri, None)
        if pending is not None:
            pending.cancel()
        for key in [k for k in self.state.documents if k[0] == uri]:
            del self.state.documents[key]

    def workspace_edit(
        self, uri: str, document: Document, edits: Iterable[Edit]
    ) -> lsp.WorkspaceEdit:
        """Edits of a document, tied to its version where the editor can do that."""
        made = [
            lsp.TextEdit(_range(edit.range), edit.new_text)
            for edit in text_edits(document.source, edits, self.encoding)
        ]
        edit_support = self.client_capabilities.workspace and (
            self.client_capabilities.workspace.workspace_edit
        )
        if edit_support and edit_support.document_changes:
            version = self.workspace.get_text_document(uri).version
            identifier = lsp.OptionalVersionedTextDocumentIdentifier(uri, version)
            return lsp.WorkspaceEdit(document_changes=[lsp.TextDocumentEdit(identifier, made)])
        return lsp.WorkspaceEdit(changes={uri: made})


def make_server() -> GbfixServer:
    """A server with its handlers, not yet started."""
    server = GbfixServer()

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    async def did_open(params: lsp.DidOpenTextDocumentParams) -> None:
        server.publish_soon(params.text_document.uri, 0)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def did_change(params: lsp.DidChangeTextDocumentParams) -> None:
        server.publish_soon(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    async def did_save(params: lsp.DidSaveTextDocumentParams) -> None:
        server.publish_soon(params.text_document.uri, 0)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    async def did_close(params: lsp.DidCloseTextDocumentParams) -> None:
        server.forget(params.text_document.uri)
        server.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(params.text_document.uri, [])
        )

    kinds: list[lsp.CodeActionKind | str] = [lsp.CodeActionKind.QuickFix, FIX_ALL]

    @server.feature(lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions(code_action_kinds=kinds))
    async def code_action(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        return await _code_actions(server, params)

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    async def hover(params: lsp.HoverParams) -> lsp.Hover | None:
        return await _hover(server, params)

    return server


def serve() -> None:
    """Serve an editor over standard input and output until it goes."""
    make_server().start_io()


def _analyse(source: SourceFile, read: ReadFiles) -> Document:
    settings = load_config(source.path).settings
    found = Document(source, settings, actions_at(source, settings, read=read))
    read.let_go()
    forget()
    return found


def _fix_all(document: Document, read: ReadFiles) -> tuple[Edit, ...]:
    if not document.fixed:
        document.fixed.append(fix_all(document.source, document.settings, read))
        forget()
    return document.fixed[0]


async def _code_actions(server: GbfixServer, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    uri = params.text_document.uri
    document = await server.analysed(uri)
    if document is None:
        return []
    only = params.context.only
    made: list[lsp.CodeAction] = []
    if _wanted(lsp.CodeActionKind.QuickFix.value, only):
        chosen = [a for a in document.place.actions if _meets(document, a, params.range, server)]
        preferred: set[Finding] = set()
        for action in chosen:
            made.append(
                lsp.CodeAction(
                    action.title,
                    kind=lsp.CodeActionKind.QuickFix,
                    diagnostics=[_diagnostic(document, action.finding, server.encoding)],
                    is_preferred=action.finding not in preferred
                    and action.safety >= document.settings.safety,
                    edit=server.workspace_edit(uri, document, action.changes),
                )
            )
            preferred.add(action.finding)
    if _wanted(FIX_ALL, only) and document.place.findings:
        loop = asyncio.get_running_loop()
        work = partial(_fix_all, document, server.state.read)
        edits = await loop.run_in_executor(server.state.executor, work)
        if edits:
            edit = server.workspace_edit(uri, document, edits)
            made.append(lsp.CodeAction("Fix all graph breaks (gbfix)", kind=FIX_ALL, edit=edit))
    return made


async def _hover(server: GbfixServer, params: lsp.HoverParams) -> lsp.Hover | None:
    document = await server.analysed(params.text_document.uri)
    if document is None:
        return None
    place = Position(params.position.line, params.position.character)
    offset = offset_of(document.source, place, server.encoding)
    for finding in document.place.findings:
        start, end = _offsets(document.source, finding)
        if start <= offset < max(end, start + 1):
            content = lsp.MarkupContent(lsp.MarkupKind.Markdown, hover_text(finding))
            where = _range(range_of(document.source, start, end, server.encoding))
            return lsp.Hover(content, where)
    return None


def hover_text(finding: Finding) -> str:
    """What is to be known of a finding, as Markdown."""
    diagnosis = DIAGNOSES[finding.code]
    lines = [f"**{finding.code} {finding.name}**: {diagnosis.summary}", "", finding.message]
    lines += ["", diagnosis.explanation]
    if diagnosis.registry:
        names = ", ".join(f"`{name}`" for name in diagnosis.registry)
        lines += ["", f"In PyTorch's graph-break registry: {names}."]
    lines += [""] if finding.offers or finding.refusals else []
    lines += [f"- {o.transform} ({o.safety.label}): {o.reason}" for o in finding.offers]
    lines += [f"- {r.transform} declines, `{r.code}`: {r.sentence}" for r in finding.refusals]
    return "\n".join(lines)


def _wanted(kind: str, only: Iterable[lsp.CodeActionKind | str] | None) -> bool:
    """Whether a kind, or one that it is part of, was asked for."""
    if not only:
        return True
    asked = [str(getattr(o, "value", o)) for o in only]
    return any(kind == a or kind.startswith(f"{a}.") for a in asked)


def _meets(document: Document, action: Action, wanted: lsp.Range, server: GbfixServer) -> bool:
    start, end = _offsets(document.source, action.finding)
    places = (Position(p.line, p.character) for p in (wanted.start, wanted.end))
    first, last = (offset_of(document.source, p, server.encoding) for p in places)
    # A cursor anywhere on the line of a site is near enough.
    line = document.source.line_starts[action.finding.line - 1]
    return first <= end and last >= min(start, line)


def _offsets(source: SourceFile, finding: Finding) -> tuple[int, int]:
    start = source.line_starts[finding.line - 1] + finding.column - 1
    end = source.line_starts[finding.end_line - 1] + finding.end_column - 1
    return start, end


def _diagnostic(document: Document, finding: Finding, encoding: str) -> lsp.Diagnostic:
    start, end = _offsets(document.source, finding)
    return lsp.Diagnostic(
        _range(range_of(document.source, start, end, encoding)),
        f"{finding.name}: {finding.message}",
        severity=lsp.DiagnosticSeverity.Warning
        if finding.certain
        else lsp.DiagnosticSeverity.Information,
        code=finding.code,
        source="gbfix",
    )


def _range(place: Range) -> lsp.Range:
    return lsp.Range(
        lsp.Position(place.start.line, place.start.character),
        lsp.Position(place.end.line, place.end.character),
    )
