"""`spec-cli chat`: a conversation in the terminal."""

import sys
import time
from typing import Annotated

import typer

from spec_cli.chat import ChatSession, Overflow, chat_params
from spec_cli.cli.chat_commands import run_command
from spec_cli.cli.chat_console import ChatConsole
from spec_cli.cli.guard import INTERRUPTED, guard
from spec_cli.cli.interrupts import Interrupts
from spec_cli.cli.model_options import ModelOptions
from spec_cli.cli.options import option
from spec_cli.cli.output_options import ScreenOptions
from spec_cli.cli.prompts import read_stdin
from spec_cli.cli.request_options import SamplingOptions, TemplateOptions
from spec_cli.cli.session import open_llm, print_header, print_notices
from spec_cli.cli.view_options import ViewOptions
from spec_cli.core.errors import UsageError
from spec_cli.core.params import SamplingParams

_TWICE_S = 2.0


def chat(
    *,
    template: TemplateOptions,
    models: ModelOptions,
    sampling: SamplingOptions,
    ctx_overflow: Annotated[
        Overflow,
        option(
            "--ctx-overflow",
            panel="Prompt",
            help="When a conversation outgrows the context: refuse the message, stop the answer"
            " there, or leave out the oldest turns and say so.",
        ),
    ] = "drop-oldest",
    screen: ScreenOptions,
    view: ViewOptions,
) -> None:
    """Talk with a model; what is piped in gets one answer.

    /help lists the commands. Ctrl-C stops an answer and keeps what was written, Ctrl-D leaves.
    """
    with guard(debug=screen.debug), Interrupts().handled() as interrupts:
        screen.check()
        view.check(screen, is_text=True)
        config = models.engine_config()
        system, options = template.system_message(), template.template_kwargs()
        given = sampling.given()
        SamplingParams(**given)
        message = None if sys.stdin.isatty() else _piped_message()
        with open_llm(config, screen, screen.console()) as llm:
            session = ChatSession(
                llm,
                system=system,
                params=chat_params(llm, **given),
                template_kwargs=options,
                ctx_overflow=ctx_overflow,
            )
            session.check_template()
            console = ChatConsole(llm, session, screen, view, interrupts)
            print_notices(llm, config, screen, console.console)
            print_header(console.run_description(), screen, console.console)
            if message is not None:
                turn = console.answer(lambda: session.events(message))
                if turn is None or turn.finish_reason == "interrupted":
                    raise typer.Exit(INTERRUPTED)
                return
            _converse(console)


def _piped_message() -> str:
    message = read_stdin(is_asked=True).removesuffix("\n")
    if not message.strip():
        raise UsageError("no message was piped in.", hint='echo "Hello" | spec-cli chat')
    return message


def _converse(console: ChatConsole) -> None:
    """Read and answer until the user leaves."""
    # Loaded here: the terminal's line editor is no part of any other command.
    from spec_cli.cli.chat_input import ChatInput

    chat_input = ChatInput(console.say)
    console.say("/help lists the commands, Ctrl-D leaves")
    while True:
        started_s = time.monotonic()
        try:
            line = chat_input.read(is_multi_line=console.is_multi_line)
        except EOFError:
            return
        except KeyboardInterrupt:
            if console.was_interrupted and time.monotonic() - started_s < _TWICE_S:
                raise
            console.was_interrupted = False
            console.say("Use Ctrl-D or /exit to leave.")
            continue
        console.was_interrupted = False
        with console.forgiving():
            if _respond(console, line):
                return


def _respond(console: ChatConsole, line: str) -> bool:
    """Run a command or answer a message; True leaves."""
    text = line.strip()
    if not text:
        return False
    if text.startswith("/") and not text.startswith("//"):
        return run_command(console, text)
    if text.startswith("//"):
        line = text[1:]
    message = "\n\n".join([*console.attachments, line])
    console.answer(lambda: console.session.events(message))
    console.attachments.clear()
    return False
