"""From a configuration to an engine with its models loaded."""

import time
from dataclasses import dataclass

import torch

from spec_cli.core.config import EngineConfig
from spec_cli.core.errors import UsageError
from spec_cli.core.progress import ReportStage, Stage
from spec_cli.engine.calibration import Calibration
from spec_cli.engine.calibration_file import CalibrationFile, calibration_key
from spec_cli.engine.corpus import Corpus, read_corpus
from spec_cli.engine.engine import Engine
from spec_cli.engine.guessing import make_proposer
from spec_cli.engine.loading import (
    DraftModel,
    FoundModel,
    TargetModel,
    find_draft,
    find_target,
    load_draft,
    load_target,
)
from spec_cli.engine.parts import EngineParts
from spec_cli.models.budget import MemoryBudget
from spec_cli.models.loader import LoadedModel
from spec_cli.models.text import TextStreams
from spec_cli.models.tokenizer import TextTokenizer
from spec_cli.policy.base import FixedPolicy, Policy
from spec_cli.policy.goodput import GoodputPolicy
from spec_cli.policy.schedule import SchedulePolicy, parse_schedule

_DEFAULT_ROWS = 16


@dataclass(frozen=True, slots=True)
class Assembly:
    """An engine and what its readers need to know of it.

    Attributes:
        config: What it was built from.
        engine: Idle when it is made.
        texts: Turns the engine's tokens into text.
        target_model: The target with its runner.
        draft_model: The draft model with its runner, or None.
        corpus_notice: What was read to look up in, or None.
        spec: Who guesses, `off` when nobody does.
        calibration: What forwards cost here, where the policy goes by it, else None.
    """

    config: EngineConfig
    engine: Engine
    texts: TextStreams
    target_model: TargetModel
    draft_model: DraftModel | None
    corpus_notice: str | None
    spec: str
    calibration: Calibration | None

    @property
    def tokenizer(self) -> TextTokenizer:
        """The target's tokenizer."""
        return self.target_model.found.tokenizer

    @property
    def target(self) -> LoadedModel:
        """The target as loaded."""
        return self.target_model.loaded

    @property
    def draft(self) -> LoadedModel | None:
        """The draft model as loaded, if any."""
        return self.draft_model.loaded if self.draft_model is not None else None

    @property
    def context_length(self) -> int:
        """Most tokens of a row, prompt included."""
        return self.target_model.runner.context_length

    @property
    def budget(self) -> MemoryBudget:
        """Memory of the caches."""
        return self.target_model.budget

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know before the first token, one sentence each."""
        notices = list(self.target_model.notices)
        if self.draft_model is not None:
            notices += [*self.draft_model.loaded.notices, *self.draft_model.pair.notices]
        if self.corpus_notice is not None:
            notices.append(self.corpus_notice)
        return tuple(notices)

    def calibrate(self, num_rows: int) -> None:
        """Let the policy know what steps of so many rows cost, before the first of them."""
        policy = self.engine.parts.policy
        if self.calibration is not None and isinstance(policy, GoodputPolicy):
            policy.cost.calibrate(self.calibration.measure(min(num_rows, self.engine.max_rows)))


def assemble(config: EngineConfig, report: ReportStage) -> Assembly:
    """Find, check and load the models, and build the engine around them.

    Everything that can be refused is refused before any weights are read.

    Args:
        config: Validated configuration.
        report: Told of downloads, conversion, loading and packing.

    Raises:
        SpecCliError: Any of its kinds; a failure of the draft model names the draft model.
    """
    _make_policy(config, None)  # a faulty schedule is an error before anything is loaded
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    found = find_target(config, report)
    corpus = _read_corpus(config, found)
    if not config.uses_draft_model:
        return _build(config, load_target(config, found, report), None, corpus, report)
    draft_found, pair = find_draft(config, found, report)
    target = load_target(config, found, report)
    draft = load_draft(config, draft_found, pair, target, report)
    return _build(config, target, draft, corpus, report)


def reassemble(assembly: Assembly, config: EngineConfig, report: ReportStage) -> Assembly:
    """Speculate in another way with the same target, which is not loaded again.

    Cached keys and values stay reusable; a draft model is loaded only if it is another one.

    Args:
        assembly: What runs now; its engine must be idle.
        config: The new configuration, of the same target.
        report: Told of loading.

    Raises:
        UsageError: The engine is running.
        SpecCliError: The new draft model cannot be had; what runs now goes on.
    """
    if assembly.engine.has_work:
        raise UsageError("speculation cannot be changed while an answer is being written.")
    corpus = _read_corpus(config, assembly.target_model.found)
    draft = None
    if config.uses_draft_model:
        draft = assembly.draft_model
        if draft is None or config.draft_source != assembly.config.draft_source:
            found, pair = find_draft(config, assembly.target_model.found, report)
            draft = load_draft(config, found, pair, assembly.target_model, report)
    return _build(config, assembly.target_model, draft, corpus, report)


def _read_corpus(config: EngineConfig, found: FoundModel) -> Corpus | None:
    return read_corpus(config.lookup_corpus, found.tokenizer) if config.lookup_corpus else None


def _build(
    config: EngineConfig,
    target: TargetModel,
    draft: DraftModel | None,
    corpus: Corpus | None,
    report: ReportStage,
) -> Assembly:
    off_reason = target.off_reason
    if config.proposer == "off":
        off_reason = "switched off by --spec off"
    policy = _make_policy(config, off_reason)
    proposer = None
    if off_reason is None:
        proposer = make_proposer(config, target, draft, corpus, policy)
    texts = TextStreams(target.found.tokenizer)
    parts = EngineParts(target.runner, proposer, policy, texts, target.budget, time.perf_counter)
    engine = Engine(parts, verify_mode=config.verify, max_rows=config.max_rows or _DEFAULT_ROWS)
    spec = "off" if proposer is None else config.proposer
    corpus_notice = corpus.notice if corpus is not None else None
    calibration = None
    if proposer is not None and isinstance(policy, GoodputPolicy):
        calibration = _make_calibration(config, target, draft)
        policy.cost.calibrate(calibration.samples)
    assembly = Assembly(config, engine, texts, target, draft, corpus_notice, spec, calibration)
    if calibration is not None and not calibration.samples:
        report(Stage("calibrate", target.found.files.name))
    assembly.calibrate(1)
    return assembly


def _make_calibration(
    config: EngineConfig, target: TargetModel, draft: DraftModel | None
) -> Calibration:
    key = calibration_key(config, target.loaded, draft.loaded if draft is not None else None)
    return Calibration(
        target.runner,
        draft.runner if draft is not None else None,
        file=CalibrationFile(key, config.cache_dir),
        clock=time.perf_counter,
        first_forward_s=target.first_forward_s,
    )


def _make_policy(config: EngineConfig, off_reason: str | None) -> Policy:
    if off_reason is not None:
        return FixedPolicy(0, off_reason)
    if config.k_schedule is not None:
        return SchedulePolicy(parse_schedule(config.k_schedule))
    if config.num_draft_tokens == "auto":
        return GoodputPolicy()
    return FixedPolicy(config.num_draft_tokens)
