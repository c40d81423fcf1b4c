"""What is compared: the target alone, and each way to speculate with each draft length."""

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from spec_cli.core.config import MAX_DRAFT_TOKENS, EngineConfig
from spec_cli.core.errors import UsageError
from spec_cli.core.events import Event
from spec_cli.core.params import SamplingParams
from spec_cli.core.sequence import Request

if TYPE_CHECKING:
    from spec_cli.engine.assembly import Assembly

DraftLength = int | Literal["auto", "schedule"]
"""`schedule` is by the number of rows, as --k-schedule says."""
BASE = "target only"

OPTIONS_OF = {
    "draft": (
        *("draft_model", "draft_revision", "draft_device", "draft_p_min"),
        "draft_trust_remote_code",
    ),
    "ngram": ("ngram_min", "ngram_max"),
    "corpus": ("lookup_corpus",),
}
_USES = {
    "off": (),
    "draft": ("draft",),
    "ngram": ("ngram",),
    "suffix": ("corpus",),
    "hybrid": ("draft", "corpus"),
    "transformers-assisted": ("draft",),
}
"""Which options mean something to which way to guess."""


class Servable(Protocol):
    """What can be measured: the engine, and stand-ins of it."""

    @property
    def has_work(self) -> bool:
        """Whether a call of `step` would do anything."""

    def add(self, request: Request) -> None:
        """Queue a request."""

    def step(self) -> list[Event]:
        """Advance every row."""

    def abort(self, request_id: str) -> list[Event]:
        """End a request now."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of the comparison.

    Attributes:
        name: Unique, as printed.
        spec: Who guesses; `off` is the target alone, `transformers` the library's own loop, plain
            or with prompt lookup, and `transformers-assisted` the same with a draft model.
        num_draft_tokens: Draft length, or None where nothing is drafted.
    """

    name: str
    spec: str
    num_draft_tokens: DraftLength | None

    @property
    def is_base(self) -> bool:
        """Whether this is what the others are measured against."""
        return self.name == BASE

    @property
    def is_reference(self) -> bool:
        """Whether transformers runs it instead of the engine."""
        return self.spec.startswith("transformers")

    def uses(self, kind: str) -> bool:
        """Whether the options of a kind mean something to it."""
        return kind in _USES.get(self.spec, ())


def plan_arms(specs: list[str], lengths: list[DraftLength]) -> list[Arm]:
    """The target alone, then every way with every draft length.

    Raises:
        UsageError: There is nothing to compare with.
    """
    arms = [Arm(BASE, "off", None)]
    for spec, length in itertools.product(dict.fromkeys(specs), dict.fromkeys(lengths)):
        arms.append(Arm(f"{spec} k={length}", spec, length))
    if len(arms) == 1:
        raise UsageError("there is nothing to compare the target with.")
    return arms


def parse_lengths(text: str) -> list[DraftLength]:
    """Draft lengths such as `2,4,8,auto`.

    Raises:
        UsageError: One is no length.
    """
    lengths: list[DraftLength] = []
    for part in text.split(","):
        word = part.strip()
        if word == "auto":
            lengths.append("auto")
        elif word.isascii() and word.isdecimal() and 1 <= int(word) <= MAX_DRAFT_TOKENS:
            lengths.append(int(word))
        else:
            raise UsageError(
                f"num_draft_tokens takes whole numbers from 1 to {MAX_DRAFT_TOKENS} and auto, "
                f"with commas between; got {word!r}.",
                hint="-k 2,4,8,auto",
            )
    return lengths


@dataclass(frozen=True, slots=True)
class CompareConfig:
    """Options of all arms at once, which no single `EngineConfig` may hold.

    Attributes:
        options: Fields of `EngineConfig`, `spec` and `num_draft_tokens` apart.
    """

    options: dict[str, Any]

    def of(self, arm: Arm) -> EngineConfig:
        """The configuration of an arm: what means nothing to it is left out.

        Raises:
            UsageError: A value is out of range, or the arm lacks its draft model.
        """
        unused = {
            name for kind, names in OPTIONS_OF.items() if not arm.uses(kind) for name in names
        }
        if arm.num_draft_tokens != "schedule":
            unused.add("k_schedule")
        options = {name: value for name, value in self.options.items() if name not in unused}
        length = arm.num_draft_tokens if isinstance(arm.num_draft_tokens, int) else "auto"
        return EngineConfig(**options, spec=arm.spec, num_draft_tokens=length)  # type: ignore[arg-type]

    def to_load(self, arms: list[Arm]) -> EngineConfig:
        """The configuration that loads every model an arm needs."""
        configs = [self.of(arm) for arm in arms if not arm.is_reference]
        return next((each for each in configs if each.draft_model is not None), configs[0])


def build_engines(
    base: "Assembly", config: "CompareConfig", arms: list[Arm]
) -> dict[str, "Assembly"]:
    """An engine for each arm around the models of `base`, none of which is loaded again.

    Args:
        base: With the draft model loaded, if any arm drafts with one.
        config: The options of every arm.
        arms: Those of the transformers library are left out.

    Raises:
        SpecCliError: An arm cannot be built; nothing has run yet.
    """
    from spec_cli.engine.assembly import reassemble

    return {
        arm.name: reassemble(base, config.of(arm), lambda _: None)
        for arm in arms
        if not arm.is_reference
    }


@dataclass(slots=True)
class RequestFactory:
    """Makes the same requests for every arm: token ids, seeds and lengths.

    Attributes:
        prompts: Token ids of each prompt of the workload.
        params: Of all requests; `seed` is that of the first, the next has the next.
    """

    prompts: list[tuple[int, ...]]
    params: SamplingParams
    _numbers: "itertools.count[int]"

    @classmethod
    def of(cls, prompts: list[tuple[int, ...]], params: SamplingParams) -> "RequestFactory":
        """A factory of requests for these prompts."""
        return cls(prompts, params, itertools.count())

    def make(self, index: int) -> Request:
        """A fresh request for prompt `index` of the workload, which is repeated at its end.

        It has no end tokens, so that every arm generates the same number of tokens.
        """
        return Request(
            request_id=f"bench-{next(self._numbers)}",
            prompt_token_ids=self.prompts[index % len(self.prompts)],
            params=self.params,
            seed=((self.params.seed or 0) + index) % 2**64,
            end_token_ids=frozenset(),
        )
