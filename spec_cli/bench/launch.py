"""From loaded models and prompts to a session of arms."""

import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spec_cli.bench.arms import Arm, CompareConfig, RequestFactory, build_engines
from spec_cli.bench.comparison import Plan, Results
from spec_cli.bench.figures import pair_groups
from spec_cli.bench.harness import Session, StoppedError
from spec_cli.bench.proof import Difference, Judge, differences
from spec_cli.bench.report import Differences
from spec_cli.bench.why import ForwardTime, measure_forwards
from spec_cli.bench.working_memory import StepShape, largest_shapes, measure_working_bytes
from spec_cli.bench.workload import WorkPrompt
from spec_cli.core.errors import ContextLengthError
from spec_cli.core.params import SamplingParams

if TYPE_CHECKING:
    from spec_cli.llm import LLM

_WHY_BATCHES = (1, 2, 4, 8)
_WHY_CONTEXT = 128


def encode_prompts(
    llm: "LLM",
    prompts: list[WorkPrompt],
    max_tokens: int,
    *,
    is_raw: bool,
    system: str | None,
    template_kwargs: dict[str, Any],
) -> list[tuple[int, ...]]:
    """Token ids of every prompt of a workload.

    Args:
        llm: The models.
        prompts: The workload.
        max_tokens: To be generated after each; all must fit, or arms would differ in length.
        is_raw: Continue the text instead of applying the chat template.
        system: System message put before each conversation that has none.
        template_kwargs: Variables of the chat template.

    Raises:
        ContextLengthError: A prompt does not fit; the message names it.
        UsageError: The chat template refuses a prompt.
    """
    assembly = llm.assembly
    limit = assembly.context_length
    found = []
    for prompt in prompts:
        if is_raw:
            token_ids = assembly.tokenizer.encode(prompt.text)
        else:
            messages = prompt.as_messages()
            if system is not None and messages[0]["role"] != "system":
                messages = [{"role": "system", "content": system}, *messages]
            rendered: Any = llm.render(messages, template_kwargs)
            token_ids = rendered["prompt_token_ids"]
        if len(token_ids) + max_tokens > limit:
            raise ContextLengthError(
                f"prompt {prompt.name} has {len(token_ids):,} tokens, and {max_tokens:,} are to be "
                f"generated; the context holds {limit:,}.",
                hint="fewer --max-tokens, a larger -c where the model allows it, or another prompt",
            )
        found.append(tuple(token_ids))
    return found


def cut_prompts(
    prompts: list[tuple[int, ...]], input_len: int | None, max_tokens: int, limit: int
) -> list[tuple[int, ...]]:
    """Prompts of exactly one length: each goes on with the next ones and is cut.

    Args:
        prompts: At least one.
        input_len: Tokens of each, or None to leave them as they are.
        max_tokens: To be generated after each.
        limit: Tokens of the context.

    Raises:
        ContextLengthError: They do not fit.
    """
    if input_len is None:
        return prompts
    if input_len + max_tokens > limit:
        raise ContextLengthError(
            f"{input_len:,} prompt tokens and {max_tokens:,} to be generated do not fit: the "
            f"context holds {limit:,}.",
            hint="a shorter --input-len or --output-len, or a larger -c where the model allows it",
        )
    found = []
    for first in range(len(prompts)):
        tokens: list[int] = []
        for number in itertools.count(first):
            tokens += prompts[number % len(prompts)]
            if len(tokens) >= input_len:
                break
        found.append(tuple(tokens[:input_len]))
    return found


def open_session(
    llm: "LLM",
    config: CompareConfig,
    arms: list[Arm],
    prompts: list[tuple[int, ...]],
    params: SamplingParams,
    num_rows: int,
    is_stopped: Callable[[], bool],
) -> Session:
    """An engine per arm around the models of `llm`, each knowing what its forwards cost.

    Args:
        llm: With every model loaded that an arm needs.
        config: The options of every arm.
        arms: Whom to compare.
        prompts: Token ids of the workload.
        params: Of every request.
        num_rows: Most rows that will be answered at once.
        is_stopped: Whether the user wants an end.
    """
    assembly = llm.assembly
    ways = build_engines(assembly, config, arms)
    for way in ways.values():
        way.calibrate(num_rows)
    engines: dict[str, Any] = {name: way.engine for name, way in ways.items()}
    references = [arm for arm in arms if arm.is_reference]
    if references:
        from spec_cli.bench.baseline import load_references

        engines |= load_references(assembly, references, time.perf_counter)
    return Session(
        engines=engines,
        factory=RequestFactory.of(prompts, params),
        clock=time.perf_counter,
        sleep=time.sleep,
        reclaim=assembly.budget.reclaim,
        forget=_forget_answers,
        synchronize=_synchronizer(assembly.target.device),
        is_stopped=is_stopped,
    )


def _forget_answers(engine: Any) -> None:
    from spec_cli.engine.engine import Engine
    from spec_cli.proposers.hybrid import HybridProposer
    from spec_cli.proposers.suffix import SuffixProposer

    if isinstance(engine, Engine):
        proposer = engine.parts.proposer
        if isinstance(proposer, SuffixProposer | HybridProposer):
            proposer.forget_answers()


def _synchronizer(device: Any) -> Callable[[], None]:
    if device.type != "cuda":
        return lambda: None
    import torch

    return lambda: torch.cuda.synchronize(device)


def time_forwards(llm: "LLM", session: Session, plan: Plan) -> list[ForwardTime]:
    """The target's forward at the batches of the plan and a few more, and at every k + 1.

    Nothing is measured once the user wants an end.
    """
    runner = llm.assembly.engine.parts.target
    fixed = {arm.num_draft_tokens for arm in plan.arms if isinstance(arm.num_draft_tokens, int)}
    widths = sorted({1} | {k + 1 for k in fixed or {4}})
    tokens = [token for prompt in session.factory.prompts for token in prompt]
    room = runner.context_length - max(widths)
    context = (tokens * _WHY_CONTEXT)[: max(1, min(_WHY_CONTEXT, room))]

    def clock() -> float:
        session.synchronize()
        return session.clock()

    if session.is_stopped():
        return []
    session.reclaim()
    return measure_forwards(runner, [*_WHY_BATCHES, *plan.batches], widths, context, clock)


def measure_steps(
    llm: "LLM", session: Session, results: list[Results]
) -> dict[StepShape, int | None]:
    """Working bytes of the largest steps of every arm that the engine runs.

    What was measured when the user wants an end is kept.
    """
    runner = llm.assembly.engine.parts.target
    found: dict[StepShape, int | None] = {}
    for shape in (
        shape
        for part in results
        for groups in part.groups.values()
        for shape in largest_shapes(groups)
    ):
        if shape not in found and not session.is_stopped():
            session.reclaim()
            found[shape] = measure_working_bytes(runner, shape)
    return found


def compare_texts(
    llm: "LLM", session: Session, plan: Plan, results: Results, *, is_checked: bool
) -> Differences:
    """The first differences between every arm and the target alone.

    Args:
        llm: The models.
        session: What ran.
        plan: What was to run.
        results: What it gave.
        is_checked: Judge each difference; else it is only found.
    """
    runner = llm.assembly.engine.parts.target
    judge = Judge(runner, session.factory.make, _is_exact(llm), session.reclaim)
    found: Differences = {}
    for batch in plan.batches:
        base = results.groups.get((batch, plan.arms[0].name), [])
        for arm in plan.arms_at(batch):
            pairs = pair_groups(results.groups.get((batch, arm.name), []), base)
            if arm.is_base or not pairs:
                continue
            listed: list[Difference] = []
            for group, base_group in pairs:
                for each in differences([(group, base_group)]):
                    can_judge = is_checked and not arm.is_reference
                    if can_judge and session.is_stopped():
                        raise StoppedError
                    listed.append(judge.judge(each, group, base_group) if can_judge else each)
            found[batch, arm.name] = listed
    return found


def _is_exact(llm: "LLM") -> bool:
    """In float32 and in exact mode shapes do not matter: any difference is a fault."""
    return llm.config.exact or str(llm.assembly.target.dtype) == "torch.float32"


def weight_bytes(llm: "LLM", arm: Arm) -> int:
    """Bytes of the weights that an arm needs."""
    assembly = llm.assembly
    draft = assembly.draft
    own = draft.weight_bytes if draft is not None and arm.uses("draft") else 0
    return assembly.target.weight_bytes + own


def num_threads() -> int:
    """Threads that torch computes with."""
    import torch

    return torch.get_num_threads()
