"""``sparselabel doctor``: what this machine has, and how to get what is missing."""

import json as json_format
import sys
from dataclasses import replace
from pathlib import Path

from sparselabel.cli.terminal import plain_console
from sparselabel.errors import spell

SIGNS = {"ok": "✓", "missing": "–", "broken": "✗"}


def doctor(folder: Path = Path(), /, *, json: bool = False) -> None:
    """Show what this machine has (Python, torch, GPUs, memory, packages, weights) and what is missing.

    The exit code is 0 unless something required is broken.

    Example: `sparselabel doctor`

    Parameters
    ----------
    folder
        Folder for data and runs; default: the current folder.
    json
        Print JSON instead of text.
    """
    from sparselabel.doctor import as_json, broken, examine

    console = plain_console()
    findings = []
    for finding in examine(folder):
        what, remedy = (spell(text) for text in (finding.what, finding.remedy))
        findings.append(replace(finding, what=what, remedy=remedy))
        if not json:
            console.print(f"{SIGNS[finding.state]} {finding.name}: {what}")
            if remedy:
                console.print(f"    {remedy}")
    if json:
        console.print_json(json_format.dumps(as_json(findings)))
    elif broken(findings):
        console.print("something required is broken (✗): see above what to do")
    else:
        console.print("all that is required is there; – marks what is optional")
    if broken(findings):
        sys.exit(1)
