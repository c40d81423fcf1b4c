"""Options of every command that loads models."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from spec_cli.cli.options import option, parse_size
from spec_cli.core.config import EngineConfig, Spec, Verify
from spec_cli.core.errors import UsageError

_MODELS = "Models"
_SPECULATION = "Speculation"
_MACHINE = "Machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Which models, where, and how to speculate."""

    model: Annotated[
        str | None,
        option(
            "-m",
            "--model",
            "--target",
            metavar="ID",
            panel=_MODELS,
            help="Hub name (org/name or org/name@revision), folder or .gguf file of the target;"
            " SmolLM2-135M-Instruct if left out.",
        ),
    ] = None
    draft_model: Annotated[
        str | None,
        option(
            "-d",
            "--draft-model",
            "--draft",
            "--speculative-model",
            "--assistant-model",
            "--spec-model",
            metavar="ID",
            panel=_MODELS,
            help="A smaller model with the target's tokenizer that drafts for it.",
        ),
    ] = None
    revision: Annotated[
        str | None,
        option("--revision", panel=_MODELS, help="Branch, tag or commit of the target."),
    ] = None
    draft_revision: Annotated[
        str | None,
        option("--draft-revision", panel=_MODELS, help="Branch, tag or commit of the draft model."),
    ] = None
    offline: Annotated[
        bool, option("--offline", panel=_MODELS, help="Use no network, only what is cached.")
    ] = False
    cache_dir: Annotated[
        Path | None,
        option("--cache-dir", panel=_MODELS, help="Where models are kept; Hugging Face's cache."),
    ] = None
    trust_remote_code: Annotated[
        bool,
        option("--trust-remote-code", panel=_MODELS, help="Run Python code of the target."),
    ] = False
    draft_trust_remote_code: Annotated[
        bool,
        option("--draft-trust-remote-code", panel=_MODELS, help="Run Python code of the draft."),
    ] = False
    spec: Annotated[
        Spec,
        option(
            "--spec",
            panel=_SPECULATION,
            help="Who guesses: auto is the draft model helped by lookup (hybrid) with -d, else"
            " lookup (suffix).",
        ),
    ] = "auto"
    num_draft_tokens: Annotated[
        str,
        option(
            "-k",
            "--num-draft-tokens",
            "--num-speculative-tokens",
            "--spec-tokens",
            "--draft-max",
            metavar="N",
            panel=_SPECULATION,
            help="Tokens to draft per step, 1 to 32; auto weighs cost against gain, 0 included.",
        ),
    ] = "auto"
    k_schedule: Annotated[
        str | None,
        option(
            "--k-schedule",
            metavar="RUNGS",
            panel=_SPECULATION,
            help="Tokens to draft by number of running prompts, such as 1-4:5,5-8:3,9-:0.",
        ),
    ] = None
    verify: Annotated[
        Verify,
        option(
            "--verify",
            panel=_SPECULATION,
            help="Both keep the target's distribution; coupled makes the text depend on prompt and"
            " seed alone.",
        ),
    ] = "coupled"
    exact: Annotated[
        bool,
        option(
            "--exact",
            panel=_SPECULATION,
            help="Tokens identical to the target's own in bf16 and fp16, too; slower.",
        ),
    ] = False
    draft_p_min: Annotated[
        float | None,
        option(
            "--draft-p-min",
            metavar="P",
            panel=_SPECULATION,
            help="Stop drafting at a token that the draft model gives less than this.",
        ),
    ] = None
    ngram_max: Annotated[
        int | None,
        option("--ngram-max", metavar="N", panel=_SPECULATION, help="Longest match of lookup; 3."),
    ] = None
    ngram_min: Annotated[
        int | None,
        option("--ngram-min", metavar="N", panel=_SPECULATION, help="Shortest match of lookup; 1."),
    ] = None
    lookup_corpus: Annotated[
        Path | None,
        option(
            "--lookup-corpus",
            metavar="PATH",
            panel=_SPECULATION,
            help="A text file or a folder of them to look up in besides prompt and output.",
        ),
    ] = None
    ctx_size: Annotated[
        int | None,
        option(
            "-c",
            "--ctx-size",
            metavar="N",
            panel=_MACHINE,
            help="Most tokens of prompt and answer; the model's own limit if left out.",
        ),
    ] = None
    threads: Annotated[
        int | None, option("-t", "--threads", metavar="N", panel=_MACHINE, help="CPU threads.")
    ] = None
    max_rows: Annotated[
        int | None,
        option("--max-rows", metavar="N", panel=_MACHINE, help="Most prompts at once; 16."),
    ] = None
    memory: Annotated[
        str | None,
        option(
            "--memory",
            metavar="SIZE",
            panel=_MACHINE,
            help="Most that weights and caches may take, such as 4GB or 512MB.",
        ),
    ] = None
    device: Annotated[
        str, option("--device", panel=_MACHINE, help="auto, cpu, cuda or cuda:N.")
    ] = "auto"
    draft_device: Annotated[
        str | None,
        option("--draft-device", panel=_MACHINE, help="The same of the draft model."),
    ] = None
    dtype: Annotated[
        str, option("--dtype", panel=_MACHINE, help="auto, float32, bfloat16 or float16.")
    ] = "auto"

    def engine_config(self) -> EngineConfig:
        """The configuration these options ask for.

        Raises:
            UsageError: A value is out of range, or an option would have no effect.
        """
        return EngineConfig(
            model=self.model,
            revision=self.revision,
            draft_model=self.draft_model,
            draft_revision=self.draft_revision,
            spec=self.spec,
            num_draft_tokens=_draft_length(self.num_draft_tokens),
            k_schedule=self.k_schedule,
            verify=self.verify,
            exact=self.exact,
            draft_p_min=self.draft_p_min,
            ngram_min=self.ngram_min,
            ngram_max=self.ngram_max,
            lookup_corpus=self.lookup_corpus,
            device=self.device,
            draft_device=self.draft_device,
            dtype=self.dtype,
            ctx_size=self.ctx_size,
            max_rows=self.max_rows,
            memory_bytes=None if self.memory is None else parse_size(self.memory),
            threads=self.threads,
            offline=self.offline,
            cache_dir=self.cache_dir,
            trust_remote_code=self.trust_remote_code,
            draft_trust_remote_code=self.draft_trust_remote_code,
        )


def _draft_length(text: str) -> int | Literal["auto"]:
    if text == "auto":
        return "auto"
    try:
        return int(text)
    except ValueError as error:
        raise UsageError(
            f"num_draft_tokens must be a whole number between 1 and 32, or auto; got {text!r}."
        ) from error
