"""`python -m gbfix` is `gbfix`."""

import sys

from gbfix.cli.main import main

sys.exit(main())
