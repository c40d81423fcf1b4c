"""The command line: one module per command, loaded light so that `--help` answers at once."""

import io
import os
import sys


def main() -> None:
    """Run `spec-cli` with the arguments of the process."""
    if "OMP_WAIT_POLICY" not in os.environ:
        # Threads that wait for each other spin briefly, then sleep; OpenMP's own default spins so
        # long that one busy program beside us made a step thirty times slower. Read when torch is
        # loaded (docs/design/decisions/0007-short-spins.md).
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that lacks a character shows another; the answer goes on.
            stream.reconfigure(errors="replace")
    try:
        from spec_cli.cli.main import app

        app(prog_name="spec-cli")
    except KeyboardInterrupt:
        # Ctrl-C so early that nothing was set up to answer it.
        sys.exit(130)
