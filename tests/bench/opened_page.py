"""A report's page: what is inside, and what a real browser makes of it."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium")


def embedded_report(text: str) -> dict[str, Any]:
    """The report that a page holds; the page loads nothing."""
    links = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert all(link.startswith(("data:", "#")) for link in links)
    assert not re.search(r"url\(|@import", text)
    data = re.search(r'<script type="application/json" id="report">(.*?)</script>', text, re.S)
    assert data is not None
    return dict(json.loads(data[1].replace("<\\/", "</")))


def browse(path: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Open a page in headless Chromium that reaches no host."""
    assert CHROMIUM is not None
    return subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
            "--no-first-run", "--disable-background-networking", "--disable-component-update",
            "--disable-sync", f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND", *options, path.as_uri(),
        ],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
