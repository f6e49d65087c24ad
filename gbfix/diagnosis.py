"""What a diagnosis is: a kind of graph break with a code and a name.

Data only; `gbfix.diagnoses` and `gbfix.python_diagnoses` hold the diagnoses themselves.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Diagnosis:
    """A kind of break: code, name, one line, why it breaks, and PyTorch's registry entries.

    Attributes:
        probe: a tiny program that shows whether an installed torch still breaks here. It defines
            `probe(x)`, which is compiled and called with three ones, and works on tensors before
            and after the place in question, so that one graph means that nothing broke.
        advice: what a person can do where no transform has anything to say.
    """

    code: str
    name: str
    summary: str
    explanation: str
    registry: tuple[str, ...]
    probe: str = ""
    advice: str = ""
