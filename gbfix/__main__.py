"""`python -m gbfix` is `gbfix`."""

import sys

from gbfix.cli.entry import main

sys.exit(main())
