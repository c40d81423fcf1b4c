"""Target and draft model: found, compared, then loaded, each with its runner."""

import time
from dataclasses import dataclass, replace

from spec_cli.core.byte_size import format_bytes
from spec_cli.core.config import EngineConfig
from spec_cli.core.errors import InsufficientMemoryError, SpecCliError, UsageError
from spec_cli.core.progress import ReportStage, Stage
from spec_cli.models.base import Runner
from spec_cli.models.budget import MemoryBudget
from spec_cli.models.checkpoint import ModelFiles
from spec_cli.models.compat import PairReport, TokenizerView, check_pair, tokenizer_view
from spec_cli.models.exact import make_exact
from spec_cli.models.hub import find_model
from spec_cli.models.loader import LoadedModel, LoadOptions, cache_support, load_model, read_config
from spec_cli.models.memory import free_memory
from spec_cli.models.packing import pack_linears
from spec_cli.models.plain_runner import PlainRunner
from spec_cli.models.runner import ModelRunner
from spec_cli.models.tokenizer import TextTokenizer
from spec_cli.models.tokenizer_files import load_tokenizer
from spec_cli.proposers.suffix import MAX_SESSION_TOKENS
from spec_cli.proposers.suffix_index import RecentTexts

_CACHE_SHARE = 0.8
"""Part of the memory left beside the weights that caches may take; the rest is for activations."""
_UNKNOWN_FREE = 4 << 30


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model whose files, config and tokenizer were read; weights are still to come.

    Attributes:
        files: Where they are.
        tokenizer: Its tokenizer.
        view: What its token ids mean.
        trust_remote_code: Whether code from its folder may run.
    """

    files: ModelFiles
    tokenizer: TextTokenizer
    view: TokenizerView
    trust_remote_code: bool


@dataclass(frozen=True, slots=True)
class TargetModel:
    """The loaded target.

    Attributes:
        found: Files and tokenizer.
        loaded: Weights and what the files say of them.
        runner: Its rows and forward.
        budget: Memory for the caches of target and draft.
        answers: What it wrote lately; every way to look up shares them.
        first_forward_s: Seconds that making the runner took: more than its forward of one token.
        off_reason: Why nothing can be verified with it, or None.
        notices: What the user should know.
    """

    found: FoundModel
    loaded: LoadedModel
    runner: Runner
    budget: MemoryBudget
    answers: RecentTexts
    first_forward_s: float
    off_reason: str | None
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DraftModel:
    """The loaded draft model, and how its token ids compare with the target's."""

    loaded: LoadedModel
    runner: ModelRunner
    pair: PairReport


def find_target(config: EngineConfig, report: ReportStage) -> FoundModel:
    """Find the target's files and read its tokenizer."""
    files = find_model(
        config.model,
        revision=config.revision,
        offline=config.offline,
        cache_dir=config.cache_dir,
        report=report,
    )
    return _read(files, trust=config.trust_remote_code)


def find_draft(
    config: EngineConfig, target: FoundModel, report: ReportStage
) -> tuple[FoundModel, PairReport]:
    """Find the draft model's files and compare its tokenizer with the target's.

    Raises:
        DraftIncompatibleError: The two do not share their token ids.
        SpecCliError: The draft model cannot be had; the message names it.
    """
    try:
        files = find_model(
            config.draft_model,
            revision=config.draft_revision,
            offline=config.offline,
            cache_dir=config.cache_dir,
            report=report,
        )
        trust = config.draft_trust_remote_code
        support, reason = cache_support(read_config(files, trust_remote_code=trust))
        if support != "rollback":
            hint = "--spec ngram needs no draft model"
            raise UsageError(f"it cannot draft: {reason}.", hint=hint)
        found = _read(files, trust=trust)
    except SpecCliError as error:
        raise _name_draft(error, config) from error
    return found, check_pair(target.view, found.view)


def load_target(config: EngineConfig, found: FoundModel, report: ReportStage) -> TargetModel:
    """Load the target's weights and give it a runner.

    Raises:
        SpecCliError: It cannot be loaded, or not with this context or memory.
    """
    loaded = _load_weights(found, config, config.device, config.memory_bytes, report)
    limit = _context_limit(config, loaded)
    budget = _make_budget(config, loaded)
    notices = list(loaded.notices)
    if loaded.ignored_fields:
        names = ", ".join(loaded.ignored_fields)
        notices.append(f"generation_config.json also sets {names}, which is not honoured.")
    support, reason = cache_support(loaded.config)
    runner: Runner | None = None
    begin = time.perf_counter()
    if support == "rollback":
        try:
            runner = ModelRunner(loaded.model, context_length=limit, budget=budget)
        except UsageError as error:
            loaded.model.set_attn_implementation("eager")
            reason = str(error).rstrip(".")
    if runner is None:
        notices.append(f"speculation is off: {reason}. Continuing with plain decoding.")
        runner = PlainRunner(loaded.model, context_length=limit, budget=budget)
    first_forward_s = time.perf_counter() - begin
    if config.exact:
        if not isinstance(runner, ModelRunner):
            raise UsageError(f"exact is not available: {reason}.", hint="Leave out --exact.")
        report(Stage("shape", found.files.name))
        notices.append(f"exact: {make_exact(runner, loaded.model)}.")
    off_reason = None if runner.can_roll_back else reason
    return TargetModel(
        found=found,
        loaded=loaded,
        runner=runner,
        budget=budget,
        answers=RecentTexts(MAX_SESSION_TOKENS),
        first_forward_s=first_forward_s,
        off_reason=off_reason,
        notices=tuple(notices),
    )


def load_draft(
    config: EngineConfig,
    found: FoundModel,
    pair: PairReport,
    target: TargetModel,
    report: ReportStage,
) -> DraftModel:
    """Load the draft model's weights beside a target.

    Raises:
        SpecCliError: It cannot be loaded; the message names it.
    """
    device = config.draft_device or config.device
    try:
        left_bytes = None if config.memory_bytes is None else target.budget.total_bytes
        loaded = _load_weights(found, config, device, left_bytes, report)
        if config.memory_bytes is not None:
            _take_weights(target.budget, loaded.weight_bytes, config.memory_bytes)
        runner = ModelRunner(
            loaded.model,
            context_length=min(target.runner.context_length, loaded.context_length),
            budget=target.budget,
            vocab_size=target.runner.vocab_size,
        )
    except SpecCliError as error:
        raise _name_draft(error, config) from error
    return DraftModel(loaded, runner, pair)


def _read(files: ModelFiles, *, trust: bool) -> FoundModel:
    model_config = read_config(files, trust_remote_code=trust)
    tokenizer = load_tokenizer(files, trust_remote_code=trust)
    view = tokenizer_view(files.name, tokenizer, model_config)
    return FoundModel(files, TextTokenizer(tokenizer, files.name), view, trust)


def _load_weights(
    found: FoundModel,
    config: EngineConfig,
    device: str,
    left_bytes: int | None,
    report: ReportStage,
) -> LoadedModel:
    """Load a model's weights and lay them out; `left_bytes` is what --memory leaves for them."""
    options = LoadOptions(
        device=device, dtype=config.dtype, trust_remote_code=found.trust_remote_code
    )
    loaded = load_model(found.files, options, report)
    if loaded.device.type != "cpu":
        return loaded
    left = free_memory(loaded.device) if left_bytes is None else left_bytes - loaded.num_bytes
    # Copies get half of what the weights leave, so that caches get as much.
    packed = pack_linears(loaded.model, report, room_bytes=None if left is None else left // 2)
    notices = loaded.notices if packed.notice is None else (*loaded.notices, packed.notice)
    return replace(loaded, copy_bytes=packed.extra_bytes, notices=notices)


def _name_draft(error: SpecCliError, config: EngineConfig) -> SpecCliError:
    """The same failure, saying that it is the draft model's."""
    return type(error)(f"draft model {config.draft_model}: {error}", hint=error.hint)


def _make_budget(config: EngineConfig, target: LoadedModel) -> MemoryBudget:
    """Memory for caches: what --memory leaves beside the weights, or most of what is free."""
    if config.memory_bytes is None:
        free = free_memory(target.device)
        return MemoryBudget(int((free if free is not None else _UNKNOWN_FREE) * _CACHE_SHARE))
    budget = MemoryBudget(config.memory_bytes)
    _take_weights(budget, target.weight_bytes, config.memory_bytes)
    return budget


def _take_weights(budget: MemoryBudget, num_bytes: int, allowed: int) -> None:
    """Weights come out of what --memory allows."""
    budget.total_bytes -= num_bytes
    if budget.total_bytes <= 0:
        raise InsufficientMemoryError(
            f"the weights take {format_bytes(allowed - budget.total_bytes)}; --memory allows "
            f"{format_bytes(allowed)} for weights and cache.",
            hint="a larger --memory, --dtype bfloat16, or a smaller model",
        )


def _context_limit(config: EngineConfig, target: LoadedModel) -> int:
    limit = target.context_length
    if config.ctx_size is None:
        return limit
    if config.ctx_size > limit:
        raise UsageError(
            f"ctx_size {config.ctx_size:,} is more than the {limit:,} tokens that "
            f"{target.files.name} was made for.",
            hint=f"-c {limit}",
        )
    return config.ctx_size
