"""What the command line sets for the libraries it loads."""

import subprocess
import sys

import pytest

SHOW = """
import os, sys
sys.argv = ["spec-cli", "--version"]
from spec_cli.cli import main
try:
    main()
except SystemExit:
    print(os.environ.get("GOMP_SPINCOUNT"))
"""


@pytest.mark.parametrize(
    ("variables", "want"),
    [
        ({}, "3000"),
        ({"GOMP_SPINCOUNT": "5"}, "5"),
        ({"OMP_WAIT_POLICY": "passive"}, "None"),
    ],
)
def test_threads_spin_briefly_unless_told_otherwise(monkeypatch, variables, want):
    """The spin count of OpenMP is set before torch loads, and the user's own settings win."""
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    done = subprocess.run(
        [sys.executable, "-c", SHOW], capture_output=True, check=True, encoding="utf-8"
    )

    assert done.stdout.split()[-1] == want
