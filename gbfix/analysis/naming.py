"""Gives every file of a project a module name of its own.

Folders of scripts often hold files of the same name, and a repository of packages may hold several
`tests`. Each root (the folder that would be on `sys.path`) sees its own modules; where an earlier root
has a top-level name too, that of a later one gets a mark which no Python name has. Knows paths, not
what is in the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gbfix.analysis.module_files import package_root, unparsed_module
from gbfix.analysis.modules import Module
from gbfix.source.text import SourceFile


def named(sources: Sequence[SourceFile]) -> list[Module]:
    """The modules of files, unparsed, no two with the same name."""
    renamed = _renamed(package_root(source.path) for source in sources)
    taken: set[str] = set()
    modules = []
    for source in sources:
        module = unparsed_module(source)
        module = replace(module, renamed=renamed[module.root])
        name = module.known_as(module.name)
        while name in taken:  # a package and a file of one name, or a path given twice
            name += "@"
        taken.add(name)
        modules.append(replace(module, name=name))
    return modules


def _renamed(roots: Iterable[Path]) -> dict[Path, Mapping[str, str]]:
    """For each root, its top-level names that an earlier one has too, with what they are called."""
    ordered = list(dict.fromkeys(roots))
    if len(ordered) == 1:
        return {ordered[0]: {}}
    found: dict[Path, Mapping[str, str]] = {}
    seen: set[str] = set()
    for number, root in enumerate(ordered):
        names = _names_in(root)
        found[root] = {name: f"{name}@{number}" for name in names & seen}
        seen |= names
    return found


def _names_in(root: Path) -> set[str]:
    """The names of the modules and packages that can be imported from a folder."""
    try:
        return {
            path.stem
            for path in root.iterdir()
            if path.suffix == ".py" or (path / "__init__.py").is_file()
        }
    except OSError:
        return set()
