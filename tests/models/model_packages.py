"""A tiny model in a wheel, as the default model comes from PyPI."""

import hashlib
import zipfile
from pathlib import Path

from spec_cli.models.package_download import PackagedModel
from tests.models.model_folders import write_gguf

MEMBER = "tiny_model/tiny.gguf"


def build_package(folder: Path) -> tuple[PackagedModel, Path]:
    """Write a valid wheel with a GGUF file in it."""
    folder.mkdir(parents=True, exist_ok=True)
    content = write_gguf(folder / "tiny.gguf").read_bytes()
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MEMBER, content)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    model = PackagedModel(
        repo="org/tiny",
        requirement="tiny-model==1.0",
        member=MEMBER,
        sha256=hashlib.sha256(content).hexdigest(),
        wheel_bytes=wheel.stat().st_size,
    )
    return model, wheel
