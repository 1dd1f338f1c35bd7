"""Look for known vulnerabilities in constraints.txt; not to reach the advisory service is reported, but no failure."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

_TIMEOUT_S: Final = 120
_OPTIONS: Final = ("--requirement", "constraints.txt", "--no-deps", "--disable-pip", "--format", "json")


def main() -> int:
    """The exit status of pip-audit; 0 without its service."""
    command = [sys.executable, "-m", "pip_audit", "--progress-spinner", "off", *_OPTIONS]
    try:
        audit = subprocess.run(command, capture_output=True, check=False, text=True, timeout=_TIMEOUT_S)
        dependencies = json.loads(audit.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError):  # without its service pip-audit prints no report
        sys.stderr.write("Dependencies were not audited: the advisory service cannot be reached.\n")
        return 0
    for one in dependencies:
        for found in one.get("vulns", ()):
            sys.stderr.write(f"{one['name']} {one['version']}: {found['id']}, fixed in {found['fix_versions']}\n")
    # A mirror of the index may know the packages without their advisories: then nothing was audited, which is said.
    audited = sum("skip_reason" not in one for one in dependencies)
    sys.stderr.write(f"{audited} of {len(dependencies)} pinned dependencies were audited.\n")
    return audit.returncode


if __name__ == "__main__":
    sys.exit(main())
