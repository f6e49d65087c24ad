"""What runs around a decorated function is reached; what made it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from gbfix.analysis.module_files import parse_module
from gbfix.analysis.project import Project
from gbfix.analysis.wrappers import wrappers
from gbfix.source.text import SourceFile

BARE = """
def deco(fn):
    note(fn)
    @wraps(fn)
    def inner(*args):
        return fn(*args)
    return inner
"""
FACTORY = """
def deco(limit):
    def decorator(fn):
        def inner(*args):
            if limit:
                return fn(*args)
        note(limit)
        return inner
    return decorator
"""
EITHER = """
def deco(fn=None, *, limit=1):
    def wrap(f):
        def inner(*args):
            return f(*args)
        return inner
    return wrap if fn is None else wrap(fn)
"""
DOCUMENTED = """
def describe(fn, text):
    if note(fn):
        fn.__doc__ = text
    return fn

def deco(fn=None, text=""):
    def decorator(fn):
        return describe(fn, text=text)
    return decorator(fn) if fn else decorator
"""
PASSED_ON = """
def timed(run):
    def inner(*args):
        return run(*args)
    return inner

def made(text):
    def decorator(f):
        return timed(run=f)
    return decorator

def deco(fn):
    return made("a")(fn)

def factory(text):
    return made(text)
"""
BESIDE = """
def deco(fn):
    def grow(x):
        return helped(x)
    def helped(x):
        return x
    def unused(x):
        return x
    def inner(x):
        return fn(grow(x))
    return inner
"""
PARTIAL = """
def run(fn, *args):
    return fn(*args)

def deco(fn):
    return functools.partial(run, fn)
"""
LAMBDA = """
def deco(fn):
    return lambda *args: fn(*args)
"""
OBJECT = """
class Cached:
    def __init__(self, fn):
        self.fn = fn
    def __call__(self, *args):
        return self.fn(*args)

def deco(fn):
    return Cached(fn)
"""
CONTEXT = """
@contextlib.contextmanager
def deco():
    yield
"""


@pytest.mark.parametrize(
    ("text", "decorator", "expected"),
    [
        (BARE, "deco", {"deco.inner"}),
        (BARE, "functools.partial(deco)", {"deco.inner"}),
        (FACTORY, "deco(1)", {"deco.decorator.inner"}),
        (EITHER, "deco", {"deco.wrap.inner"}),
        (EITHER, "deco(limit=2)", {"deco.wrap.inner"}),
        (DOCUMENTED, "deco", set()),
        (DOCUMENTED, "deco(text='a')", set()),
        (PASSED_ON, "deco", {"timed.inner"}),
        (PASSED_ON, "factory('a')", {"timed.inner"}),
        (BESIDE, "deco", {"deco.inner", "deco.grow", "deco.helped"}),
        (PARTIAL, "deco", {"run"}),
        (LAMBDA, "deco", {"deco"}),
        (OBJECT, "deco", {"Cached.__call__"}),
        (CONTEXT, "deco()", {"deco"}),
    ],
)
def test_what_runs_with_each_call(text: str, decorator: str, expected: set[str]) -> None:
    source = f"import contextlib, functools\n{text}\n@{decorator}\ndef forward(x):\n    return x\n"
    module = parse_module(SourceFile(Path("m.py"), source))
    (info,) = (i for i in module.functions() if i.node.name == "forward")
    found = wrappers(info, Project([module]))
    assert {i.qualified.removeprefix("m.") for i in found} == expected


def test_a_decorator_of_an_inner_function_runs_with_what_is_around_it() -> None:
    inner = "@deco\n    def part(x):\n        return x\n    return part(x)"
    text = f"{BARE}\ndef forward(x):\n    {inner}\n"
    module = parse_module(SourceFile(Path("m.py"), text))
    (info,) = (i for i in module.functions() if i.node.name == "part")
    assert "m.deco" in {i.qualified for i in wrappers(info, Project([module]))}
