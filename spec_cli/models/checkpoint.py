"""What is in a model folder, checked from file headers before anything is loaded.

Libraries read an index one way: they open the shards that are there and leave the tensors of the
others at their random start. The answer is then fluent nonsense, so a gap is found here.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from spec_cli.core.errors import ModelUnavailableError, UntrustedCodeError, UsageError

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
# The length of the header is the first thing in a safetensors file: 8 bytes, little endian.
_LENGTH_BYTES = 8
# The format's own limit; more is a file of another kind whose first bytes were taken for a length.
_MAX_HEADER_BYTES = 100_000_000
_CODE_FIELDS = ("config.json", "tokenizer_config.json")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model's files on this machine.

    Attributes:
        name: The model as the user named it.
        path: Folder with the files.
        revision: Commit of the hub repository, or None for anything else.
        source: Where the files came from.
        sha256: Hash of the file the weights were converted from, or None.
        gguf_file: File name in the folder to load instead of safetensors, or None.
    """

    name: str
    path: Path
    revision: str | None = None
    source: Literal["hub", "local", "gguf", "pypi"] = "local"
    sha256: str | None = None
    gguf_file: str | None = None


@dataclass(frozen=True, slots=True)
class WeightSummary:
    """Size of a checkpoint, counted from headers.

    Attributes:
        num_parameters: Numbers in all tensors.
        num_bytes: Their bytes on disk.
        dtype: The most frequent element type, as safetensors names it ("BF16"), or None.
    """

    num_parameters: int
    num_bytes: int
    dtype: str | None


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ModelUnavailableError: The file is missing, unreadable or not a JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelUnavailableError(f"{path} is missing.") from error
    except (OSError, ValueError) as error:
        raise ModelUnavailableError(
            f"{path} cannot be read: {error}.", hint="Fetch the model again."
        ) from error
    if not isinstance(content, dict):
        raise ModelUnavailableError(f"{path} should hold a JSON object, not {content!r:.40}.")
    return content


def check_folder(files: ModelFiles, *, remote_names: Iterable[str] = ()) -> None:
    """Check that a folder holds a complete model that can be loaded safely.

    Args:
        files: The folder.
        remote_names: Names of files its repository has but that were not fetched.

    Raises:
        UsageError: The folder holds a LoRA adapter, or weights only as pickles.
        ModelUnavailableError: A file is missing, cut short or damaged; the message names it.
    """
    path = files.path
    if (path / "adapter_config.json").is_file() and not (path / "config.json").is_file():
        raise UsageError(
            f"{files.name} is a LoRA adapter, not a whole model: {path} has adapter_config.json"
            " and no config.json.",
            hint="Merge it into its base model first (peft: merge_and_unload, save_pretrained).",
        )
    if not (path / "config.json").is_file():
        raise ModelUnavailableError(
            f"{files.name} is incomplete: {path} has no config.json.",
            hint="Name a folder with config.json, or a .gguf file.",
        )
    read_json(path / "config.json")
    names = {entry.name for entry in path.iterdir()} | set(remote_names)
    for shard, tensors in _expected_tensors(files, names).items():
        header = read_header(path / shard)
        lacking = sorted(tensors - header.keys())
        if lacking:
            raise ModelUnavailableError(
                f"{path / shard} lacks {len(lacking)} of the tensors that {INDEX_FILE} promises,"
                f" the first is {lacking[0]}.",
                hint="Fetch the model again.",
            )


def _expected_tensors(files: ModelFiles, names: set[str]) -> dict[str, set[str]]:
    """Tensors by the shard they should be in; those of a single file are not known beforehand."""
    # The order of the library: a single file wins over an index.
    if (files.path / SINGLE_FILE).is_file():
        return {SINGLE_FILE: set()}
    if not (files.path / INDEX_FILE).is_file():
        raise _no_weights(files, names)
    weight_map = read_json(files.path / INDEX_FILE).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelUnavailableError(
            f"{files.path / INDEX_FILE} has no weight_map.", hint="Fetch the model again."
        )
    expected: dict[str, set[str]] = {}
    for tensor, shard in weight_map.items():
        # A name such as ../../x would reach out of the folder.
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise ModelUnavailableError(f"{files.path / INDEX_FILE} names a bad file: {shard!r}.")
        expected.setdefault(shard, set()).add(tensor)
    missing = sorted(shard for shard in expected if not (files.path / shard).is_file())
    if missing:
        raise ModelUnavailableError(
            f"{files.name} is incomplete: {len(missing)} of {len(expected)} weight files are"
            f" missing from {files.path}: {', '.join(missing)}.",
            hint="Fetch the model again; a stopped download goes on where it ended.",
        )
    return expected


def _no_weights(files: ModelFiles, names: set[str]) -> Exception:
    pickles = sorted(name for name in names if name.endswith((".bin", ".pt", ".pth", ".ckpt")))
    ggufs = sorted(name for name in names if name.endswith(".gguf"))
    if pickles:
        return UsageError(
            f"{files.name} has weights only as pickle files ({pickles[0]}), which run code when"
            " they are opened; only safetensors are loaded.",
            hint="Use a safetensors copy of the model, or convert this one and name the folder.",
        )
    if ggufs:
        return UsageError(
            f"{files.name} has no safetensors, but GGUF files ({', '.join(ggufs[:3])}).",
            hint=f"Fetch one and name it: -m ./{ggufs[0]}",
        )
    return ModelUnavailableError(
        f"{files.name} is incomplete: {files.path} has neither {SINGLE_FILE} nor {INDEX_FILE}.",
        hint="Fetch the model again.",
    )


def weight_files(path: Path) -> tuple[Path, ...]:
    """Safetensors files of a folder that `check_folder` has passed."""
    if (path / SINGLE_FILE).is_file():
        return (path / SINGLE_FILE,)
    shards = set(read_json(path / INDEX_FILE)["weight_map"].values())
    return tuple(path / shard for shard in sorted(shards))


def read_header(path: Path) -> dict[str, dict[str, Any]]:
    """Read a safetensors file's table of tensors and hold it against the file's size.

    Returns:
        Tensor name to dtype, shape and data_offsets.

    Raises:
        ModelUnavailableError: The file is missing, cut short or no safetensors file.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if size < _LENGTH_BYTES + length or length > _MAX_HEADER_BYTES:
                raise ValueError(f"{size:,} bytes are too few for its table of tensors")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        end = max((int(entry["data_offsets"][1]) for entry in header.values()), default=0)
    except FileNotFoundError as error:
        raise ModelUnavailableError(f"{path} is missing.", hint="Fetch the model again.") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ModelUnavailableError(
            f"{path} is damaged: {error}.", hint="Delete it and fetch the model again."
        ) from error
    expected = _LENGTH_BYTES + length + end
    if size != expected:
        raise ModelUnavailableError(
            f"{path} is {'cut short' if size < expected else 'damaged'}: it has {size:,} bytes and"
            f" should have {expected:,}.",
            hint="Delete it and fetch the model again.",
        )
    return dict(header)


def summarize_weights(path: Path) -> WeightSummary:
    """Count a folder's weights without reading them."""
    num_bytes = 0
    counts: Counter[str] = Counter()
    for file in weight_files(path):
        for entry in read_header(file).values():
            start, end = entry["data_offsets"]
            num_bytes += end - start
            size = 1
            for axis in entry["shape"]:
                size *= axis
            counts[entry["dtype"]] += size
    dtype = counts.most_common(1)[0][0] if counts else None
    return WeightSummary(sum(counts.values()), num_bytes, dtype)


def refuse_untrusted_code(files: ModelFiles, *, trust_remote_code: bool) -> None:
    """Stop before a folder's Python code could run without permission.

    Raises:
        UntrustedCodeError: A config names code (auto_map) and nobody allowed it.
    """
    if trust_remote_code:
        return
    for name in _CODE_FIELDS:
        if not (files.path / name).is_file():
            continue
        if read_json(files.path / name).get("auto_map"):
            raise UntrustedCodeError(
                f"{files.name} wants to run Python code of its own: {files.path / name} has"
                " auto_map. Nothing was run.",
                hint="Read the code; if you trust it, add --trust-remote-code\n"
                "Or take auto_map out of a copy of the folder, if its model type is a known one.",
            )
