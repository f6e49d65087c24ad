"""The one exception that stands for a mistake of the user rather than of gbfix.

It knows nothing of who raises it or how it is shown.
"""

from __future__ import annotations


class UserError(Exception):
    """Something the user can put right, in one clear sentence; the command line exits with 2."""
