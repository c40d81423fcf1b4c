"""The state of a chat in the terminal, and how an answer gets on the screen."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from spec_cli.chat import ChatSession
from spec_cli.cli.guard import describe
from spec_cli.cli.interrupts import Interrupts
from spec_cli.cli.keyboard import silent_keyboard
from spec_cli.cli.output_options import ScreenOptions
from spec_cli.cli.report import describe_run, peak_bytes
from spec_cli.cli.statistics import drafter
from spec_cli.cli.stdout import write_out
from spec_cli.cli.text_output import TextOutput
from spec_cli.cli.view_options import ViewOptions
from spec_cli.core.config import EngineConfig
from spec_cli.core.events import Event, SpeculationState, StepFinished, TextDelta
from spec_cli.core.turn import Turn
from spec_cli.ui.footer import FooterFacts
from spec_cli.ui.live import LiveOptions, LiveView
from spec_cli.ui.spans import SpanReader, rich_text
from spec_cli.ui.stats_full import stats_full
from spec_cli.ui.stats_line import LineFacts, stats_line

if TYPE_CHECKING:
    from spec_cli import LLM

StatsMode = Literal["off", "line", "full"]
_TITLE_WIDTH = 40


class ChatConsole:
    """What the commands of a chat work on.

    Attributes:
        llm: The models.
        session: The conversation.
        console: Where everything but answers goes.
        screen: What is shown beside answers.
        view: How answers look; commands change it.
        stats_mode: How many figures follow an answer.
        draft_name: The draft model that `/spec draft` means, or None.
        wanted: Options of speculation as they were last set; `/spec` leaves out those that mean
            nothing to a way, and they come back with the next.
        attachments: Texts that go with the next message.
        deltas: Text of the last answer with its origin.
        state: Speculation as it was last.
        is_multi_line: Whether Enter begins a new line.
        was_interrupted: Whether the last thing was an answer that Ctrl-C stopped.
    """

    def __init__(
        self,
        llm: "LLM",
        session: ChatSession,
        screen: ScreenOptions,
        view: ViewOptions,
        interrupts: Interrupts,
    ) -> None:
        self.llm = llm
        self.session = session
        self.screen = screen
        self.console: Console = screen.console()
        self.answers: Console = view.console(screen)
        self.shows_looks = view.shows_view(screen)
        self.looks: LiveOptions = view.looks(self.answers, screen)
        self.stats_mode: StatsMode = "off"
        if screen.shows_stats:
            self.stats_mode = "full" if screen.stats_full else "line"
        self.draft_name: str | None = llm.config.draft_model
        self.wanted = _wanted(llm.config)
        self.attachments: list[str] = []
        self.deltas: list[TextDelta] = []
        self.state: SpeculationState = llm.assembly.engine.parts.policy.state
        self.is_multi_line = False
        self.was_interrupted = False
        self._interrupts = interrupts

    def say(self, text: str) -> None:
        """Tell something that is no part of an answer."""
        self.console.print(text, style="dim")

    @contextlib.contextmanager
    def forgiving(self) -> Iterator[None]:
        """Tell a failure in words and go on."""
        try:
            yield
        except KeyboardInterrupt:
            raise
        except Exception as error:
            if self.screen.debug:
                self.console.print_exception()
            failure = describe(error)
            self.console.print(f"Error: {failure.message}")
            for number, line in enumerate((failure.hint or "").splitlines()):
                self.console.print(("     " if number else "Try: ") + line)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let Ctrl-C end what the model writes, and nothing else."""
        with silent_keyboard(), self._interrupts.calling(self.llm.interrupt):
            yield

    def answer(self, begin: Callable[[], Iterator[Event | TextDelta]]) -> Turn | None:
        """Show an answer as it is written, then its figures.

        Returns:
            The turn, or None if nothing of it was written.
        """
        num_left_out = self.session.num_left_out
        events = begin()
        self._tell_left_out(num_left_out)
        turn = self.session.latest
        assert turn is not None, "a turn has begun"
        shown = self._shown(turn)
        deltas: list[TextDelta] = []
        try:
            with self.interruptible():
                for event in events:
                    if isinstance(event, TextDelta):
                        deltas.append(event)
                    elif isinstance(event, StepFinished):
                        self.state = event.state
                    shown(event)
        finally:
            shown(None)
        self.was_interrupted = turn.finish_reason == "interrupted"
        if not turn.token_ids:
            self.say("(interrupted before the first token; the message is not kept)")
            return None
        self.deltas = deltas
        self._tell_figures(turn)
        return turn

    def write_again(self) -> None:
        """Write the last answer with the looks of now."""
        reader = SpanReader(
            is_thinking=self._begins_thinking(self.session.latest),
            hides_thoughts=self.looks.hides_thoughts,
        )
        spans = [span for delta in self.deltas for span in reader.read(delta)]
        text = rich_text([*spans, *reader.close()], self.looks.highlight)
        self.answers.print(text, soft_wrap=True)

    @property
    def drafter(self) -> str:
        """Who guesses, in a word or two."""
        return drafter(self.run_description().draft)

    def run_description(self) -> Any:
        """What runs now, as in a report."""
        return describe_run("chat", self.llm.config, self.llm.assembly, [self.session.params])

    def _shown(self, turn: Turn) -> Callable[[Event | TextDelta | None], None]:
        """What shows the events; None ends it."""
        if not self.shows_looks:
            plain = TextOutput([turn.user], write_out)

            def write(event: Event | TextDelta | None) -> None:
                if event is None:
                    plain.close()
                elif not isinstance(event, StepFinished):
                    plain.read(event, 0)

            return write
        facts = FooterFacts(
            self.llm.assembly.context_length,
            self.session.params.max_tokens,
            is_plain=self.screen.plain,
        )
        looks = replace(self.looks, is_thinking=self._begins_thinking(turn))
        live = LiveView(self.answers, facts, looks)
        live.open()
        return lambda event: live.close() if event is None else live.read(event)

    @staticmethod
    def _begins_thinking(turn: Turn | None) -> bool:
        """Whether the chat template begins the answer's thought itself."""
        return turn is not None and turn.prompt.rstrip().endswith("<think>")

    def _tell_left_out(self, num_before: int) -> None:
        """Name the turns that no longer fit the context."""
        session = self.session
        if session.num_left_out <= num_before:
            return
        turns = session.turns[num_before : session.num_left_out]
        names = ", ".join(f'{n} "{_title(t.user)}"' for n, t in enumerate(turns, num_before + 1))
        self.console.print(
            f"Note: the conversation outgrew the context of "
            f"{self.llm.assembly.context_length:,} tokens; the model no longer sees turn {names}."
        )

    def _tell_figures(self, turn: Turn) -> None:
        if turn.finish_reason == "interrupted":
            self.say("(interrupted; what was written stays in the conversation)")
        reuse = turn.reuse
        if reuse is not None and reuse.reason and self.stats_mode != "off":
            self.say(
                f"cached {reuse.num_cached_tokens:,} of {reuse.num_prompt_tokens:,} prompt tokens; "
                f"{reuse.num_lost_tokens:,} more were lost: {reuse.reason}"
            )
        if self.stats_mode != "off":
            self.tell_statistics(turn)

    def tell_statistics(self, turn: Turn, *, is_full: bool | None = None) -> None:
        """Print the figures of a turn."""
        if turn.stats is None:
            return
        console = self.console
        run = self.run_description()
        facts = LineFacts(
            state=self.state,
            finish_reason=turn.finish_reason,
            max_tokens=self.session.params.max_tokens,
            num_draft_tokens=run.settings["num_draft_tokens"],
            drafter=drafter(run.draft),
            peak_bytes=peak_bytes(),
        )
        width = console.width if console.is_terminal else None
        self.say(stats_line(turn.stats, facts, width=width, is_plain=self.screen.plain))
        if self.stats_mode == "full" if is_full is None else is_full:
            self.say(stats_full(turn.stats, run.env, [turn.seed], is_plain=self.screen.plain))


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TITLE_WIDTH else line[: _TITLE_WIDTH - 1] + "…"


def _wanted(config: "EngineConfig") -> "EngineConfig":
    """The options that a chat begins with; those of `off` would leave no draft length to set."""
    if config.spec != "off":
        return config
    return config.with_spec("auto", draft_model=config.draft_model)
