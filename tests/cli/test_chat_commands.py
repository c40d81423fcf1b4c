"""The commands of a chat on a tiny model, without a terminal."""

import io
import json
from typing import Any

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from spec_cli import LLM, SamplingParams
from spec_cli.cli.chat_commands import COMMANDS, run_command
from spec_cli.cli.chat_console import ChatConsole
from spec_cli.cli.chat_history import FileHistory, history_path
from spec_cli.cli.chat_input import CommandCompleter, _unfenced
from spec_cli.cli.interrupts import Interrupts
from spec_cli.cli.output_options import ScreenOptions
from spec_cli.cli.view_options import ViewOptions
from spec_cli.core.errors import SpecCliError, UsageError
from tests.cli.running import invoke
from tests.folders import save_text_model, text_config

STRICT = (
    "{% for m in messages %}{% if m['role'] == 'system' %}"
    "{{ raise_exception('no system role here') }}{% endif %}{{ m['content'] }}{% endfor %}"
)
PARAMS = SamplingParams(temperature=0.0, max_tokens=32, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(endless):
    """A tiny model that drafts by lookup."""
    with LLM(str(endless), spec="ngram", num_draft_tokens=2) as llm:
        yield llm


@pytest.fixture
def chat(llm) -> Any:
    """A chat whose output is `chat.shown()`, with looks."""
    llm.speculate(spec="ngram", num_draft_tokens=2, draft_model=None)
    return console_of(llm)


def console_of(llm: LLM) -> Any:
    """A chat with a model, as it is set up now."""
    out = io.StringIO()
    chat: Any = ChatConsole(
        llm,
        llm.chat_session(params=PARAMS),
        ScreenOptions(color="always"),
        ViewOptions(),
        Interrupts(),
    )
    chat.console.file = chat.answers.file = out
    chat.shown = out.getvalue
    return chat


def say(chat: Any, text: str) -> Any:
    """Send a message."""
    return chat.answer(lambda: chat.session.events(text))


def test_every_name_is_known_once():
    """The commands of the contract and their synonyms, none of them twice."""
    names = [name for each in COMMANDS for name in (each.name, *each.synonyms)]
    assert len(names) == len(set(names))
    assert {"help", "?", "h", "bye", "quit", "q", "reset", "new", "retry", "r", "e"} <= set(names)
    assert {"sp", "info", "tps", "compare", "why", "save", "load", "export", "copy"} <= set(names)


def test_help_and_leaving(chat):
    """/help lists every command; /? keys the keys; /exit leaves."""
    assert not run_command(chat, "/help")
    assert all(f"/{each.name}" in chat.shown() for each in COMMANDS)
    run_command(chat, "/? keys")
    assert "Ctrl-G" in chat.shown()
    assert run_command(chat, "/bye")


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("/histlight none", "nothing was sent"),
        ("/set temperature", "key and a value"),
        ("/set warmth 1", "keys are"),
        ("/set top_p 7", "between 0 and 1"),
        ("/show nothing", "config, model"),
        ("/stats all", "off, line or full"),
        ("/spec magic", "ngram"),
        ("/spec draft", "no draft model"),
        ("/k many", "1 to 32"),
        ("/k 0", "num_draft_tokens"),
        ("/highlight loud", "accepted"),
        ("/think maybe", "on or off"),
        ("/think on", "enable_thinking"),
        ("/read nothing.txt", "cannot read"),
        ("/export", "needs a file"),
        ("/export /proc/nothing/x.md", "cannot write"),
        ("/save ../x/..", "cannot write|is no name"),
        ("/save .hidden", "no name"),
        ("/compare", "no answer"),
        ("/why", "no answer"),
        ("/copy", "no answer"),
        ("/regen", "no answer"),
        ("/undo now", "no argument"),
        ("/edit", "no editor"),
    ],
)
def test_bad_input_is_told(chat, line, word, monkeypatch):
    """What cannot be done is said, and changes nothing."""
    monkeypatch.delenv("EDITOR", raising=False)
    monkeypatch.delenv("VISUAL", raising=False)
    before = (chat.session.params, chat.llm.config, list(chat.session.turns))
    with pytest.raises(SpecCliError, match=word):
        run_command(chat, line)
    assert before == (chat.session.params, chat.llm.config, list(chat.session.turns))


def test_settings(chat):
    """/set, /k, /spec, /stats, /multi change what they say."""
    run_command(chat, "/set temperature 0.5")
    run_command(chat, "/set stop \\nUser:")
    run_command(chat, "/set seed 7")
    assert (chat.session.params.temperature, chat.session.params.seed) == (0.5, 7)
    assert chat.session.params.stop == ("\nUser:",)
    run_command(chat, "/set seed none")
    assert chat.session.params.seed is None
    run_command(chat, "/k 5")
    assert chat.llm.config.num_draft_tokens == 5
    run_command(chat, "/spec off")
    with pytest.raises(UsageError, match="speculation is off"):
        run_command(chat, "/k 3")
    run_command(chat, "/spec on")
    assert chat.llm.assembly.spec != "off"
    run_command(chat, "/stats full")
    run_command(chat, "/multi")
    assert chat.is_multi_line
    say(chat, "Hello")
    run_command(chat, "/show")
    run_command(chat, "/show context")
    assert "target cache" in chat.shown()


def test_compare_and_why(chat):
    """/compare measures the last turn against the target alone, and finds the same text."""
    say(chat, "one two one two one two")
    run_command(chat, "/why")
    if chat.session.turns[-1].stats.num_spec_steps:
        assert "Accepted by position" in chat.shown()
        run_command(chat, "/compare")
        assert "x measured" in chat.shown()
        assert "same text" in chat.shown()
    run_command(chat, "/spec off")
    say(chat, "more")
    run_command(chat, "/why")
    assert "/spec ngram" in chat.shown()
    with pytest.raises(UsageError, match="target-only already"):
        run_command(chat, "/compare")


def test_highlight_writes_again(chat):
    """/highlight re-prints the last answer with other looks."""
    turn = say(chat, "Hello")
    before = len(chat.shown())
    run_command(chat, "/highlight none")
    assert "\x1b[4m" not in chat.shown()[before:]
    run_command(chat, "/highlight position")
    assert chat.looks.highlight == "position"
    assert turn.text


def test_edit_replaces_the_turn(chat, monkeypatch, tmp_path):
    """/edit opens the editor on the last message and sends what it becomes."""
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\necho more >> $1\n")
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    say(chat, "Hello")
    run_command(chat, "/edit")
    assert [turn.user for turn in chat.session.turns] == ["Hello\nmore"]
    editor.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(UsageError, match="failed"):
        run_command(chat, "/edit")
    assert len(chat.session.turns) == 1


def test_system(chat):
    """/system sets, shows and takes several lines; a template without a place refuses."""
    run_command(chat, "/system Be kind.")
    run_command(chat, "/system")
    assert "Be kind." in chat.shown()
    run_command(chat, '/system """\none\ntwo\n"""')
    assert chat.session.system == "one\ntwo"


def test_t01_template_without_a_system_role(tmp_path):
    """T-01: such a template is told in words, before anything is asked."""
    folder = save_text_model(tmp_path / "strict")
    (folder / "chat_template.jinja").write_text(STRICT)
    result = invoke("chat", "-m", folder, "-s", "x", stdin="hi")
    assert result.exit_code == 2
    assert "no system" in result.output
    assert "Traceback" not in result.output
    assert invoke("chat", "-m", folder, "-n", "4", stdin="hi").exit_code == 0


def test_drafts_come_and_go(chat, tmp_path):
    """/draft, /spec and /k in any order; the answer is always the target's own."""
    draft = save_text_model(tmp_path / "draft", text_config(hidden_size=16), seed=1)
    want = say(chat, "one two one").text
    for line in (
        f"/draft {draft}",
        "/k 4",
        "/spec ngram",
        "/spec draft",
        "/spec off",
        "/spec auto",
    ):
        run_command(chat, line)
        run_command(chat, "/undo")
        assert say(chat, "one two one").text == want, line
    assert "draft draft" in chat.drafter
    run_command(chat, "/draft off")
    assert chat.llm.config.draft_model is None
    for way in ("draft", "hybrid"):
        with pytest.raises(UsageError, match="no draft model"):
            run_command(chat, f"/spec {way}")


def test_draft_swaps_the_draft_only(chat, tmp_path):
    """/draft leaves the way as it was where it can, else it is what `auto` makes of it."""
    draft = save_text_model(tmp_path / "draft", text_config(hidden_size=16), seed=1)
    for before, named, dropped in (
        ("auto", "hybrid", "suffix"),
        ("ngram", "hybrid", "suffix"),
        ("off", "hybrid", "suffix"),
    ):
        run_command(chat, f"/spec {before}")
        run_command(chat, f"/draft {draft}")
        assert chat.llm.config.proposer == named
        run_command(chat, "/draft off")
        assert chat.llm.config.proposer == dropped
    for way in ("ngram", "off"):
        run_command(chat, f"/spec {way}")
        run_command(chat, "/draft off")
        assert chat.llm.config.proposer == way


def test_options_come_back_with_their_way(endless, tmp_path):
    """A corpus, a draft's device and a draft length hinder no way, and wait for the next."""
    notes = tmp_path / "notes.txt"
    notes.write_text("one two three\n" * 9)
    draft = save_text_model(tmp_path / "draft", text_config(hidden_size=16), seed=1)
    options = {"lookup_corpus": notes, "draft_model": str(draft), "draft_device": "cpu"}
    with LLM(str(endless), num_draft_tokens=3, **options) as llm:
        chat = console_of(llm)
        before = llm.config
        say(chat, "one two")
        run_command(chat, "/compare")
        for way in ("off", "ngram", "suffix", "draft"):
            run_command(chat, f"/spec {way}")
            assert llm.config.spec == way
        run_command(chat, "/spec auto")
        assert llm.config == before


def test_chat_that_begins_without_speculation(llm):
    """/spec on is what `auto` is, and drafts can be given a length then."""
    llm.speculate(spec="off", num_draft_tokens="auto", draft_model=None)
    chat = console_of(llm)
    run_command(chat, "/spec on")
    run_command(chat, "/k 3")
    assert (llm.config.proposer, llm.config.num_draft_tokens) == ("suffix", 3)
    run_command(chat, "/spec off")
    run_command(chat, "/spec on")
    assert llm.config.num_draft_tokens == 3


def test_read_attaches(chat, tmp_path):
    """/read attaches a text to the next message, fenced whatever is in it."""
    (tmp_path / "notes.md").write_text("```\ncode\n```\n")
    run_command(chat, f"/read {tmp_path / 'notes.md'}")
    assert chat.attachments == ["notes.md:\n````\n```\ncode\n```\n````"]


@pytest.mark.parametrize("text", ["日本語 😀 e\u0301", "שלום עולם", "a\tb\x1b[2J\r\n"])
def test_save_load_and_export_any_text(chat, tmp_path, text):
    """What is saved comes back the same: text, settings, seed and figures."""
    path = tmp_path / "chat.json"
    turn = say(chat, text)
    chat.session.system = text
    run_command(chat, "/set temperature 0.25")
    run_command(chat, f"/save {path}")
    run_command(chat, f"/export {tmp_path / 'chat.md'}")
    assert text in (tmp_path / "chat.md").read_bytes().decode()
    assert path.stat().st_mode & 0o777 == 0o600
    run_command(chat, "/clear")
    chat.session.params, chat.session.system = PARAMS, None
    run_command(chat, f"/load {path}")
    loaded = chat.session.turns[0]
    assert (loaded.user, loaded.text, loaded.seed) == (text, turn.text, turn.seed)
    assert loaded.stats == turn.stats
    assert (chat.session.system, chat.session.params.temperature) == (text, 0.25)


def test_save_by_name(chat):
    """A name is a file in the data folder, which /load lists."""
    say(chat, "Hello")
    run_command(chat, "/save first")
    run_command(chat, "/load")
    assert "saved: first" in chat.shown()
    run_command(chat, "/load first")
    assert chat.session.turns[0].user == "Hello"


def test_copy_needs_a_terminal(chat):
    """/copy hands the text to the terminal's clipboard."""
    say(chat, "Hello")
    run_command(chat, "/copy")
    assert "\x1b]52;c;" in chat.shown()


def test_history(tmp_path, monkeypatch):
    """The file holds 1,000 messages, several lines each if need be, for the user alone."""
    path = tmp_path / "state" / "history"
    history = FileHistory(path, print)
    for number in range(1003):
        history.append_string(f"message\n{number}")
    assert path.stat().st_mode & 0o777 == 0o600
    lines = path.read_text().splitlines()
    assert [json.loads(lines[0]), len(lines)] == ["message\n3", 1000]
    path.write_text(path.read_text() + "broken\n{}\n")
    assert next(iter(FileHistory(path, print).load_history_strings())) == "message\n1002"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert history_path() == tmp_path / "spec-cli" / "history"


def test_history_that_cannot_be_written_is_told_once(tmp_path):
    """Messages are then kept in memory."""
    (tmp_path / "file").write_text("")
    told: list[str] = []
    history = FileHistory(tmp_path / "file" / "history", told.append)
    history.append_string("one")
    history.append_string("two")
    assert len(told) == 1
    assert list(history.get_strings()) == ["one", "two"]


def test_completion(tmp_path, monkeypatch):
    """Commands, their choices and files are completed; messages are not."""

    def complete(text: str) -> list[str]:
        found = CommandCompleter().get_completions(Document(text), CompleteEvent())
        return [each.text for each in found]

    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    assert complete("/hi") == ["ghlight"] or complete("/hi") == ["highlight"]
    assert "position" in complete("/highlight p")
    assert complete("/read no") == ["tes.txt"]
    assert complete("hello /hi") == complete("//hi") == []


def test_fences():
    """Several lines between triple quotes."""
    assert _unfenced('"""one\ntwo"""') == "one\ntwo"
    assert _unfenced('"""\none\n"""') == "one"
