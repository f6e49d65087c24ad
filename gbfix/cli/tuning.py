"""`gbfix apply --tune`: which fixes are tried, on which device, and the table of what was found."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gbfix.cli.verification import Device, Running, verify_options
from gbfix.findings import FixOffer, RunResult, Safety
from gbfix.settings import Choice, Settings

if TYPE_CHECKING:
    from gbfix.verify.applying import Prepare, Rerun
    from gbfix.verify.verdict import Verdict
    from gbfix.verify.worker import Workers


def tune(
    workers: Workers,
    settings: Settings,
    result: RunResult,
    again: Callable[[Settings], RunResult],
    rerun: Rerun,
    prepare: Prepare,
    running: Running,
) -> tuple[RunResult, tuple[Verdict, ...]]:
    """The result with the fastest verified fix of each site; the table goes to standard error."""
    from gbfix.dynamo.backends import default_backend
    from gbfix.report.spans import print_lines
    from gbfix.report.tuning import lines
    from gbfix.verify.tuning import How, tuned

    def eligible(offer: FixOffer) -> bool:
        if offer.setting is not None and not settings.config:
            return False
        # Running them shows whether the assumptions of some unsafe fixes hold; the engine knows which.
        return offer.safety >= settings.safety or settings.safety is not Safety.SAFE

    def chosen(choices: tuple[Choice, ...]) -> RunResult:
        return again(replace(settings, choices=choices))

    device = running.device or _device(workers)
    options = verify_options(settings, replace(running, device=device))
    found = tuned(workers, result, How(options, eligible, chosen, rerun, prepare))
    backend = options.backend or default_backend()
    print_lines(lines(found.tried, backend, options.device), sys.stderr)
    return found.result, found.verdicts


def _device(workers: Workers) -> Device:
    """CUDA where there is some."""
    from gbfix.verify.jobs import Limits
    from gbfix.verify.probing import job

    (outcome,) = workers.run([job("gbfix.dynamo.machine:describe", Limits(60, None))])
    if outcome.result is None:
        return Device.CPU
    devices: list[str] = pickle.loads(outcome.result)["devices"]
    return Device.CUDA if any(name.startswith("cuda") for name in devices) else Device.CPU
