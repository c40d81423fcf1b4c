"""The head of a GGUF file: its scalar settings and the size of its tensors.

The gguf package builds arrays for all of the vocabulary first, which takes seconds; here arrays
are walked past.
"""

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from spec_cli.core.errors import ModelUnavailableError

Scalar = int | float | bool | str

_MAGIC = b"GGUF"
# Type codes of the format (gguf specification, section "Metadata value types").
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
# Far above any real file's, and small enough that a damaged one cannot ask for all of the memory.
_MAX_STRING_BYTES = 1 << 26
# A larger one is a small one in the other byte order.
_MAX_VERSION = 0xFFFF


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What the head of a GGUF file says.

    Attributes:
        settings: Numbers, flags and strings of the metadata; arrays are left out.
        num_parameters: Numbers in all tensors.
    """

    settings: dict[str, Scalar]
    num_parameters: int


def read_gguf_header(path: Path) -> GgufHeader:
    """Read the head of a GGUF file and check that its last tensor lies within the file.

    Raises:
        ModelUnavailableError: The file is missing, cut short or no GGUF file of version 2 or later.
    """
    try:
        with path.open("rb") as file:
            if file.read(4) != _MAGIC:
                raise ValueError("it does not begin with GGUF")
            version, num_tensors, num_settings = _unpack(file, "IQQ")
            if not 2 <= version <= _MAX_VERSION:
                raise ValueError(f"version {version} or its byte order is not supported")
            settings = _settings(file, num_settings)
            num_parameters, last_offset = _tensors(file, num_tensors)
            end = file.tell() + last_offset
    except FileNotFoundError as error:
        raise ModelUnavailableError(f"{path} is missing.") from error
    except (OSError, ValueError, struct.error) as error:
        raise ModelUnavailableError(
            f"{path} cannot be read as GGUF: {error}.", hint="Fetch the file again."
        ) from error
    size = path.stat().st_size
    if num_tensors and size <= end:
        raise ModelUnavailableError(
            f"{path} is cut short: it has {size:,} bytes, and its last tensor begins at {end:,}.",
            hint="Fetch the file again.",
        )
    return GgufHeader(settings, num_parameters)


def _settings(file: BinaryIO, count: int) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {}
    for _ in range(count):
        name = _string(file)
        (kind,) = _unpack(file, "I")
        value = _value(file, kind)
        if value is not None:
            found[name] = value
    return found


def _tensors(file: BinaryIO, count: int) -> tuple[int, int]:
    """Number of parameters and offset of the last tensor."""
    num_parameters = last_offset = 0
    for _ in range(count):
        _string(file)
        (num_axes,) = _unpack(file, "I")
        num_parameters += math.prod(_unpack(file, f"{num_axes}Q"))
        _kind, offset = _unpack(file, "IQ")
        last_offset = max(last_offset, offset)
    return num_parameters, last_offset


def _unpack(file: BinaryIO, layout: str) -> tuple[int, ...]:
    layout = "<" + layout
    return struct.unpack(layout, file.read(struct.calcsize(layout)))


def _length(file: BinaryIO) -> int:
    (length,) = _unpack(file, "Q")
    if length > _MAX_STRING_BYTES:
        raise ValueError(f"a length of {length:,} is not plausible")
    return length


def _string(file: BinaryIO) -> str:
    return file.read(_length(file)).decode("utf-8", errors="replace")


def _value(file: BinaryIO, kind: int) -> Scalar | None:
    """Read one value, or walk past an array and return None."""
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        (item,) = _unpack(file, "I")
        count = _length(file)
        if item in _SCALARS:
            file.seek(count * struct.calcsize("<" + _SCALARS[item]), 1)
        else:
            for _ in range(count):
                _skip(file, item)
        return None
    if kind not in _SCALARS:
        raise ValueError(f"value type {kind} is unknown")
    (scalar,) = _unpack(file, _SCALARS[kind])
    return scalar


def _skip(file: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        file.seek(_length(file), 1)
    else:
        _value(file, kind)
