"""``python -m tests.fuzz``: mutated inputs of every format, read in processes of their own."""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.formats import FORMATS
from tests.fuzz.session import Sample, fuzz, work


def main() -> int:
    """Say how many inputs went wrong, and where; 1 if some did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="inputs in all")
    parser.add_argument("--seconds", type=float, default=1e9, help="at most")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", nargs="+", choices=[*FORMATS], default=[*FORMATS])
    parser.add_argument("--case", nargs=2, metavar=("FORMAT", "NUMBER"), help="repeat one input")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        names, seed, first, step, last, report = json.loads(given.work)
        work(names, seed, first, step, last, Path(report))
        return 0
    if given.case:
        name, number = given.case[0], int(given.case[1])
        with tempfile.TemporaryDirectory() as folder:
            sample = Sample(name, Path(folder, "sample"))
            file, content = sample.damaged(given.seed, number)
            sys.stdout.write(
                f"{file.name}: {content[:2000]!r}\n{sample.fault(given.seed, number) or 'as it should be'}\n"
            )
        return 0
    began = time.monotonic()
    result = fuzz(
        given.format, given.count, seed=given.seed, processes=given.processes, seconds=given.seconds
    )
    sys.stdout.write("\n".join([*result.lines(), f"{time.monotonic() - began:.0f} s"]) + "\n")
    return int(bool(result.wrong))


if __name__ == "__main__":
    sys.exit(main())
