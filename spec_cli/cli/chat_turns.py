"""Commands about the turns of a chat."""

import base64
import os
import shlex
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

from spec_cli.cli.chat_console import ChatConsole
from spec_cli.core.errors import UsageError
from spec_cli.core.params import SamplingParams
from spec_cli.core.turn import Turn
from spec_cli.ui.spans import Highlight
from spec_cli.ui.why import explain


def clear(chat: ChatConsole, argument: str) -> None:
    """Forget all turns."""
    _no_argument("clear", argument)
    chat.session.clear()
    chat.attachments.clear()
    chat.deltas = []
    chat.say("forgotten; the system message and all settings stay")


def undo(chat: ChatConsole, argument: str) -> None:
    """Remove the last turn."""
    _no_argument("undo", argument)
    turn = chat.session.undo()
    chat.deltas = []
    chat.say(f"removed: {_first_line(turn.user)}")


def regen(chat: ChatConsole, argument: str) -> None:
    """Answer again."""
    _no_argument("regen", argument)
    if chat.session.turns and chat.session.params.is_greedy:
        chat.say("at temperature 0 the answer will be the same; /set temperature 0.7 varies it")
    chat.answer(chat.session.regen_events)


def edit(chat: ChatConsole, argument: str) -> None:
    """Edit the last message and send it again, in place of the old one."""
    _no_argument("edit", argument)
    turns = chat.session.turns
    before = turns[-1].user if turns else ""
    text = edited(before)
    if not text.strip() or text == before:
        chat.say("unchanged; nothing was sent")
        return
    old = chat.session.undo() if turns else None
    turn = None
    try:
        turn = chat.answer(lambda: chat.session.events(text))
    finally:
        if turn is None and old is not None:
            chat.session.turns.append(old)


def edited(text: str) -> str:
    """A text after a visit to the user's editor.

    Raises:
        UsageError: There is no editor, or it failed.
    """
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not command:
        raise UsageError("no editor is set.", hint="export EDITOR=nano")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "message.md")
        path.write_text(text + "\n", encoding="utf-8")
        try:
            subprocess.run([*shlex.split(command), str(path)], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise UsageError(f"the editor {command!r} failed: {error}.") from error
        return path.read_text(encoding="utf-8").removesuffix("\n")


def system(chat: ChatConsole, argument: str) -> None:
    """Show or set the system message; - takes it away."""
    if not argument:
        text = chat.session.system
        chat.say("no system message" if text is None else text)
        return
    text = argument.strip()
    if text.startswith('"""'):
        text = text.removeprefix('"""').removesuffix('"""').strip("\n")
    before, chat.session.system = chat.session.system, None if text in ("", "-") else text
    try:
        chat.session.check_template()
    except Exception:
        chat.session.system = before
        raise
    chat.say("the system message counts from the next message on; the cache starts anew there")


def compare(chat: ChatConsole, argument: str) -> None:
    """Run the last turn with the target alone, and measure."""
    _no_argument("compare", argument)
    turn = last_turn(chat)
    if turn.stats is None or not turn.prompt_token_ids:
        raise UsageError("the last turn was loaded, so there is nothing to compare with.")
    if not turn.stats.num_spec_steps:
        raise UsageError("nothing was drafted in the last answer: it was target-only already.")
    num_tokens = len(turn.token_ids)
    params = _same_again(chat.session.params, turn)
    prompt = {"prompt": turn.prompt, "prompt_token_ids": turn.prompt_token_ids}
    chat.say(f"running the last turn without speculation: {num_tokens:,} tokens ...")
    config = chat.llm.config
    alone = config.with_spec("off", draft_model=config.draft_model).speculation
    with chat.llm.speculating(**alone), chat.interruptible():
        plain = chat.llm.generate(prompt, params)[0]
    if plain.outputs[0].finish_reason == "interrupted":
        chat.say("(interrupted; nothing was measured)")
        return
    rate, plain_rate = turn.stats.tokens_per_second, plain.stats.tokens_per_second
    if rate and plain_rate:
        chat.console.print(
            f"{rate / plain_rate:.2f}x measured: {rate:,.1f} tok/s with {chat.drafter}, "
            f"{plain_rate:,.1f} tok/s target only (one run each)"
        )
    chat.console.print(_first_difference(chat, turn, plain.outputs[0].token_ids))


def _same_again(params: SamplingParams, turn: Turn) -> SamplingParams:
    return replace(params, seed=turn.seed, max_tokens=len(turn.token_ids))


def _first_difference(chat: ChatConsole, turn: Turn, plain: tuple[int, ...]) -> str:
    pairs = zip(turn.token_ids, plain, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if at is None:
        return f"same text: all {len(plain):,} tokens are equal"
    text = chat.llm.assembly.tokenizer.token_text
    return (
        f"first difference at token {at + 1:,} of {len(plain):,}: {text(turn.token_ids[at])!r} "
        f"with speculation, {text(plain[at])!r} without (a near-tie? `spec-cli compare --check`)"
    )


def why(chat: ChatConsole, argument: str) -> None:
    """Explain the speed of the last answer."""
    _no_argument("why", argument)
    turn = last_turn(chat)
    if turn.stats is None:
        raise UsageError("the last turn was loaded without its figures.")
    for line in explain(turn.stats, chat.state, chat.drafter):
        chat.console.print(line)


def highlight(chat: ChatConsole, argument: str) -> None:
    """Change the looks, and write the last answer with them."""
    choices = get_args(Highlight)
    if argument:
        if argument not in choices:
            raise UsageError(f"/highlight takes {', '.join(choices)}; got {argument!r}.")
        chat.looks = replace(chat.looks, highlight=cast("Highlight", argument))
    if chat.deltas:
        chat.write_again()
    else:
        chat.say(f"highlight: {chat.looks.highlight}")


def copy(chat: ChatConsole, argument: str) -> None:
    """Put the last answer on the clipboard, by the terminal's own means."""
    _no_argument("copy", argument)
    turn = last_turn(chat)
    if not chat.answers.is_terminal or chat.answers.is_dumb_terminal:
        raise UsageError("/copy needs a terminal that has a clipboard.", hint="/export FILE.md")
    data = base64.b64encode(turn.text.encode()).decode()
    chat.answers.file.write(f"\x1b]52;c;{data}\x07")
    chat.answers.file.flush()
    chat.say(f"{len(turn.text):,} characters sent to the terminal's clipboard (OSC 52)")


def last_turn(chat: ChatConsole) -> Turn:
    """The last turn.

    Raises:
        UsageError: There is none.
    """
    if not chat.session.turns:
        raise UsageError("there is no answer yet.")
    return chat.session.turns[-1]


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _no_argument(name: str, argument: str) -> None:
    if argument:
        raise UsageError(f"/{name} takes no argument, got {argument!r}.")
