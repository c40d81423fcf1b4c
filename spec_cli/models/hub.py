"""From the name of a model to its files on this machine."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spec_cli.core.errors import ModelUnavailableError, SpecCliError, UsageError, first_line
from spec_cli.core.progress import ReportStage, Stage
from spec_cli.models.checkpoint import ModelFiles, check_folder
from spec_cli.models.gguf_header import read_gguf_header

__all__ = ["ModelFiles", "find_model"]

# Weights only as safetensors: pickles run code when opened. Code files are fetched, so that
# --trust-remote-code works offline; they are inert until that flag is given.
_WANTED = (
    "*.json",
    "*.safetensors",
    "tokenizer*",
    "*.model",
    "*.tiktoken",
    "*.jinja",
    "*.txt",
    "*.py",
)
# Second copies of the same weights in other forms.
_UNWANTED = ("consolidated*", "original/*", "onnx/*", "*/*.safetensors", "*.fp16.safetensors")
_REPO_ID = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)?")
_COMMIT = re.compile(r"[0-9a-f]{40}")

# (repository, revision, cache folder, report) -> folder of the snapshot
Download = Callable[[str, str | None, Path | None, ReportStage], Path]


def find_model(
    name: str | None,
    *,
    revision: str | None = None,
    offline: bool = False,
    cache_dir: Path | None = None,
    report: ReportStage,
    download: Download | None = None,
) -> ModelFiles:
    """Find a model's files, fetching them where that is needed and allowed.

    Args:
        name: `org/name` or `org/name@revision` of the hub, a folder, or a .gguf file; None is the
            default model.
        revision: Branch, tag or commit of the hub repository.
        offline: Use no network; HF_HUB_OFFLINE means the same.
        cache_dir: Folder of downloads instead of Hugging Face's own.
        report: Told of the progress of downloads.
        download: Fetches a snapshot; the hub's own way by default.

    Returns:
        Files that passed `check_folder`.

    Raises:
        UsageError: The name and the options contradict each other, or the model is of a kind that
            is refused.
        ModelUnavailableError: There is no such model, it is incomplete, gated, or out of reach.
    """
    offline = offline or _offline_by_environment()
    if name is None:
        from spec_cli.models.default_model import find_default_model

        return find_default_model(
            revision=revision, offline=offline, cache_dir=cache_dir, report=report
        )
    local = _local_path(name)
    if local is not None:
        if revision is not None:
            raise UsageError(f"{name} is on this machine and has no revision {revision}.")
        return _local_files(name, local)
    repo, revision = split_revision(name, revision)
    return find_on_hub(
        name,
        repo,
        revision,
        offline=offline,
        cache_dir=cache_dir,
        report=report,
        download=download or download_snapshot,
    )


def split_revision(name: str, revision: str | None) -> tuple[str, str | None]:
    """Take `org/name@revision` apart.

    Raises:
        UsageError: The name is malformed, or another revision was asked for as well.
    """
    repo, separator, pinned = name.partition("@")
    if not _REPO_ID.fullmatch(repo) or (separator and not pinned):
        raise UsageError(
            f"{name!r} is not the name of a model.",
            hint="Name one as org/name, org/name@revision, ./folder or ./file.gguf",
        )
    if pinned and revision is not None and revision != pinned:
        raise UsageError(f"{name} pins revision {pinned}, but the revision given is {revision}.")
    return repo, pinned or revision


def find_on_hub(
    name: str,
    repo: str,
    revision: str | None,
    *,
    offline: bool,
    cache_dir: Path | None,
    report: ReportStage,
    download: Download,
) -> ModelFiles:
    """Find one repository's files in the cache or on the hub; see `find_model`."""
    path = (
        _cached(repo, revision, cache_dir)
        if offline
        else _fetch(repo, revision, cache_dir, report, download)
    )
    commit = path.name if _COMMIT.fullmatch(path.name) else revision
    files = ModelFiles(name=name, path=path, revision=commit, source="hub")
    check_folder(files, remote_names=() if offline else _unfetched_names(path, repo, commit))
    return files


def _cached(repo: str, revision: str | None, cache_dir: Path | None) -> Path:
    path = cached_snapshot(repo, revision, cache_dir)
    if path is None:
        wanted = f"revision {revision} of {repo}" if revision else repo
        raise ModelUnavailableError(
            f"{wanted} is not in the cache, and offline mode forbids to fetch it.",
            hint="Run once without --offline (and without HF_HUB_OFFLINE).",
        )
    return path


def _fetch(
    repo: str,
    revision: str | None,
    cache_dir: Path | None,
    report: ReportStage,
    download: Download,
) -> Path:
    """Fetch a snapshot, or use the cached one where there is no connection."""
    report(Stage("download", repo))
    try:
        return download(repo, revision, cache_dir, report)
    except Exception as error:
        # The library's failures have no common class; each becomes one message here.
        if _status(error) is None:
            # No answer at all. The library takes a cached copy only if it has the files that other
            # programs had no use for as well; what is needed is checked by the caller.
            cached = cached_snapshot(repo, revision, cache_dir)
            if cached is not None:
                report(Stage("download", f"{repo} (no connection; using the cached copy)"))
                return cached
        raise _explain(error, repo, revision) from error


def cached_snapshot(repo: str, revision: str | None, cache_dir: Path | None) -> Path | None:
    """Folder of a repository's snapshot if it is in the cache, complete or not."""
    from huggingface_hub import try_to_load_from_cache

    # Not snapshot_download(local_files_only=True): it also misses files that other programs had no
    # use for, such as a README. What is needed is checked afterwards, file by file.
    for file in ("config.json", "adapter_config.json"):
        found = try_to_load_from_cache(repo, file, cache_dir=cache_dir, revision=revision)
        if isinstance(found, str):
            return Path(found).parent
    return None


def download_snapshot(
    repo: str, revision: str | None, cache_dir: Path | None, report: ReportStage
) -> Path:
    """Fetch what is missing of a repository's snapshot, without output of the library's own."""
    from huggingface_hub import snapshot_download

    from spec_cli.models.download_progress import progress_class

    folder = snapshot_download(
        repo,
        revision=revision,
        cache_dir=cache_dir,
        allow_patterns=list(_WANTED),
        ignore_patterns=list(_UNWANTED),
        tqdm_class=progress_class(repo, report),
    )
    return Path(folder)


def _local_path(name: str) -> Path | None:
    """The path a name means, or None where it means a hub repository."""
    path = Path(name).expanduser()
    looks_local = name.startswith((".", "/", "~", os.sep)) or name.endswith(".gguf")
    if looks_local or name.count("/") > 1 or (os.sep != "/" and os.sep in name) or path.exists():
        return path
    return None


def _local_files(name: str, path: Path) -> ModelFiles:
    if not path.exists():
        raise ModelUnavailableError(
            f"{name} does not exist: there is no {path.absolute()}.",
            hint="Models of the hub are named org/name.",
        )
    if path.is_file():
        if path.suffix != ".gguf":
            raise UsageError(
                f"{name} is a file of an unknown kind.", hint="Name a folder or a .gguf file."
            )
        read_gguf_header(path)
        return ModelFiles(
            name=name, path=path.absolute().parent, source="gguf", gguf_file=path.name
        )
    files = ModelFiles(name=name, path=path.absolute(), source="local")
    check_folder(files)
    return files


def _offline_by_environment() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def _unfetched_names(path: Path, repo: str, revision: str | None) -> tuple[str, ...]:
    """Names of the repository's files, asked for only where no weights came with the snapshot."""
    if any(path.glob("*.safetensors")) or not (path / "config.json").is_file():
        return ()
    from huggingface_hub import HfApi

    try:
        return tuple(HfApi().list_repo_files(repo, revision=revision))
    except Exception:  # The listing only makes the message better; without it there still is one.
        return ()


def _explain(error: Exception, repo: str, revision: str | None) -> SpecCliError:
    """Turn a failed download into one message."""
    from huggingface_hub import errors

    page = f"https://huggingface.co/{repo}"
    if isinstance(error, errors.GatedRepoError):
        return ModelUnavailableError(
            f"{repo} is gated: its owner must grant you access.",
            hint=f"Accept the terms at {page} and log in: hf auth login",
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return ModelUnavailableError(
            f"{repo} is not on the hub, or it is private.",
            hint=f"Check the name at {page}\nFor a private model log in: hf auth login",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return ModelUnavailableError(
            f"{repo} has no revision {revision}.", hint=f"Branches and commits: {page}/commits"
        )
    status = _status(error)
    if status in (401, 403):
        return ModelUnavailableError(
            f"The hub refuses access to {repo} (HTTP {status}).", hint="Log in: hf auth login"
        )
    if status is not None:
        return ModelUnavailableError(
            f"The hub answered HTTP {status} for {repo}.", hint="Try again later."
        )
    cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
    reason = first_line(cause)
    return ModelUnavailableError(
        f"{repo} is not in the cache and could not be fetched: {reason}.",
        hint="Check the network, or name a folder: -m ./folder",
    )


def _status(error: BaseException | None) -> int | None:
    """HTTP status of an error or of what caused it."""
    while error is not None:
        response: Any = getattr(error, "response", None)
        status = getattr(response, "status_code", None)
        if isinstance(status, int):
            return status
        error = error.__cause__
    return None
