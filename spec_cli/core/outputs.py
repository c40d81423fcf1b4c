"""What `LLM.generate` and `LLM.chat` return; names as in vLLM."""

from dataclasses import dataclass

from spec_cli.core.sequence import FinishReason
from spec_cli.core.stats import RequestStats


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One answer.

    Attributes:
        index: Its number among the answers to the prompt.
        text: Without stop strings, special tokens, or half a character at the end.
        token_ids: All generated ids, an end token included.
        finish_reason: `stop`, `length` or `interrupted`.
        seed: The seed that reproduces it.
        stats: Its figures.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    seed: int
    stats: RequestStats


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """The answer to one prompt.

    Attributes:
        request_id: Unique within the process.
        prompt: The text that was tokenised: with `chat`, the rendered template.
        prompt_token_ids: What the model read.
        outputs: The answers.
    """

    request_id: str
    prompt: str
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]

    @property
    def text(self) -> str:
        """Text of the first answer."""
        return self.outputs[0].text

    @property
    def stats(self) -> RequestStats:
        """Figures of the first answer."""
        return self.outputs[0].stats
