"""Known vulnerabilities of what is installed, and a bill of materials (CycloneDX, JSON).

    python tools/audit.py [build/sbom.json]

The bill needs no network. Where the list of vulnerabilities cannot be reached the audit says so and
ends well, so that it can run anywhere; a vulnerability that was found ends it with status 1.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

UNREACHABLE = ("ConnectionError", "Max retries", "Name or service", "timed out", "ServiceError")


def component(found: metadata.Distribution) -> dict[str, Any]:
    """One installed package."""
    name, version = found.metadata["Name"], found.version
    out: dict[str, Any] = {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name.lower().replace('_', '-')}@{version}",
    }
    expression = found.metadata.get("License-Expression")
    return {**out, "licenses": [{"expression": expression}]} if expression else out


def bill() -> dict[str, Any]:
    """Everything that is installed beside this interpreter."""
    packages = {d.metadata["Name"].lower(): component(d) for d in metadata.distributions()}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {"timestamp": datetime.now(timezone.utc).isoformat(timespec="seconds")},
        "components": [packages[name] for name in sorted(packages)],
    }


def main() -> int:
    file = Path(sys.argv[1] if len(sys.argv) > 1 else "build/sbom.json")
    file.parent.mkdir(parents=True, exist_ok=True)
    found = bill()
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{file}: {len(found['components'])} packages\n")
    command = [sys.executable, "-m", "pip_audit", "--skip-editable", "--progress-spinner", "off"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and any(word in done.stderr for word in UNREACHABLE):
        sys.stdout.write("pip-audit: the list of vulnerabilities is out of reach, not audited\n")
        return 0
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return 1 if done.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
