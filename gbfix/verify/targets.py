"""What is verified: where a callable is found, how it is built, and with which texts of its files.

Values only, which need neither torch nor the user's code and can be sent to a worker.
"""

from __future__ import annotations

import os
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

from gbfix.errors import UserError

# Modules of these names would hide the standard library's from what the file imports.
_TAKEN = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "gbfix"}


@dataclass(frozen=True)
class Target:
    """A callable of a module: a function, a class to construct, or a pickled object.

    `module` is imported with `folders` on the path. `init`, a `module:function`, builds the object
    in place of construction without arguments; `expression` gives it in the module's own names;
    `pickled` is the object itself, and `main` says that it knows its module as `__main__`. `state` is
    a file with what a recorded object held, from a program that knew the module as `state_of`;
    `no_state` says why there is none.
    """

    module: str
    name: str
    file: str | None = None
    folders: tuple[str, ...] = ()
    init: str | None = None
    pickled: bytes | None = None
    main: bool = False
    expression: str | None = None
    state: str | None = None
    state_of: str = ""
    no_state: str = ""

    @property
    def title(self) -> str:
        """How reports name it."""
        return f"{self.file or self.module}:{self.name}" if self.name else str(self.file)


@dataclass(frozen=True)
class Side:
    """One of the two that are compared: a target, and the texts that stand in for files.

    A text is given for every file that matters, changed or not, so that a module that writes to its
    own file does not change the other side.
    """

    target: Target
    texts: tuple[tuple[str, str], ...] = ()


def of_file(path: Path, name: str, *, init: str | None = None) -> Target:
    """A callable in a file, imported as part of its package if it is in one."""
    path = path.resolve()
    folder, parts = path.parent, [path.stem]
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        parts.insert(0, folder.name)
        folder = folder.parent
    if parts[-1] == "__init__":
        parts.pop()
    module = ".".join(parts)
    if module in _TAKEN or not all(part.isidentifier() for part in parts):
        module = f"gbfix_target_{zlib.crc32(os.fsencode(path))}"
    return Target(module, name, str(path), (str(folder),), init)


def parse(text: str, *, init: str | None = None) -> tuple[Path | None, str, str]:
    """Take `path.py`, `path.py:name` or `package.module:name` apart: path or None, module, name.

    Raises:
        UserError: for anything else.
    """
    # A Windows path has a colon of its own, which no name follows.
    head, colon, name = text.rpartition(":")
    if not colon or not name.replace(".", "").isidentifier():
        head, name = text, ""
    if head.endswith(".py"):
        path = Path(head)
        if not path.is_file():
            raise UserError(f"`{head}` is not a file.")
        return path, "", name
    if not name or not all(part.isidentifier() for part in head.split(".")):
        raise UserError(
            f"`{text}` is not a target: give path.py, path.py:function or package.module:Class."
        )
    return None, head, name


def resolve(text: str, *, init: str | None = None) -> Target:
    """The target that a text with a name stands for.

    Raises:
        UserError: for a text that is not a target, or names none in its file.
    """
    path, module, name = parse(text)
    if not name:
        raise UserError(f"`{text}` does not say which function or class: add `:name`.")
    if path is not None:
        return of_file(path, name, init=init)
    return Target(module, name, None, (str(Path.cwd()),), init)
