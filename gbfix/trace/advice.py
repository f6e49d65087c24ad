"""What can be done about a break for which there is no fix: PyTorch's hints, and ways round a library.

Sentences only; they come with stable codes like those of refusals.
"""

from __future__ import annotations

from collections.abc import Iterator

from gbfix.diagnoses import DIAGNOSES
from gbfix.trace.places import Place


def advice(place: Place) -> Iterator[tuple[str, str]]:
    """Codes and sentences, those about the user's own line first."""
    if place.library is not None:
        yield "in-library", _round_a_library(place)
    elif not _known(place.reason.registry):
        yield "no-diagnosis", "gbfix has no diagnosis of its own for this kind of break"
    else:
        yield "not-found", "the analysis does not see that this line breaks, so no fix is offered"
    for hint in place.reason.hints:
        yield "pytorch-hint", " ".join(hint.split())


def _round_a_library(place: Place) -> str:
    """What the line that calls the library can do. The ways are those of PyTorch's guide."""
    assert place.library is not None
    codes = [c for c, d in DIAGNOSES.items() if place.reason.registry in d.registry]
    function = place.library.function or "the function"
    if any(code.startswith("GBF2") for code in codes):
        return (
            f"`{function}` writes output; add what it calls to "
            "`torch._dynamo.config.ignore_logging_functions` if the line may be dropped"
        )
    return (
        f"`{function}` is not yours: call it before or after the compiled part, mark it with "
        "`torch.compiler.disable` so that it breaks once and alone, or look at it with "
        f"`gbfix check {place.library.file}`"
    )


def _known(registry: str | None) -> bool:
    return any(registry in diagnosis.registry for diagnosis in DIAGNOSES.values())
