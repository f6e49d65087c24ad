"""Generates inputs for a target: finds arguments that run, then steers them into every arm.

It runs in a worker, on the original in eager. What it returns are recipes, so that other workers make
the same arguments again.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import linecache
import re
import signal
import time
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from gbfix.dynamo import control
from gbfix.verify.arms import WATCH, Coverage, Watcher, coverage
from gbfix.verify.calls import CallOptions, call, convert, root_of
from gbfix.verify.execute import seed
from gbfix.verify.halves import halves_of
from gbfix.verify.listening import Stopped
from gbfix.verify.loading import LoadError, build, load
from gbfix.verify.messages import Generated, SearchSpec
from gbfix.verify.recipes import Arguments, CallRecipe, Inputs, filled, like
from gbfix.verify.search import Found, NoInputs, search
from gbfix.verify.signatures import Parameter, parameters, size_hints
from gbfix.verify.variants import drawn, in_dtypes, special, telling, with_optional

_MOST_TELLING = 13
_MOST_OPTIONAL = 3
_MOST_BASES = 3
_SECONDS_A_TRY = 3.0
_FITTING = ("negative", "positive", "zeros", "ones")
_OF_SHAPES = re.compile(r"\b(sizes?|shapes?|dim(ension)?s?|broadcast\w*|expand\w*|mat\d)\b", re.I)


class _TakesTooLong(Stopped):
    """A single try that does not end."""


def generate(spec: SearchSpec) -> Generated:
    """Find inputs for a target."""
    seed()
    try:
        with control.never_compile():
            found = _Search(spec)
            if spec.saved is not None:
                return Generated(replace(spec.saved, recipes=found.beyond(spec.saved)))
            return Generated(Inputs(recipes=found.recipes()), halves=tuple(found.halves))
    except (LoadError, NoInputs) as error:
        return Generated(failure=str(error))


class _Search:
    """The tries of one search and what they have reached."""

    def __init__(self, spec: SearchSpec) -> None:
        self.spec = spec
        self.watcher = Watcher()
        setattr(builtins, WATCH, self.watcher.watch)
        self.module: types.ModuleType = load(spec.side, self.watcher.transform)
        self.missed: collections.Counter[str] = collections.Counter()
        self.optional: tuple[str, ...] = ()
        self.options = CallOptions(dtype=spec.dtype, device=spec.device, failed=self._note)
        self.inference = False
        self.halves: list[str] = []
        self.dtype = spec.dtype
        self.target = self._target()
        self.end = time.monotonic() + spec.seconds
        self.running: list[CallRecipe] = []
        self.further: list[CallRecipe] = []
        self.raising: list[CallRecipe] = []

    def _target(self) -> Any:
        seed()
        target = build(self.spec.side.target, self.module)
        convert(target, self.module, self.dtype, self.spec.device)
        if self.inference and (root := root_of(target)) is not None:
            root.eval()
        return target

    def recipes(self) -> tuple[CallRecipe, ...]:
        """One call that runs, those that tell much, and those that reach further arms."""
        try:
            wanted = parameters(self.target)
        except (ValueError, TypeError) as error:
            raise NoInputs(f"its parameters cannot be read: {error}") from error
        found = self._found(wanted)
        # What failing tries have reached on their way is not reached by any input that is kept.
        self.watcher.seen.clear()
        self._attempt(found.call)
        self.running.append(found.call)
        text = "".join(text for _, text in self.spec.side.texts) + self.spec.rewritten
        small = list(in_dtypes(found.call, text))
        for recipe in [*small, *telling(found.call, text)]:
            if recipe not in self.running and len(self.running) <= _MOST_TELLING:
                before = set(self.watcher.seen)
                if self._attempt(recipe) is None:
                    self.running.append(recipe)
                else:
                    self.watcher.seen = before
        for parameter in found.left_out[:_MOST_OPTIONAL]:
            self._give(found.call, parameter)
        for _ in self._modes():
            for base in (found.call, *small):
                self._steer(special(base, found.left_out))
            while self.coverage().missing and self._in_time():
                further = drawn(found.call, self._reaches_more)
                if further is None:
                    break
                self._keep(further)
        # A frame whose first call has nothing to compile is never looked at again by Dynamo, so
        # the calls that reach more come first; those that raise come last.
        return (*self.further, *self.running, *self.raising)

    def beyond(self, saved: Inputs) -> tuple[CallRecipe, ...]:
        """Calls that reach what stored ones leave out, made after those where they can be told."""
        for arguments in saved.make():
            self._run(lambda arguments=arguments: arguments)  # type: ignore[misc]
        # Loaded anew, since a call may change what it is given.
        bases = [base for given in saved.make() if (base := like(given)) is not None]
        bases = list(dict.fromkeys(bases))[:_MOST_BASES]
        if self.coverage().missing and not bases:
            before = set(self.watcher.seen)
            with contextlib.suppress(NoInputs, ValueError, TypeError):
                bases = [self._found(parameters(self.target)).call]
            self.watcher.seen = before
        for base in bases:
            self._steer(special(base, ()))
        for base in bases:
            while self.coverage().missing and self._in_time():
                further = drawn(base, self._reaches_more)
                if further is None:
                    break
                self._keep(further)
        return (*self.further, *self.raising)

    def _modes(self) -> Iterator[None]:
        """As the target was built; for arms that are left, for inference, and in half precision."""
        yield
        root = root_of(self.target)
        if self.coverage().missing and root is not None and root.training:
            self.inference = True
            self._built_anew()
            yield
        self.inference = False
        # Inputs alone may have such a type, and parameters another one all the same.
        for name in halves_of(self.spec.side) if self.spec.dtype is None else ():
            missing = self.coverage().missing
            if missing:
                self.dtype = name
                self.options = replace(self.options, dtype=name)
                self._built_anew()
                yield
                if self.coverage().missing != missing:
                    self.halves.append(name)

    def _built_anew(self) -> None:
        self.target = self._target()
        for recipe in (*self.further, *self.running):
            self._attempt(recipe)

    def _found(self, wanted: Sequence[Parameter]) -> Found:
        """A call that runs, also with other values; failing that, one that merely runs."""
        hints = size_hints(self.target)
        self.optional = tuple(p.name for p in wanted if p.optional and p.dtypes)
        failure: NoInputs | None = None
        for attempt in (self._fits, self._attempt):
            if failure is not None and not self._in_time():
                break
            try:
                return search(wanted, hints, attempt, self._is_small, self._most_missed)
            except NoInputs as error:
                failure = error
        raise NoInputs(
            f"no inputs were found with which it runs ({failure}): give `--inputs module:function`"
        ) from failure

    def _most_missed(self) -> list[str]:
        return [name for name, _ in self.missed.most_common()]

    def _note(self, error: BaseException) -> None:
        """Keep which parameters are None in the line that fails, in the innermost call that has any."""
        for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
            words = set(re.findall(r"\w+", linecache.getline(frame.f_code.co_filename, line)))
            none = [word for word in self.optional if word in words and _is_none(frame, word)]
            if none:
                self.missed.update(none)
                return

    def _is_small(self, call: CallRecipe) -> bool:
        most = self.spec.most_dims
        return most is None or all(len(shape) <= most for shape in call.shapes)

    def _fits(self, call: CallRecipe) -> str | None:
        """Whether a call runs, and its shapes suit whatever the values are; else the error.

        An arm that is not taken says nothing of the shapes that it asks for, but the compiler, which
        traces both, does.
        """
        for recipe in (call, *(filled(call, fill) for fill in _FITTING)):
            error = self._attempt(recipe)
            if error is not None and (recipe is call or _OF_SHAPES.search(error)):
                return error
        return None

    def coverage(self) -> Coverage:
        """The arms that have been taken."""
        return coverage(self.spec.touched, self.watcher.seen, self.spec.files, self.spec.decided)

    def _give(self, base: CallRecipe, parameter: Parameter) -> None:
        """Take the first call that runs with a tensor for a parameter that may be left out."""
        for recipe in with_optional(base, parameter) if parameter.dtypes else ():
            before = set(self.watcher.seen)
            if self._fits(recipe) is None:
                self.further.append(recipe)
                return
            self.watcher.seen = before

    def _keep(self, recipe: CallRecipe) -> None:
        """Take a call that reaches more, in its place in the order."""
        (self.further if self._attempt(recipe) is None else self.raising).append(recipe)

    def _steer(self, recipes: Iterable[CallRecipe]) -> None:
        for recipe in recipes:
            if not self.coverage().missing or not self._in_time():
                return
            if self._reaches_more(recipe):
                self._keep(recipe)

    def _reaches_more(self, recipe: CallRecipe) -> bool:
        """Whether a call takes an arm that was missing; what it reaches is not kept."""
        if not self._in_time():
            return False
        before, missing = set(self.watcher.seen), set(self.coverage().missing)
        self._attempt(recipe)
        reached = missing - set(self.coverage().missing)
        self.watcher.seen = before
        return bool(reached)

    def _in_time(self) -> bool:
        return time.monotonic() < self.end

    def _attempt(self, recipe: CallRecipe) -> str | None:
        """Call the target; the error if it does not run."""
        return self._run(recipe.make)

    def _run(self, make: Callable[[], Arguments]) -> str | None:
        if not self._in_time():
            return "the time for the search is over"
        try:
            with _limited(_SECONDS_A_TRY):
                arguments = make()
                seed()
                shot = call(self.target, self.target, self.module, arguments, self.options)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        except Stopped as stopped:
            self.target = self._target()
            return str(stopped)
        return str(shot.raised) if shot.raised is not None else None


def _is_none(frame: types.FrameType, name: str) -> bool:
    return frame.f_locals.get(name, name) is None


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _TakesTooLong("it does not end")

    before: Callable[..., Any] | int | None = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
