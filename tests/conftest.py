"""What holds for every test: a clean environment, no hub, seeded random numbers."""

import os
import sys

import pytest

# Settings of the user or the machine that would change what a test sees.
FOREIGN = ("SPEC_CLI_", "HF_", "HUGGINGFACE_", "TRANSFORMERS_")
TERMINAL = ("NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS", "COLUMNS", "LINES", "TTY_COMPATIBLE")


def runs_real_models(config: pytest.Config) -> bool:
    """Whether this run is for the tests of the real model, as `-m real` asks."""
    expression: str = config.option.markexpr
    return "real" in expression and "not real" not in expression


def pytest_configure(config: pytest.Config) -> None:
    """Close the hub before anything is imported: its library reads this only once."""
    if not runs_real_models(config):
        os.environ["HF_HUB_OFFLINE"] = "1"
        # Tiny models gain nothing from a second thread, and a busy machine makes threads that
        # wait for each other very slow.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@pytest.fixture(autouse=True)
def clean_environment(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory
) -> None:
    """No settings from outside; a test marked `real` keeps the hub and the cache of models."""
    is_real = request.node.get_closest_marker("real") is not None
    for name in list(os.environ):
        own = name.startswith("SPEC_CLI_") or name in TERMINAL
        if own or (name.startswith(FOREIGN) and not is_real):
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    for kind in ("CONFIG", "DATA", "STATE") if is_real else ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(home / kind.lower()))
    monkeypatch.setenv("TERM", "xterm-256color")
    if not is_real:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    elif not runs_real_models(request.config):
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Same random numbers in every run; torch is seeded only where it is loaded."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)
