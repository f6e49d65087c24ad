"""Measure the probes of all diagnoses on some torch versions, for gbfix/dynamo/data/probes.json.

    python scripts/measure_probes.py                     # on the torch that is installed here
    python scripts/measure_probes.py VENV/bin/python ... # and on those of other environments

What stands in the file for other versions stays, as long as its probe is the same.
"""

import json
import sys
from pathlib import Path

from gbfix.diagnoses import DIAGNOSES
from gbfix.dynamo.known import as_table
from gbfix.dynamo.probes import run_probes

TABLE = Path(__file__).parents[1] / "gbfix" / "dynamo" / "data" / "probes.json"


def write(tables: dict[str, object]) -> None:
    """Write the table, the versions in order; after each, since one takes a minute."""
    ordered = dict(sorted(tables.items(), key=lambda row: tuple(map(int, row[0].split(".")))))
    TABLE.write_text(json.dumps(ordered, indent=1, sort_keys=False) + "\n", encoding="utf-8")


def main() -> int:
    probes = {code: diagnosis.probe for code, diagnosis in DIAGNOSES.items() if diagnosis.probe}
    tables = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    for python in [sys.executable, *sys.argv[1:]]:
        found = run_probes(probes, python)
        if found.trouble is not None:
            print(f"{python}: {found.trouble}", file=sys.stderr)
            return 1
        version = ".".join(found.machine["torch"].split(".")[:2])
        tables[version] = as_table(probes, found.breaks)
        write(tables)
        whole = sorted(code for code, breaks in found.breaks.items() if not breaks)
        print(f"torch {version}: does not break: {', '.join(whole) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
