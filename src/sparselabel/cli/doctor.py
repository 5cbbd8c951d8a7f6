"""``sparselabel doctor``: what this machine has, and what to do about what is missing."""

import json as json_format
import sys
from pathlib import Path

from sparselabel.cli.terminal import plain_console

SIGNS = {"ok": "✓", "missing": "–", "broken": "✗"}


def doctor(folder: Path = Path(), /, *, json: bool = False) -> None:
    """Show what this machine has (Python, torch, GPUs, memory, packages, weights) and what is missing.

    The exit code is 0 unless something that is needed is broken.

    Example: `sparselabel doctor`

    Parameters
    ----------
    folder
        Where data and runs are to be; default: here.
    json
        Print JSON instead.
    """
    from sparselabel.doctor import as_json, broken, examine

    console = plain_console()
    findings = []
    for finding in examine(folder):
        findings.append(finding)
        if not json:
            console.print(f"{SIGNS[finding.state]} {finding.name}: {finding.what}")
            if finding.remedy:
                console.print(f"    {finding.remedy}")
    if json:
        console.print_json(json_format.dumps(as_json(findings)))
    elif broken(findings):
        console.print("something that is needed is broken (✗): see above what to do")
    else:
        console.print("all that is needed is there; – marks what can be done without")
    if broken(findings):
        sys.exit(1)
