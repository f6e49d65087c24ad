"""`gbfix server`: the language server, which needs the extra `gbfix[lsp]`."""

from __future__ import annotations

from gbfix.errors import UserError


def server() -> None:
    """Serve an editor over standard input and output (Language Server Protocol)."""
    try:
        from gbfix.editor.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"pygls", "lsprotocol", "cattrs", "attrs"}:
            raise
        raise UserError("the language server needs pygls: pip install 'gbfix[lsp]'.") from None
    serve()
