"""What can be said of a target and a draft before any weight is loaded."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from spec_cli.core.byte_size import format_bytes
from spec_cli.core.config import EngineConfig
from spec_cli.core.errors import InsufficientMemoryError, SpecCliError
from spec_cli.core.progress import ReportStage
from spec_cli.engine.loading import FoundModel, find_draft, find_target
from spec_cli.models.checkpoint import ModelFiles
from spec_cli.models.compat import PairReport
from spec_cli.models.generation_defaults import read_generation_defaults
from spec_cli.models.loader import count_parameters
from spec_cli.models.memory import free_memory
from spec_cli.models.model_config import (
    NO_STATED_LIMIT,
    CacheSupport,
    cache_support,
    context_length,
    read_config,
)
from spec_cli.models.multimodal import multimodal_notice
from spec_cli.models.placement import resolve_device, resolve_dtype
from spec_cli.models.plain_runner import cached_numbers

_LARGE_DRAFT = 0.4
"""Share of the target's size above which a draft model seldom pays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """One model, by its files.

    Attributes:
        files: Where it is and where it came from.
        kind: Its model type.
        num_parameters: Numbers in the tensors that are loaded of it.
        dtype: Number format it would be loaded in.
        device: Where it would be loaded.
        weight_bytes: Its weights in that format.
        cache_bytes_per_token: Keys and values of one token; an upper bound.
        context_length: Most tokens its positions allow, or None where no limit is stated.
        cache: Whether its cache can forget rejected tokens.
        cache_reason: Why not, or None.
        vocab_rows: Rows of its output layer.
        end_tokens: Ids that end an answer, with their texts.
        honoured: Recommended sampling settings that are used.
        ignored: Names of recommended settings that are not.
        has_chat_template: Whether it can be given a conversation.
        notices: What the user should know.
    """

    files: ModelFiles
    kind: str
    num_parameters: int
    dtype: str
    device: str
    weight_bytes: int
    cache_bytes_per_token: int
    context_length: int | None
    cache: CacheSupport
    cache_reason: str | None
    vocab_rows: int
    end_tokens: dict[int, str]
    honoured: dict[str, Any]
    ignored: tuple[str, ...]
    has_chat_template: bool
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """A target and perhaps a draft, and whether they could run.

    Attributes:
        target: The target.
        draft: The draft model, or None.
        pair: How their token ids compare, or None.
        ctx_size: Tokens of a row that the memory is told for, or None without any limit.
        free_bytes: Memory at hand, or None where unknown.
        problems: What would stop them, the worst first.
        tips: What would help, one sentence each.
    """

    target: ModelFacts
    draft: ModelFacts | None
    pair: PairReport | None
    ctx_size: int | None
    free_bytes: int | None
    problems: tuple[SpecCliError, ...] = ()
    tips: tuple[str, ...] = ()

    @property
    def models(self) -> list[ModelFacts]:
        """The target, and the draft model if there is one."""
        return [self.target] if self.draft is None else [self.target, self.draft]

    @property
    def weight_bytes(self) -> int:
        """Weights of both."""
        return sum(model.weight_bytes for model in self.models)

    @property
    def cache_bytes_per_token(self) -> int:
        """Keys and values of one token in both."""
        return sum(model.cache_bytes_per_token for model in self.models)


def inspect_models(config: EngineConfig, report: ReportStage) -> Inspection:
    """Judge a configuration by the files of its models.

    Args:
        config: As for running.
        report: Told of downloads.

    Raises:
        SpecCliError: The target cannot be had. What is wrong with the draft model, the pair or the
            memory is among the problems instead.
    """
    found = find_target(config, report)
    target = _facts(found, config, config.device)
    problems: list[SpecCliError] = []
    draft: ModelFacts | None = None
    pair: PairReport | None = None
    if config.uses_draft_model:
        try:
            draft_found, pair = find_draft(config, found, report)
            draft = _facts(draft_found, config, config.draft_device or config.device)
        except SpecCliError as error:
            problems.append(error)
    free = config.memory_bytes or free_memory(resolve_device(config.device))
    inspection = Inspection(
        target=target,
        draft=draft,
        pair=pair,
        ctx_size=config.ctx_size or target.context_length,
        free_bytes=free,
    )
    memory_problem = _memory_problem(inspection, is_ctx_asked=config.ctx_size is not None)
    if memory_problem is not None:
        problems.append(memory_problem)
    return replace(inspection, problems=tuple(problems), tips=_tips(inspection, config))


def _facts(found: FoundModel, config: EngineConfig, device_name: str) -> ModelFacts:
    files = found.files
    model_config = read_config(files, trust_remote_code=found.trust_remote_code)
    device = resolve_device(device_name)
    num_parameters = count_parameters(files, model_config)
    dtype, dtype_notice = resolve_dtype(
        config.dtype, device, model_config, num_parameters=num_parameters
    )
    limit, limit_notice = context_length(model_config)
    defaults = read_generation_defaults(files, model_config)
    cache, reason = cache_support(model_config)
    text_config = model_config.get_text_config(decoder=True)
    vocab = found.tokenizer.vocab
    notices = (multimodal_notice(files.name, model_config), dtype_notice, limit_notice)
    return ModelFacts(
        files=files,
        kind=model_config.model_type,
        num_parameters=num_parameters,
        dtype=str(dtype).removeprefix("torch."),
        device=str(device),
        weight_bytes=num_parameters * dtype.itemsize,
        cache_bytes_per_token=cached_numbers(text_config) * dtype.itemsize,
        context_length=None if limit == NO_STATED_LIMIT else limit,
        cache=cache,
        cache_reason=reason,
        vocab_rows=found.view.vocab_rows,
        end_tokens={
            token_id: vocab.get(token_id, "") for token_id in sorted(defaults.end_token_ids)
        },
        honoured=defaults.honoured,
        ignored=defaults.ignored,
        has_chat_template=found.tokenizer.has_chat_template,
        notices=tuple(notice for notice in notices if notice),
    )


def _memory_problem(
    inspection: Inspection, *, is_ctx_asked: bool
) -> InsufficientMemoryError | None:
    """What is needed against what is free; a whole context only if it was asked for."""
    free = inspection.free_bytes
    cache = inspection.cache_bytes_per_token * (inspection.ctx_size or 0) if is_ctx_asked else 0
    need = inspection.weight_bytes + cache
    if free is None or need <= free:
        return None
    hints = []
    if is_ctx_asked and inspection.weight_bytes < free:
        fits = (free - inspection.weight_bytes) // max(1, inspection.cache_bytes_per_token)
        hints.append(f"-c {max(1, fits)}")
    if inspection.draft is not None:
        hints.append(f"--spec ngram   (frees {format_bytes(inspection.draft.weight_bytes)})")
    if inspection.target.dtype == str(torch.float32).removeprefix("torch."):
        hints.append("--dtype bfloat16   (half of it)")
    what = "target + draft" if inspection.draft is not None else "the target"
    weights = format_bytes(inspection.weight_bytes)
    at = f", KV {format_bytes(cache)} at {inspection.ctx_size:,} tokens" if cache else ""
    return InsufficientMemoryError(
        f"not enough memory for {what}: need {format_bytes(need)} (weights {weights}{at}), "
        f"free {format_bytes(free)}.",
        hint="\n".join(hints) or "-m MODEL  a smaller model",
    )


def _tips(inspection: Inspection, config: EngineConfig) -> tuple[str, ...]:
    target, draft = inspection.target, inspection.draft
    tips = []
    if draft is not None:
        share = draft.num_parameters / max(1, target.num_parameters)
        if share > _LARGE_DRAFT:
            tips.append(
                f"The draft model has {share:.0%} of the target's parameters; one of a tenth to a"
                " fifth usually pays more."
            )
        limit, own = inspection.ctx_size, draft.context_length
        if own is not None and (limit is None or own < limit):
            tips.append(f"Rows past {own:,} tokens, the draft's context, go on without it.")
    elif config.proposer in ("ngram", "suffix") and target.cache == "rollback":
        tips.append("Without a draft model, text that repeats prompt or answer is looked up.")
    free, per_token = inspection.free_bytes, inspection.cache_bytes_per_token
    if free is not None and per_token and inspection.ctx_size is not None:
        fits = max(0, free - inspection.weight_bytes) // per_token
        if 0 < fits < inspection.ctx_size and config.ctx_size is None:
            tips.append(f"Free memory holds about {fits:,} tokens of cache, all rows together.")
    if not target.has_chat_template:
        tips.append("The target has no chat template: use generate --raw.")
    return tuple(tips)
