"""The torch that a run is for: what does not break there is not reported.

Every way in, the command line, editors and the library, passes its settings through here.
"""

from __future__ import annotations

from dataclasses import replace

from gbfix.diagnoses import DIAGNOSES
from gbfix.dynamo.target import target
from gbfix.settings import Settings


def aimed(settings: Settings) -> tuple[Settings, tuple[str, ...]]:
    """The settings with what is quiet on the torch that they name, or that is installed; notices.

    Raises:
        UserError: if they name what is no version.
    """
    probes = {code: diagnosis.probe for code, diagnosis in DIAGNOSES.items()}
    aim = target(settings.target_torch, probes)
    return replace(settings, quiet=aim.quiet), (aim.notice,) if aim.notice is not None else ()
