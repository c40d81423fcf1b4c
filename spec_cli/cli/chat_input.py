"""The line where a message is typed: editing, history, completion."""

import os
import sys
from collections.abc import Callable, Iterable
from typing import get_args

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output

from spec_cli.cli.chat_commands import COMMANDS
from spec_cli.cli.chat_console import StatsMode
from spec_cli.cli.chat_history import FileHistory, history_path
from spec_cli.cli.chat_settings import SETTINGS
from spec_cli.core.config import Spec
from spec_cli.ui.spans import Highlight

_FENCE = '"""'
_CHOICES = {
    "set": SETTINGS,
    "show": ("config", "model", "context", "stats"),
    "stats": get_args(StatsMode),
    "spec": get_args(Spec),
    "k": ("auto",),
    "draft": ("off",),
    "highlight": get_args(Highlight),
    "think": ("on", "off"),
    "help": ("keys",),
}
_FILES = ("read", "export", "save", "load")
_CANONICAL = {name: each.name for each in COMMANDS for name in (each.name, *each.synonyms)}


class CommandCompleter(Completer):
    """Completes commands, their choices and file names; messages are left alone."""

    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=True)

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """What may stand at the cursor."""
        text = document.text_before_cursor
        if not text.startswith("/") or text.startswith("//"):
            return
        name, space, argument = text[1:].partition(" ")
        if not space:
            for command in COMMANDS:
                if command.name.startswith(name):
                    yield Completion(
                        command.name, -len(name), display=f"/{command.name} {command.usage}".strip()
                    )
            return
        command_name = _CANONICAL.get(name, name)
        if command_name in _FILES:
            yield from self._paths.get_completions(Document(argument), complete_event)
        for choice in _CHOICES.get(command_name, ()):
            if choice.startswith(argument):
                yield Completion(choice, -len(argument))


class ChatInput:
    """Reads messages from a terminal.

    Args:
        tell: Called with what the user should know.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        path = None if os.environ.get("SPEC_CLI_NOHISTORY") else history_path()
        keys = KeyBindings()

        @keys.add("c-g")
        def open_editor(event: KeyPressEvent) -> None:
            event.current_buffer.open_in_editor()

        self._session: PromptSession[str] = PromptSession(
            history=FileHistory(path, tell),
            completer=CommandCompleter(),
            complete_while_typing=False,
            key_bindings=keys,
            # Left alone, the library falls back to a plain prompt on a dumb terminal.
            output=None if sys.stdout.isatty() else create_output(always_prefer_tty=True),
            prompt_continuation="... ",
        )

    def read(self, *, is_multi_line: bool) -> str:
        """One message, or one command.

        Raises:
            EOFError: The user wants to leave.
            KeyboardInterrupt: Ctrl-C; what was typed is dropped.
        """
        text = self._ask(">>> ", is_multi_line=is_multi_line)
        opener = text.lstrip().partition(_FENCE)
        is_command = opener[0].startswith("/")
        if not opener[1] or (opener[0] and not is_command):
            return text
        while text.count(_FENCE) < 2:
            text += "\n" + self._ask("... ", is_multi_line=False)
        return text if is_command else _unfenced(text)

    def _ask(self, prompt: str, *, is_multi_line: bool) -> str:
        # Ctrl-C is a key here; the handler of the signal stays the program's own.
        return self._session.prompt(prompt, multiline=is_multi_line, handle_sigint=False)


def _unfenced(text: str) -> str:
    inner = text.strip().removeprefix(_FENCE)
    before, _, after = inner.rpartition(_FENCE)
    return (before + after).strip("\n")
