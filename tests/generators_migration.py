"""Outcomes of migrations that nobody made, for the tests of reports: any number of files, any text."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from gbfix.migrate.outcome import (
    Arms,
    BreakSeen,
    Captured,
    Change,
    Checked,
    Declined,
    Error,
    FixMade,
    Fragment,
    MigratedFile,
    Offered,
    Outcome,
    Policy,
    Site,
    SkipSeen,
    State,
    Totals,
)

_DIAGNOSES = (
    ("GBF101", "tensor-branch"),
    ("GBF102", "validation"),
    ("GBF103", "print"),
    ("GBF110", "item"),
    ("GBF120", "mask-index"),
    ("GBF130", "nonzero"),
)
_FIXES = (
    ("where", "safe", "both arms are cheap and read the same tensors"),
    ("cond", "review", "compiled, `None` gradients become zeros"),
    ("check", "review", "compiled, a failed check raises `RuntimeError`"),
    ("hoist", "unsafe", "the buffer is assumed never to change"),
)
_OFFERS = (
    Offered("disable", "unsafe", "the statements are run in Python"),
    Offered(
        "capture",
        "review",
        "numbers are captured",
        "torch._dynamo.config.capture_scalar_outputs = True",
    ),
)
_DECLINED = (
    Declined("cond", "impure-arm", "An arm appends to `self.history`."),
    Declined("cond", "undefined-after-if", "`h` is not bound in one arm and read later."),
    Declined("where", "unknown-kind", "Whether `mask` is a tensor is not known."),
    Declined("item", "used-as-size", "The number becomes the size of a tensor."),
)
_OPERATORS = ("linear", "relu", "layer_norm", "add", "matmul", "softmax", "mul", "sum", "gt")


def outcome(files: int = 40, *, seed: int = 0, checked: int = 6) -> Outcome:
    """A migration of so many files, with some of each state, safety and verdict."""
    chance = random.Random(seed)
    made = tuple(_file(chance, number, files) for number in range(files))
    run = tuple(_checked(chance, made[number], number) for number in range(min(checked, files)))
    by_path = {one.path: one for one in run}
    made = tuple(_with_evidence(file, by_path.get(file.path)) for file in made)
    return with_totals(
        Outcome(
            id="20260101-120000",
            root="/home/user/vision_models",
            policy=Policy("review", verify=True),
            totals=Totals(),
            started="2026-01-01T12:00:00+00:00",
            finished="2026-01-01T12:03:25+00:00",
            files=made,
            checked=run,
            errors=(Error("models/broken.py", "line 3 cannot be parsed: unexpected indent."),),
        )
    )


def with_totals(given: Outcome) -> Outcome:
    """The outcome with totals that are those of its files."""
    sites = [(file, site) for file in given.files for site in file.sites]
    fixed = [site for file, site in sites if site.fix and _applied(file)]
    before = Counter(site.code for _, site in sites)
    gone = Counter(site.code for site in fixed)
    totals = Totals(
        files=len(given.files) * 2,
        lines=sum(file.lines for file in given.files),
        with_sites=sum(bool(file.sites) for file in given.files),
        written=sum(file.state is State.WRITTEN for file in given.files),
        withheld=sum(file.state is State.WITHHELD for file in given.files),
        not_written=sum(file.state is State.NOT_WRITTEN for file in given.files),
        sites=len(sites),
        fixed=len(fixed),
        left=len(sites) - len(fixed),
        errors=len(given.errors),
        by_code={code: Change(n, n - gone[code]) for code, n in before.items()},
        by_safety=dict(Counter(site.fix.safety for site in fixed if site.fix)),
        by_verdict=dict(Counter(one.status for one in given.checked)),
        refusals=dict(
            Counter(site.refusals[-1].code for _, site in sites if not site.fix and site.refusals)
        ),
        breaks=_sum(file.breaks for file in given.files),
        fragments=_sum(file.fragments for file in given.files),
        seconds={"planning": 12.5, "verifying": 190.0, "writing": 2.5},
    )
    return replace(given, totals=totals)


def _applied(file: MigratedFile) -> bool:
    return file.state in (State.WRITTEN, State.PLANNED)


def _sum(changes: object) -> Change | None:
    found = [change for change in changes if change is not None]
    if not found:
        return None
    return Change(sum(c.before for c in found), sum(c.after for c in found))


def _file(chance: random.Random, number: int, files: int) -> MigratedFile:
    package = f"family_{chance.randrange(max(files // 6, 2)):03d}"
    kind = chance.choice(("modeling", "loss", "layers", "generation"))
    path = f"vision_models/models/{package}/{kind}_{number}.py"
    sites = tuple(_site(chance, line) for line in range(1, chance.randrange(1, 14)))
    diff = _diff(path, chance.randrange(1, 5)) if any(site.fix for site in sites) else ""
    state = chance.choice((State.WRITTEN, State.WRITTEN, State.WRITTEN, State.WITHHELD))
    reason = "" if state is State.WRITTEN else "an arm of its branch was not run."
    if not diff:
        state, reason = State.UNCHANGED, ""
    lines = chance.randrange(60, 2500)
    return MigratedFile(path, "vision_models", lines, state, reason, diff, sites)


def _site(chance: random.Random, line: int) -> Site:
    code, name = chance.choice(_DIAGNOSES)
    fix = FixMade(*chance.choice(_FIXES)) if chance.random() < 0.6 else None
    refusals = () if fix else tuple(chance.sample(_DECLINED, chance.randrange(1, 3)))
    message = "branches on the tensor `scores.max() > self.limit`"
    return Site(
        17 * line, 9, 17 * line, 40, code, name, message, "Encoder.forward",
        chance.random() < 0.8, fix, refusals, None, () if fix else _OFFERS[: chance.randrange(3)],
    )  # fmt: skip


def _diff(path: str, hunks: int) -> str:
    text = f"--- a/{path}\n+++ b/{path}\n"
    for hunk in range(hunks):
        at = 40 * hunk + 12
        text += (
            f"@@ -{at},7 +{at},6 @@\n"
            "     def forward(self, hidden, mask=None):\n"
            "         hidden = self.norm(hidden)\n"
            "-        if hidden.abs().max() > self.limit:\n"
            "-            hidden = hidden * 0.5\n"
            "+        hidden = torch.where(hidden.abs().max() > self.limit, hidden * 0.5, hidden)\n"
            "         hidden = self.attention(hidden, mask)\n"
            "\n"
            "         return self.output(hidden)\n"
        )
    return text


def _checked(chance: random.Random, file: MigratedFile, number: int) -> Checked:
    status = chance.choice(("verified", "verified", "partly verified", "different"))
    cuts = chance.randrange(1, 4)
    breaks = tuple(
        BreakSeen(
            file.path, 30 * n + 12, "GB0170", "GBF101", "Data-dependent branching", "splits"
        )
        for n in range(cuts)
    )  # fmt: skip
    pieces = tuple(
        Fragment(
            file.path, 10, "Encoder.forward",
            tuple(chance.choice(_OPERATORS) for _ in range(chance.randrange(2, 40))),
            n if n < cuts else None, n == cuts,
        )
        for n in range(cuts + 1)
    )  # fmt: skip
    whole = Fragment(
        file.path, 10, "Encoder.forward", tuple(o for piece in pieces for o in piece.operators)
    )
    operators = len(whole.operators)
    skips = (SkipSeen(file.path, 90, "Encoder.trace", "a generator"),) if number % 3 == 0 else ()
    missing = (f"{file.path}:12: true arm of `hidden.abs().max() > self.limit`",)
    return Checked(
        id=f"{file.path}:Encoder",
        path=file.path,
        name="Encoder",
        entry=number == 0,
        status=status,
        verified=status == "verified",
        reason="all runs agree." if status == "verified" else "an arm was not run.",
        backend="inductor",
        device="cpu",
        inputs=("f32[2, 16, 64]", "f32[1, 1, 64]"),
        calls=8,
        gradients=True,
        seconds=3.2,
        arms=Arms(2, 2) if status == "verified" else Arms(1, 2, missing),
        differences=("compiled, call 2: output 0 differs by 0.5",) * (status == "different"),
        before=Captured(cuts + 1, operators, 1, breaks, skips, pieces, 3, False, "a break"),
        after=Captured(1, operators, 0, (), (), (whole,), 0, True),
    )


def _with_evidence(file: MigratedFile, one: Checked | None) -> MigratedFile:
    if one is None or one.before is None or one.after is None:
        return file
    return replace(
        file,
        verdict=one.status,
        arms=one.arms,
        breaks=Change(len(one.before.breaks), len(one.after.breaks)),
        fragments=Change(one.before.graphs, one.after.graphs),
    )
