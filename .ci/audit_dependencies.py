"""Look for known vulnerabilities in constraints.txt; not to reach the advisory service is reported, but no failure."""

from __future__ import annotations

import json
import subprocess
import sys
from http.client import HTTPException
from typing import Final
from urllib.request import urlopen

_SERVICE: Final = "https://pypi.org/pypi/pip/json"
_TIMEOUT_S: Final = 10
_OPTIONS: Final = ("--requirement", "constraints.txt", "--no-deps", "--disable-pip", "--format", "json")


def main() -> int:
    """The exit status of pip-audit; 0 without its service."""
    try:
        with urlopen(_SERVICE, timeout=_TIMEOUT_S) as response:
            json.load(response)
    except (OSError, HTTPException, ValueError):  # a proxy may answer in place of the service
        sys.stderr.write("Dependencies were not audited: the advisory service cannot be reached.\n")
        return 0
    command = [sys.executable, "-m", "pip_audit", "--progress-spinner", "off", *_OPTIONS]
    audit = subprocess.run(command, capture_output=True, check=False, text=True)
    if not audit.stdout:
        sys.stderr.write(audit.stderr)
        return audit.returncode
    dependencies = json.loads(audit.stdout)["dependencies"]
    for one in dependencies:
        for found in one.get("vulns", ()):
            sys.stderr.write(f"{one['name']} {one['version']}: {found['id']}, fixed in {found['fix_versions']}\n")
    # A mirror of the index may know the packages without their advisories: then nothing was audited, which is said.
    audited = sum("skip_reason" not in one for one in dependencies)
    sys.stderr.write(f"{audited} of {len(dependencies)} pinned dependencies were audited.\n")
    return audit.returncode


if __name__ == "__main__":
    sys.exit(main())
