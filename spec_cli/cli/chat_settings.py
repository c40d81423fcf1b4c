"""Commands about how a chat runs."""

from dataclasses import replace
from typing import Any, get_args

from spec_cli.chat import chat_params
from spec_cli.cli.chat_console import ChatConsole, StatsMode
from spec_cli.cli.chat_turns import last_turn
from spec_cli.cli.session import loading_view
from spec_cli.core.config import EngineConfig, Spec
from spec_cli.core.errors import UsageError
from spec_cli.ui.header import header

_NUMBERS = (
    *("temperature", "top_p", "min_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
)
_INTEGERS = ("top_k", "max_tokens", "seed")
SETTINGS = (*_NUMBERS, *_INTEGERS, "stop")
"""Keys of /set."""


def set_(chat: ChatConsole, argument: str) -> None:
    """Change how answers are sampled."""
    key, _, text = argument.partition(" ")
    key, text = key.replace("-", "_"), text.strip()
    if key not in SETTINGS or not text:
        raise UsageError(f"/set takes a key and a value; keys are {', '.join(SETTINGS)}.")
    chat.session.params = replace(chat.session.params, **{key: _value(chat, key, text)})
    chat.say(f"{key} {getattr(chat.session.params, key)!r}")


def _value(chat: ChatConsole, key: str, text: str) -> Any:
    if text.lower() in ("none", "default"):
        return getattr(chat_params(chat.llm), key)
    if key == "stop":
        # As on a command line, where \n is the usual stop string.
        return (text.encode("latin-1", "backslashreplace").decode("unicode_escape"),)
    try:
        return int(text) if key in _INTEGERS else float(text)
    except ValueError as error:
        raise UsageError(f"{key} must be a number, got {text!r}.") from error


def show(chat: ChatConsole, argument: str) -> None:
    """Show what is in force."""
    run = chat.run_description()
    if argument in ("", "config"):
        names = sorted(chat.session.params.__dataclass_fields__)
        chat.console.print(header(run.model, run.draft, run.settings, is_plain=chat.screen.plain))
        for name in names:
            chat.console.print(f"  {name:<20} {getattr(chat.session.params, name)!r}")
        if argument:
            return
    if argument in ("", "model"):
        for name, value in run.model.items():
            chat.console.print(f"  {name:<20} {value}")
    if argument in ("", "context"):
        _show_context(chat)
    if argument == "stats":
        chat.tell_statistics(last_turn(chat), is_full=True)
    elif argument not in ("", "model", "context"):
        raise UsageError(f"/show takes config, model, context or stats; got {argument!r}.")


def _show_context(chat: ChatConsole) -> None:
    session = chat.session
    limit = chat.llm.assembly.context_length
    turn = session.turns[-1] if session.turns else None
    used = len(turn.prompt_token_ids) + len(turn.token_ids) if turn else 0
    chat.console.print(f"  target cache         {used:,} of {limit:,} tokens")
    draft = chat.llm.assembly.draft_model
    if draft is not None:
        most = draft.runner.context_length
        chat.console.print(f"  draft cache          {min(used, most):,} of {most:,} tokens")
    if turn is not None and turn.reuse is not None:
        reuse = turn.reuse
        chat.console.print(
            f"  last prompt          {reuse.num_prompt_tokens:,} tokens, "
            f"{reuse.num_cached_tokens:,} from the cache"
            + (f", {reuse.num_lost_tokens:,} lost: {reuse.reason}" if reuse.reason else "")
        )
    seen = len(session.turns) - session.num_left_out
    chat.console.print(f"  turns                {len(session.turns):,}, {seen:,} seen by the model")


def stats(chat: ChatConsole, argument: str) -> None:
    """Choose the figures after answers, or show those of the last one."""
    if not argument:
        chat.tell_statistics(last_turn(chat), is_full=True)
        return
    if argument not in get_args(StatsMode):
        raise UsageError(f"/stats takes off, line or full; got {argument!r}.")
    chat.stats_mode = argument  # type: ignore[assignment]
    chat.say(f"figures after answers: {argument}")


def spec(chat: ChatConsole, argument: str) -> None:
    """Speculate in another way."""
    if not argument:
        _tell_way(chat)
        return
    if argument == "on":
        argument = "auto"
    if argument not in get_args(Spec):
        raise UsageError(f"/spec takes {', '.join(get_args(Spec))}; got {argument!r}.")
    if argument in ("draft", "hybrid") and chat.draft_name is None:
        raise UsageError("no draft model is known.", hint="/draft ID")
    way: Spec = argument  # type: ignore[assignment]
    _speculate(chat, chat.wanted.with_spec(way, draft_model=chat.draft_name))


def draft_length(chat: ChatConsole, argument: str) -> None:
    """Change how much is drafted."""
    config = chat.llm.config
    if config.proposer == "off":
        raise UsageError("speculation is off.", hint="/spec auto")
    if argument != "auto" and not argument.isdecimal():
        raise UsageError(f"/k takes a number from 1 to 32, or auto; got {argument!r}.")
    length: dict[str, Any] = {
        "num_draft_tokens": "auto" if argument == "auto" else int(argument),
        "k_schedule": None,
    }
    _speculate(chat, config.with_speculation(**length))
    chat.wanted = chat.wanted.with_speculation(**length)


def draft(chat: ChatConsole, argument: str) -> None:
    """Use another draft model, or none; otherwise speculate as before where that is possible."""
    if not argument:
        chat.say(f"draft model: {chat.draft_name or 'none'}")
        return
    name = None if argument == "off" else argument
    possible = ("ngram", "suffix", "off") if name is None else ("draft", "hybrid")
    before = chat.llm.config.spec
    way: Spec = before if before in possible else "auto"
    # The revision is that of the draft model before.
    wanted = chat.wanted.with_speculation(draft_revision=None)
    _speculate(chat, wanted.with_spec(way, draft_model=name))
    chat.draft_name, chat.wanted = name, wanted
    chat.llm.forget_other_ways()


def _speculate(chat: ChatConsole, config: EngineConfig) -> None:
    with loading_view(chat.screen, chat.console) as loading:
        chat.llm.speculate(report=loading.report, **config.speculation)
    chat.state = chat.llm.assembly.engine.parts.policy.state
    _tell_way(chat)


def _tell_way(chat: ChatConsole) -> None:
    config = chat.llm.config
    if chat.llm.assembly.spec == "off":
        reason = chat.state.reason or "switched off"
        chat.say(f"speculation is off: {reason}")
        return
    chat.say(f"speculation is on: {chat.drafter}, k {config.k_schedule or config.num_draft_tokens}")


def think(chat: ChatConsole, argument: str) -> None:
    """Let the model think first, or not, where its template has a switch for it."""
    if argument not in ("on", "off"):
        raise UsageError(f"/think takes on or off; got {argument!r}.")
    options = {**chat.session.template_kwargs, "enable_thinking": argument == "on"}
    chat.llm.render([{"role": "user", "content": "."}], options)
    chat.session.template_kwargs = options
    chat.say(f"thinking {argument}")


def multi(chat: ChatConsole, argument: str) -> None:
    """Switch what Enter does."""
    if argument:
        raise UsageError(f"/multi takes no argument, got {argument!r}.")
    chat.is_multi_line = not chat.is_multi_line
    chat.say(
        "Enter begins a new line; Esc, then Enter sends"
        if chat.is_multi_line
        else "Enter sends the message"
    )
