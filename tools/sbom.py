"""``make sbom`` and ``make audit``: what is installed as CycloneDX, and what is known against it.

``python -m tools.sbom FILE`` turns the output of ``pip inspect`` in a file into CycloneDX 1.5, in place.
``python -m tools.sbom --audit CONSTRAINTS`` asks pip-audit, and says so where it cannot.
"""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

UNREACHABLE = (
    "ConnectionError",
    "Max retries",
    "ServiceError",
    "Temporary failure",
    "timed out",
    "403",
    "404",
)


def cyclonedx(inspected: dict[str, Any]) -> dict[str, Any]:
    """The packages that pip names, as a bill of materials; ours is what it is about."""
    components = []
    for package in inspected["installed"]:
        about = package["metadata"]
        name = re.sub(r"[-_.]+", "-", about["name"]).lower()
        license_name = about.get("license_expression") or about.get("license") or ""
        component = {
            "type": "library",
            "name": name,
            "version": about["version"],
            "purl": f"pkg:pypi/{name}@{about['version']}",
        }
        if license_name and "\n" not in license_name:
            component["licenses"] = [{"license": {"name": license_name}}]
        components.append(component)
    components.sort(key=lambda component: component["name"])
    own = next((one for one in components if one["name"] == "sparselabel"), None)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": own} if own else {},
        "components": [one for one in components if one is not own],
    }


def audit(constraints: Path) -> int:
    """The exit code of pip-audit; 0, with a word, where it cannot ask anybody."""
    if find_spec("pip_audit") is None:
        print("audit skipped: pip-audit is not installed (pip install pip-audit)")  # noqa: T201
        return 0
    asked = [
        sys.executable,
        "-m",
        "pip_audit",
        "--requirement",
        str(constraints),
        "--no-deps",
        "--disable-pip",
    ]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode and any(word in done.stderr for word in UNREACHABLE):
        print("audit skipped: no database of vulnerabilities can be reached")  # noqa: T201
        return 0
    print(done.stdout + done.stderr)  # noqa: T201
    return done.returncode


def main() -> None:
    """Convert, or audit."""
    if sys.argv[1] == "--audit":
        sys.exit(audit(Path(sys.argv[2])))
    file = Path(sys.argv[1])
    bill = cyclonedx(json.loads(file.read_text(encoding="utf-8")))
    file.write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    print(f"{len(bill['components'])} packages in {file}")  # noqa: T201


if __name__ == "__main__":
    main()
