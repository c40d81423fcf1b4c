"""From a configuration to an engine with its models loaded."""

import time
from dataclasses import dataclass

import torch

from spec_cli.core.config import EngineConfig
from spec_cli.core.errors import InsufficientMemoryError, SpecCliError, UsageError
from spec_cli.core.progress import ReportStage
from spec_cli.engine.engine import Engine
from spec_cli.engine.parts import EngineParts
from spec_cli.models.base import Runner
from spec_cli.models.budget import MemoryBudget, format_bytes
from spec_cli.models.checkpoint import ModelFiles
from spec_cli.models.compat import PairReport, check_pair, tokenizer_view
from spec_cli.models.hub import find_model
from spec_cli.models.loader import (
    LoadedModel,
    LoadOptions,
    cache_support,
    context_length,
    load_model,
    read_config,
)
from spec_cli.models.memory import free_memory
from spec_cli.models.packing import pack_linears
from spec_cli.models.plain_runner import PlainRunner
from spec_cli.models.runner import ModelRunner
from spec_cli.models.text import TextStreams
from spec_cli.models.tokenizer import TextTokenizer
from spec_cli.models.tokenizer_files import load_tokenizer
from spec_cli.policy.base import FixedPolicy, Policy
from spec_cli.policy.goodput import GoodputPolicy
from spec_cli.proposers.base import Proposer
from spec_cli.proposers.draft_model import DraftModelProposer
from spec_cli.proposers.ngram import NgramProposer

_DEFAULT_ROWS = 16
_CACHE_SHARE = 0.8
"""Part of the memory left beside the weights that caches may take; the rest is for activations."""
_UNKNOWN_FREE = 4 << 30


@dataclass(frozen=True, slots=True)
class Assembly:
    """An engine and what its readers need to know of it.

    Attributes:
        engine: Idle.
        tokenizer: The target's.
        texts: Turns the engine's tokens into text.
        target: The target as loaded.
        draft: The draft model as loaded, or None.
        spec: Who guesses.
        context_length: Most tokens of a row, prompt included.
        budget: Memory of the caches.
        notices: What the user should know before the first token, one sentence each.
    """

    engine: Engine
    tokenizer: TextTokenizer
    texts: TextStreams
    target: LoadedModel
    draft: LoadedModel | None
    spec: str
    context_length: int
    budget: MemoryBudget
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Source:
    """A model that was found and whose config and tokenizer were read, weights apart."""

    files: ModelFiles
    tokenizer: TextTokenizer
    pair: PairReport | None = None


def assemble(config: EngineConfig, report: ReportStage) -> Assembly:
    """Find, check and load the models, and build the engine around them.

    Everything that can be refused is refused before any weights are read.

    Args:
        config: Validated configuration.
        report: Told of downloads, conversion, loading and packing.

    Raises:
        SpecCliError: Any of its kinds; a failure of the draft model names the draft model.
    """
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    target_source, draft_source = _find(config, report)
    target = _load(target_source, config, report, is_draft=False)
    draft = None
    if draft_source is not None:
        try:
            draft = _load(draft_source, config, report, is_draft=True)
        except SpecCliError as error:
            raise _name_draft(error, config) from error
    notices = [*target.notices, *_ignored_fields(target)]
    budget = _make_budget(config, target, draft)
    limit = _context_limit(config, target)
    runner, off_reason = _target_runner(target, limit, budget, notices)
    proposer: Proposer | None = None
    if config.proposer == "off":
        off_reason = "switched off by --spec off"
    elif off_reason is None:
        proposer = _make_proposer(config, runner, draft, draft_source, limit, budget)
    if draft is not None and draft_source is not None and draft_source.pair is not None:
        notices += [*draft.notices, *draft_source.pair.notices]
    texts = TextStreams(target_source.tokenizer)
    policy = _make_policy(config, off_reason)
    parts = EngineParts(runner, proposer, policy, texts, budget, time.perf_counter)
    max_rows = config.max_rows or _DEFAULT_ROWS
    return Assembly(
        engine=Engine(parts, verify_mode=config.verify, max_rows=max_rows),
        tokenizer=target_source.tokenizer,
        texts=texts,
        target=target,
        draft=draft,
        spec="off" if proposer is None else config.proposer,
        context_length=limit,
        budget=budget,
        notices=tuple(notices),
    )


def _find(config: EngineConfig, report: ReportStage) -> tuple[_Source, _Source | None]:
    """Find both models and compare their tokenizers; reads no weights."""
    files = find_model(
        config.model,
        revision=config.revision,
        offline=config.offline,
        cache_dir=config.cache_dir,
        report=report,
    )
    trust = config.trust_remote_code
    model_config = read_config(files, trust_remote_code=trust)
    tokenizer = load_tokenizer(files, trust_remote_code=trust)
    target = _Source(files, TextTokenizer(tokenizer, files.name))
    if config.proposer != "draft":
        return target, None
    try:
        draft_files = find_model(
            config.draft_model,
            revision=config.draft_revision,
            offline=config.offline,
            cache_dir=config.cache_dir,
            report=report,
        )
        trust = config.draft_trust_remote_code
        draft_config = read_config(draft_files, trust_remote_code=trust)
        draft_tokenizer = load_tokenizer(draft_files, trust_remote_code=trust)
        support, reason = cache_support(draft_config)
        if support != "rollback":
            raise UsageError(
                f"it cannot draft: {reason}.", hint="--spec ngram needs no draft model"
            )
    except SpecCliError as error:
        raise _name_draft(error, config) from error
    pair = check_pair(
        tokenizer_view(files.name, tokenizer, model_config),
        tokenizer_view(draft_files.name, draft_tokenizer, draft_config),
    )
    return target, _Source(draft_files, TextTokenizer(draft_tokenizer, draft_files.name), pair)


def _name_draft(error: SpecCliError, config: EngineConfig) -> SpecCliError:
    """The same failure, saying that it is the draft model's."""
    return type(error)(f"draft model {config.draft_model}: {error}", hint=error.hint)


def _load(
    source: _Source, config: EngineConfig, report: ReportStage, *, is_draft: bool
) -> LoadedModel:
    device = config.device
    trust = config.trust_remote_code
    if is_draft:
        device = config.draft_device or config.device
        trust = config.draft_trust_remote_code
    options = LoadOptions(device=device, dtype=config.dtype, trust_remote_code=trust)
    loaded = load_model(source.files, options, report)
    if loaded.device.type == "cpu":
        pack_linears(loaded.model, report)
    return loaded


def _ignored_fields(target: LoadedModel) -> list[str]:
    if not target.ignored_fields:
        return []
    names = ", ".join(target.ignored_fields)
    return [f"generation_config.json also sets {names}, which spec-cli does not honour."]


def _make_budget(
    config: EngineConfig, target: LoadedModel, draft: LoadedModel | None
) -> MemoryBudget:
    """Memory for caches: what --memory leaves beside the weights, or most of what is free."""
    if config.memory_bytes is None:
        free = free_memory(target.device)
        return MemoryBudget(int((free if free is not None else _UNKNOWN_FREE) * _CACHE_SHARE))
    weights = target.num_bytes + (draft.num_bytes if draft is not None else 0)
    left = config.memory_bytes - weights
    if left <= 0:
        raise InsufficientMemoryError(
            f"the weights take {format_bytes(weights)}; "
            f"--memory allows {format_bytes(config.memory_bytes)} for weights and cache.",
            hint="a larger --memory, --dtype bfloat16, or a smaller model",
        )
    return MemoryBudget(left)


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


def _target_runner(
    target: LoadedModel, limit: int, budget: MemoryBudget, notices: list[str]
) -> tuple[Runner, str | None]:
    """The target's runner, and why speculation is not available with it, or None."""
    support, reason = cache_support(target.config)
    if support == "rollback":
        try:
            return ModelRunner(target.model, context_length=limit, budget=budget), None
        except UsageError as error:
            target.model.set_attn_implementation("eager")
            reason = str(error).rstrip(".")
    notices.append(f"speculation is off: {reason}. Continuing with plain decoding.")
    return PlainRunner(target.model, context_length=limit, budget=budget), reason


def _make_proposer(
    config: EngineConfig,
    target: Runner,
    draft: LoadedModel | None,
    source: _Source | None,
    limit: int,
    budget: MemoryBudget,
) -> Proposer:
    if draft is None or source is None or source.pair is None:
        low, high = config.ngram_sizes
        return NgramProposer(low, high)
    draft_limit, _ = context_length(draft.config)
    runner = ModelRunner(
        draft.model,
        context_length=min(limit, draft_limit),
        budget=budget,
        vocab_size=target.vocab_size,
    )
    return DraftModelProposer(
        runner,
        verify=config.verify,
        num_token_ids=min(source.pair.target_rows, source.pair.draft_rows),
        never_propose=source.pair.never_propose,
        p_min=config.draft_p_min or 0.0,
    )


def _make_policy(config: EngineConfig, off_reason: str | None) -> Policy:
    if off_reason is not None:
        return FixedPolicy(0, off_reason)
    if config.num_draft_tokens == "auto":
        return GoodputPolicy()
    return FixedPolicy(config.num_draft_tokens)
