"""The commands of a chat: their names, how they are found, and help."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from spec_cli.cli import chat_files, chat_settings, chat_turns
from spec_cli.cli.chat_console import ChatConsole
from spec_cli.core.errors import UsageError

KEYS = """\
Enter            send the message              Esc, then Enter  send, in multi-line mode
\"\"\"              begin or end several lines    Ctrl-G           edit in $VISUAL or $EDITOR
Tab              complete a command or file    Up, Down         earlier messages
Ctrl-R           search earlier messages       Ctrl-A, Ctrl-E   start, end of the line
Ctrl-C           stop the answer and keep it; twice within 2 s: leave
Ctrl-D           leave, at an empty prompt\
"""


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes:
        name: Without the slash.
        synonyms: Other names.
        usage: Its arguments.
        help: What it does, in a line.
        run: Called with what follows the name; True leaves the chat.
    """

    name: str
    synonyms: tuple[str, ...]
    usage: str
    help: str
    run: Callable[[ChatConsole, str], bool | None]


def _leave(chat: ChatConsole, argument: str) -> bool:
    del chat, argument
    return True


def _help(chat: ChatConsole, argument: str) -> None:
    if argument.strip() == "keys":
        chat.console.print(KEYS)
        return
    for command in COMMANDS:
        names = " ".join(f"/{name}" for name in (command.name, *command.synonyms))
        chat.console.print(f"{f'{names} {command.usage}':<44} {command.help}")
    chat.console.print('\n"""   several lines    //text   a literal slash    /? keys   the keys')


COMMANDS = (
    Command("help", ("?", "h"), "[keys]", "this list, or the keys", _help),
    Command("exit", ("bye", "quit", "q"), "", "leave; also Ctrl-D", _leave),
    Command("clear", ("reset", "new"), "", "forget all turns; settings stay", chat_turns.clear),
    Command("undo", (), "", "remove the last message and answer", chat_turns.undo),
    Command("regen", ("retry", "r"), "", "answer the last message again", chat_turns.regen),
    Command("edit", ("e",), "", "edit the last message and send it again", chat_turns.edit),
    Command(
        "system",
        ("sp",),
        "[TEXT|-]",
        "show, set or take away the system message",
        chat_turns.system,
    ),
    Command("set", (), "KEY VALUE", "temperature, max_tokens, seed, stop ...", chat_settings.set_),
    Command(
        "show",
        ("info",),
        "[config|model|context|stats]",
        "what is in force",
        chat_settings.show,
    ),
    Command("stats", ("tps",), "[off|line|full]", "figures after answers", chat_settings.stats),
    Command(
        "spec", (), "[auto|draft|ngram|off]", "speculate in another way, now", chat_settings.spec
    ),
    Command("k", (), "N|auto", "tokens to draft per step", chat_settings.draft_length),
    Command("draft", (), "ID|off", "use another draft model", chat_settings.draft),
    Command("compare", (), "", "run the last turn without speculation", chat_turns.compare),
    Command("why", (), "", "explain the speed of the last answer", chat_turns.why),
    Command(
        "highlight",
        (),
        "[none|accepted|position]",
        "write the last answer with other looks",
        chat_turns.highlight,
    ),
    Command("save", (), "[NAME]", "save the conversation", chat_files.save),
    Command("load", (), "NAME", "load a conversation", chat_files.load),
    Command("export", (), "FILE.md", "write it as Markdown", chat_files.export),
    Command("read", (), "FILE", "attach a text to the next message", chat_files.read),
    Command("think", (), "on|off", "let the model think first", chat_settings.think),
    Command("copy", (), "", "the last answer to the clipboard", chat_turns.copy),
    Command("multi", (), "", "Enter begins a new line, or sends", chat_settings.multi),
)

_BY_NAME = {name: each for each in COMMANDS for name in (each.name, *each.synonyms)}


def run_command(chat: ChatConsole, line: str) -> bool:
    """Run a line that begins with a slash.

    Returns:
        Whether to leave.

    Raises:
        UsageError: There is no such command; the message names the nearest.
        SpecCliError: It cannot be done.
    """
    name, _, argument = line[1:].partition(" ")
    head, newline, rest = name.partition("\n")
    if newline:
        name, argument = head, f"{rest} {argument}" if argument else rest
    command = _BY_NAME.get(name.lower())
    if command is None:
        near = difflib.get_close_matches(name.lower(), _BY_NAME, n=1, cutoff=0.0)
        raise UsageError(
            f"there is no command /{name}; nothing was sent.",
            hint=f"/{near[0]}   or //{name} to send it as text",
        )
    return bool(command.run(chat, argument.strip()))
