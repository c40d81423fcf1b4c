"""How an engine is to be built, validated before anything is loaded."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from spec_cli.core.errors import UsageError

Spec = Literal["auto", "ngram", "draft", "suffix", "hybrid", "off"]
Way = Literal["ngram", "draft", "suffix", "hybrid", "off"]
Verify = Literal["coupled", "rejection"]

MAX_DRAFT_TOKENS = 32
_SPECS = ("auto", "ngram", "draft", "suffix", "hybrid", "off")
_DRAFT_FIELDS = ("draft_p_min", "draft_revision", "draft_device")
_NGRAM_FIELDS = ("ngram_min", "ngram_max")
_WITHOUT_EFFECT = {
    "ngram": (*_DRAFT_FIELDS, "lookup_corpus"),
    "draft": (*_NGRAM_FIELDS, "lookup_corpus"),
    "suffix": (*_NGRAM_FIELDS, *_DRAFT_FIELDS),
    "hybrid": _NGRAM_FIELDS,
    "off": (*_NGRAM_FIELDS, "draft_p_min", "lookup_corpus", "k_schedule"),
}
_VERIFY = ("coupled", "rejection")

_SPECULATION_FIELDS = frozenset(
    {
        "draft_device",
        "draft_model",
        "draft_p_min",
        "draft_revision",
        "draft_trust_remote_code",
        "k_schedule",
        "lookup_corpus",
        "ngram_max",
        "ngram_min",
        "num_draft_tokens",
        "spec",
        "verify",
    }
)
_ALIASES = (
    ("speculative_model", "draft_model", None),
    ("num_speculative_tokens", "num_draft_tokens", "auto"),
)
_VLLM_HINTS = {
    "use_v2_block_manager": "drop it: rows are always managed this way here",
    "speculative_config": "use draft_model=, num_draft_tokens= and spec= instead",
    "tensor_parallel_size": "drop it: a model is spread over the GPUs at hand by device='auto'",
    "gpu_memory_utilization": "use memory_bytes= instead",
    "max_model_len": "use ctx_size= instead",
    "max_num_seqs": "use max_rows= instead",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Models, devices and the way to speculate.

    Attributes:
        model: Hub name, folder or .gguf file of the target; None is the default model.
        revision: Branch, tag or commit of the target.
        draft_model: The same of the draft model, or None.
        draft_revision: Of the draft model alone; never that of the target.
        spec: Who guesses; `auto` is `hybrid` with a draft model, else `suffix`, and `ngram` where
            its sizes are given.
        num_draft_tokens: Draft length, 1 to 32, or `auto`: chosen by what it costs and brings.
        k_schedule: Draft lengths by number of decoding rows, such as `1-4:5,5-8:3,9-:0`, or None.
        verify: How drafts are verified.
        exact: Compute in shapes that keep a token's bits, so that in bf16 and fp16, too, the tokens
            are those of the target alone; slower.
        draft_p_min: The draft model stops at a token it gives less than this; in [0, 1].
        ngram_min: Shortest match of lookup; None is 1.
        ngram_max: Longest match of lookup; None is 3.
        lookup_corpus: File or folder of texts that suffix lookup may copy from, or None.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        draft_device: Of the draft model; None is that of the target.
        dtype: `auto`, `float32`, `bfloat16` or `float16`.
        ctx_size: Most tokens of a row, prompt included; None is what model and memory allow.
        max_rows: Most requests at once; None is 16.
        memory_bytes: Most that weights and caches may take; None is what is free.
        threads: CPU threads; None is one per physical core.
        offline: Use no network.
        cache_dir: Where models are kept; None is Hugging Face's cache.
        trust_remote_code: Run Python code from the target's folder.
        draft_trust_remote_code: Run Python code from the draft's folder.
    """

    model: str | None = None
    revision: str | None = None
    draft_model: str | None = None
    draft_revision: str | None = None
    spec: Spec = "auto"
    num_draft_tokens: int | Literal["auto"] = "auto"
    k_schedule: str | None = None
    verify: Verify = "coupled"
    exact: bool = False
    draft_p_min: float | None = None
    ngram_min: int | None = None
    ngram_max: int | None = None
    lookup_corpus: Path | None = None
    device: str = "auto"
    draft_device: str | None = None
    dtype: str = "auto"
    ctx_size: int | None = None
    max_rows: int | None = None
    memory_bytes: int | None = None
    threads: int | None = None
    offline: bool = False
    cache_dir: Path | None = None
    trust_remote_code: bool = False
    draft_trust_remote_code: bool = False

    def __post_init__(self) -> None:
        """Check ranges, and that no option would be without effect.

        Raises:
            UsageError: The message names the option.
        """
        _check_choice("spec", self.spec, _SPECS)
        _check_choice("verify", self.verify, _VERIFY)
        if self.num_draft_tokens != "auto":
            _check_integer("num_draft_tokens", self.num_draft_tokens, 1, MAX_DRAFT_TOKENS)
        for name in ("ngram_min", "ngram_max", "ctx_size", "max_rows", "memory_bytes", "threads"):
            if getattr(self, name) is not None:
                _check_integer(name, getattr(self, name), 1, None)
        p_min = self.draft_p_min
        if p_min is not None and not (math.isfinite(p_min) and 0.0 <= p_min <= 1.0):
            raise UsageError(f"draft_p_min must be between 0 and 1, got {p_min}.")
        if self.ngram_sizes[0] > self.ngram_sizes[1]:
            low, high = self.ngram_sizes
            raise UsageError(f"ngram_min is {low}, above ngram_max, which is {high}.")
        self._check_effects()

    @classmethod
    def from_options(cls, **options: Any) -> "EngineConfig":
        """Make a configuration from names that a user typed.

        `speculative_model` (`[ngram]` is lookup) and `num_speculative_tokens` are vLLM's names.

        Raises:
            TypeError: A name does not exist; vLLM's own get a hint.
            UsageError: A value cannot work.
        """
        for alias, name, unset in _ALIASES:
            value = options.pop(alias, None)
            if value is None:
                continue
            if options.get(name, unset) != unset:
                raise UsageError(f"{alias} and {name} are two names for one thing.")
            options |= {"spec": "ngram"} if value == "[ngram]" else {name: value}
        for name in options:
            if name not in cls.__dataclass_fields__:
                hint = _VLLM_HINTS.get(name)
                raise TypeError(f"LLM has no option {name!r}" + (f": {hint}." if hint else "."))
        return cls(**options)

    def with_speculation(self, **changes: Any) -> "EngineConfig":
        """The same models otherwise, another way to speculate.

        Raises:
            TypeError: A name is not about speculation.
            UsageError: A value cannot work.
        """
        fixed = sorted(changes.keys() - _SPECULATION_FIELDS)
        if fixed:
            raise TypeError(f"a loaded target cannot change {', '.join(fixed)}.")
        return replace(self, **changes)

    def with_spec(self, spec: Spec, *, draft_model: str | None) -> "EngineConfig":
        """The same options with another way to speculate, less those without effect there.

        Args:
            spec: Who guesses.
            draft_model: Used where `spec` uses one.

        Raises:
            UsageError: It needs a draft model.
        """
        changes: dict[str, Any] = {"spec": spec, "draft_model": draft_model}
        if spec in ("ngram", "suffix"):
            changes["draft_model"] = None
        if changes["draft_model"] is None:
            changes["draft_trust_remote_code"] = False
        if spec == "off":
            changes["num_draft_tokens"] = "auto"
        proposer = self._resolve(spec, changes["draft_model"])
        changes |= dict.fromkeys(_WITHOUT_EFFECT[proposer])
        return replace(self, **changes)

    @property
    def speculation(self) -> dict[str, Any]:
        """The fields about speculation, as `with_speculation` takes them."""
        return {name: getattr(self, name) for name in sorted(_SPECULATION_FIELDS)}

    @property
    def draft_source(self) -> tuple[str | None, str | None, str | None, bool]:
        """What tells one loaded draft model from another."""
        return (
            self.draft_model,
            self.draft_revision,
            self.draft_device,
            self.draft_trust_remote_code,
        )

    @property
    def proposer(self) -> Way:
        """Who guesses, `auto` resolved."""
        return self._resolve(self.spec, self.draft_model)

    @property
    def uses_draft_model(self) -> bool:
        """Whether the draft model is to be loaded."""
        return self.proposer in ("draft", "hybrid")

    @property
    def ngram_sizes(self) -> tuple[int, int]:
        """Shortest and longest match of lookup."""
        high = 3 if self.ngram_max is None else self.ngram_max
        return (1 if self.ngram_min is None else self.ngram_min), high

    def _resolve(self, spec: Spec, draft_model: str | None) -> Way:
        if spec != "auto":
            return spec
        if draft_model is not None:
            return "hybrid"
        has_sizes = self.ngram_min is not None or self.ngram_max is not None
        return "ngram" if has_sizes else "suffix"

    def _check_effects(self) -> None:
        if self.uses_draft_model and self.draft_model is None:
            raise UsageError(
                f"spec {self.spec} needs a draft model.",
                hint="-d ID, or --spec suffix, which needs none",
            )
        if self.spec in ("ngram", "suffix") and self.draft_model is not None:
            raise UsageError(
                f"spec {self.spec} does not use the draft model.", hint="Leave out one of the two."
            )
        for name in _WITHOUT_EFFECT[self.proposer]:
            if getattr(self, name) is not None:
                raise UsageError(f"{name} has no effect with speculation by {self.proposer}.")
        if self.proposer in ("ngram", "suffix") and self.draft_trust_remote_code:
            raise UsageError("draft_trust_remote_code has no effect without a draft model.")
        if self.proposer == "off" and self.num_draft_tokens != "auto":
            raise UsageError("num_draft_tokens has no effect with spec off.")
        if self.exact and self.verify == "rejection":
            raise UsageError(
                "exact needs verify coupled: with rejection the text depends on the drafts."
            )
        if self.k_schedule is not None and self.num_draft_tokens != "auto":
            raise UsageError("k_schedule and num_draft_tokens both set the draft length.")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{name} must be one of {', '.join(choices)}; got {value!r}.")


def _check_integer(name: str, value: object, low: int, high: int | None) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < low or (high is not None and value > high):  # type: ignore[operator]
        bound = f"at least {low}" if high is None else f"between {low} and {high}"
        raise UsageError(f"{name} must be a whole number {bound}, got {value!r}.")
