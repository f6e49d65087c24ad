"""Where `import torch` may be added: to files that cannot be imported without torch."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gbfix.analysis.module_files import parse_module
from gbfix.analysis.project import Project
from gbfix.analysis.torch_imports import imports_torch
from gbfix.codegen.imports import add_torch_import
from gbfix.codegen.view import View
from gbfix.source.text import SourceFile


def _asked(folder: Path, files: dict[str, str], name: str) -> bool:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    modules = [parse_module(SourceFile(folder / path, text)) for path, text in files.items()]
    (module,) = [m for m in modules if m.source.path == folder / name]
    return imports_torch(module, Project(modules))


LATER = "def f(x):\n    import torch\n    return torch.relu(x)\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"one.py": "import sys\n"}, True),
        ({"one.py": "import sys\n" + LATER}, False),
        ({"one.py": "import numpy\n" + LATER}, False),
        ({"one.py": "import torch.nn\n" + LATER}, True),
        ({"p/__init__.py": "", "p/one.py": "import sys\n"}, False),
        ({"p/__init__.py": "", "p/one.py": "import accelerate\n"}, True),
        ({"p/__init__.py": "import torch\n", "p/one.py": "import sys\n"}, True),
        ({"p/__init__.py": "", "p/one.py": "from . import two\n", "p/two.py": "import torch\n"}, True),
        ({"p/__init__.py": "", "p/one.py": "from .two import g\n", "p/two.py": LATER}, False),
        (
            {
                "p/__init__.py": "from .two import g\n",
                "p/one.py": "if 1:\n    import torch\n",
                "p/two.py": "from p import one\nfrom torch import nn\n",
            },
            True,
        ),
    ],
)  # fmt: skip
def test_what_is_imported_with_a_file(
    files: dict[str, str], expected: bool, tmp_path: Path
) -> None:
    name = "p/one.py" if "p/one.py" in files else "one.py"
    assert _asked(tmp_path, files, name) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import os\n\nx = 1\n", "import os\n\nimport torch\n\nx = 1\n"),
        ("import os\n\nfrom a import b\n", "import os\n\nimport torch\nfrom a import b\n"),
        ("import numpy\nimport yaml\n", "import numpy\nimport torch\nimport yaml\n"),
        ("import numpy\n", "import numpy\nimport torch\n"),
        ("import numpy", "import numpy\nimport torch\n"),
        ("import os\n\nfrom .a import b\n", "import os\n\nimport torch\n\nfrom .a import b\n"),
        ("from .a import b\n", "import torch\n\nfrom .a import b\n"),
        ("import os\nfrom torch import nn\n", "import os\nimport torch\nfrom torch import nn\n"),
        ('"""Text."""\n', '"""Text."""\nimport torch\n'),
    ],
)
def test_where_it_is_added(text: str, expected: str) -> None:
    module = parse_module(SourceFile(Path("one.py"), text))
    view = View(module)
    made = view.source.apply([add_torch_import(view)])
    ast.parse(made)
    assert made == expected
