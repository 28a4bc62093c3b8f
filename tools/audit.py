"""Known vulnerabilities of what is installed, and a bill of materials (CycloneDX, JSON).

    python tools/audit.py [build/sbom.json]

The bill needs no network. Where the list of vulnerabilities cannot be reached the audit says so and
ends well, so that it can run anywhere; a vulnerability that was found ends it with status 1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

UNREACHABLE = ("ConnectionError", "Max retries", "Name or service", "timed out", "ServiceError")
MOST_SECONDS = 180


def component(found: metadata.Distribution) -> dict[str, Any]:
    """One installed package."""
    name, version = found.metadata["Name"], found.version
    out: dict[str, Any] = {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name.lower().replace('_', '-')}@{version}",
    }
    expression = found.metadata.json.get("license_expression")
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


def _not_audited(why: str) -> int:
    sys.stdout.write(f"pip-audit: not audited, {why}\n")
    return 0


def audit() -> int:
    """Asks pip-audit; 1 where it knows a vulnerability."""
    if os.environ.get("SEBRA_OFFLINE") == "1":
        return _not_audited("SEBRA_OFFLINE is set")
    command = [sys.executable, "-m", "pip_audit", "--skip-editable", "--progress-spinner", "off"]
    try:
        done = subprocess.run(
            [*command, "--timeout", "10", "--format", "json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=MOST_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return _not_audited(f"no answer in {MOST_SECONDS} s")
    try:
        answers = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        if any(word in done.stderr for word in UNREACHABLE):
            return _not_audited("the list of vulnerabilities is out of reach")
        sys.stderr.write(done.stderr)
        return 1
    known = [a for a in answers if "skip_reason" not in a]
    if not known:
        return _not_audited("the list of vulnerabilities knows none of these packages")
    bad = [(a, v) for a in known for v in a["vulns"]]
    for package, found in bad:
        mended = ", ".join(found["fix_versions"]) or "no release yet"
        line = f"{package['name']} {package['version']}: {found['id']}, mended in {mended}"
        sys.stdout.write(line + "\n")
    total = f"{len(known)} packages audited, {len(answers) - len(known)} unknown to the list"
    sys.stdout.write(f"pip-audit: {total}, {len(bad)} vulnerabilities\n")
    return 1 if bad else 0


def main() -> int:
    file = Path(sys.argv[1] if len(sys.argv) > 1 else "build/sbom.json")
    file.parent.mkdir(parents=True, exist_ok=True)
    found = bill()
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{file}: {len(found['components'])} packages\n")
    return audit()


if __name__ == "__main__":
    sys.exit(main())
