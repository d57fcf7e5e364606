"""Finds the commands that the pages, the alerts and the program's own advice tell people to run."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from typer.core import TyperGroup
from typer.main import get_command

from receiver.cli import app

TREE: Final = Path(__file__).parents[2]

#: Pages that tell people what to run.
_PAGES: Final = (
    "*.md",
    "benchmarks/*.md",
    "deploy/**/*.md",
    "docs/**/*.md",
    "examples/**/*.md",
    "plugins/**/*.md",
    "spark_streaming/**/*.md",
    "tests/*/README.md",
)

#: What Helm prints after an installation.
_NOTES: Final = TREE / "deploy/helm/kafka-client-telemetry/templates/NOTES.txt"

#: Programs that a span of code begins with, if it is a command.
_PROGRAM: Final = re.compile(
    r"(?:[A-Z_]+=\S+ )*"
    r"(?:\.venv/bin/\S+|kafka-telemetry|kafka-[a-z-]+\.sh|curl|helm|kubectl|docker|openssl|python3?|pip|make|"
    r"terraform|spark-submit|cosign|jb|jsonnet|git|ctr|podman|kind load|minikube|rpk|df|iostat|kill|psql|"
    r"systemctl|journalctl|sudo|apt(?:-get)?|cat|chmod|chown|kcat|mkdir|npm|ss|tar|wget)(?: |$)"
)
_SHELLS: Final = ("sh", "bash", "shell")

#: The languages of blocks without commands, and of blocks of text, which are looked through.
_OTHER_BLOCKS: Final = frozenset({"", "text", "ini", "json", "properties", "python", "sql", "yaml"})

#: What joins two commands of a line.
_JOINTS: Final = frozenset({"&&", "||", ";", "|", "&"})

#: A variable in front of a command.
_VARIABLE: Final = re.compile(r"[A-Z_]+=")

#: A command among the examples of a command's help, and the lines that go on with it.
_OF_HELP: Final = re.compile(r"^      (?:[A-Z_]+=\S+ )?(kafka-telemetry .*(?:\n {8}.*)*)$", re.MULTILINE)


@dataclass(frozen=True, order=True)
class Command:
    """A command on a page.

    Attributes:
        words: The program and its arguments, as a shell splits them.
        place: The file and line, for messages.
        is_whole: Whether it can be pasted: a line of a block, and not a mention in a sentence.
    """

    words: tuple[str, ...]
    place: str
    is_whole: bool

    @property
    def program(self) -> str:
        """The program's name without a folder."""
        return Path(self.words[0]).name or self.words[0]

    @property
    def arguments(self) -> tuple[str, ...]:
        """The program's arguments, without the file that its output goes to."""
        end = self.words.index(">") if ">" in self.words else None
        return self.words[1:end]

    def __str__(self) -> str:
        return shlex.join(self.words)


@cache
def documented_commands() -> tuple[Command, ...]:
    """Return all commands, each once for each place."""
    found = [command for page in _pages() for command in commands_of_page(page)]
    found += _of_notes()
    for file in _sources():
        found += _of_source(file)
    found += [inner for command in found if (inner := _within(command)) is not None]
    return tuple(sorted(set(found)))


def hidden_commands() -> list[str]:
    """Return the places of commands in blocks that are not marked as a shell's, and so not read."""
    return [place for page in _pages() for place in hidden_blocks(page)]


def hidden_blocks(page: Path, tree: Path = TREE) -> Iterator[str]:
    """Yield the places of the blocks of a page that may have commands, and are not a shell's."""
    for token in MarkdownIt("commonmark").parse(page.read_text()):
        if token.type != "fence" or token.info.strip() in _SHELLS:
            continue
        is_unknown = token.info.strip() not in _OTHER_BLOCKS
        if token.map and (is_unknown or any(map(_PROGRAM.match, token.content.splitlines()))):
            yield f"{page.relative_to(tree)}:{token.map[0] + 1}"


def _within(command: Command) -> Command | None:
    """Return the command of ours that another one runs in a pod, after ``--``."""
    if "--" not in command.words:
        return None
    words = command.words[command.words.index("--") + 1 :]
    ours = words and words[0] == "kafka-telemetry"
    return Command(words, command.place, command.is_whole) if ours else None


def _pages() -> list[Path]:
    pages = {page for pattern in _PAGES for page in TREE.glob(pattern)}
    return sorted(page for page in pages if "node_modules" not in page.parts)


def _of_notes() -> Iterator[Command]:
    """Yield the commands that Helm prints, with a name for each value of the release."""
    lines = [line.strip() for line in _NOTES.read_text().splitlines()]
    text = "\n".join(line for line in lines if not re.fullmatch(r"\{\{-.*?\}\}", line))
    text = re.sub(r"\{\{.*?\}\}", "NAME", text).replace("\\\n", " ")
    for line in text.splitlines():
        if _PROGRAM.match(line):
            yield from _commands(line, str(_NOTES.relative_to(TREE)), is_whole=True)


def commands_of_page(page: Path, tree: Path = TREE) -> Iterator[Command]:
    """Yield the commands of a page's blocks and spans."""
    markdown = MarkdownIt("commonmark").enable("table")
    for token in markdown.parse(page.read_text()):
        line = token.map[0] + 1 if token.map else 0
        place = f"{page.relative_to(tree)}:{line}"
        if token.type == "fence" and token.info.strip() in _SHELLS:
            for text in _lines(token.content):
                yield from _commands(text, place, is_whole=True)
        elif token.type == "code_block":
            for text in token.content.replace("\\\n", " ").splitlines():
                if _PROGRAM.match(text):
                    yield from _commands(text, place, is_whole=True)
        for span in token.children or ():
            yield from _of_span(span, place)


def _of_span(span: Token, place: str) -> Iterator[Command]:
    if span.type == "code_inline" and _PROGRAM.match(span.content):
        yield from _commands(span.content, place, is_whole=False)


def _of_source(file: Path) -> Iterator[Command]:
    """Yield the commands between backticks, and the examples of help, that a program writes."""
    for text, place in _texts(file):
        quoted = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
        for code in [*quoted, *re.findall(r"^kafka-telemetry [^\n]+$", text)]:
            if code.startswith("kafka-telemetry ") and "VALUE" not in code:
                yield from _commands(code, place, is_whole=False)
        for code in _OF_HELP.findall(text):
            yield from _commands(" ".join(code.split()), place, is_whole=True)


def bare_commands() -> list[str]:
    """Return the places of advice with a command outside of backticks, which is not read."""
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    bare = re.compile(rf"kafka-telemetry (?:{'|'.join(group.commands)}) [a-z-]")
    found = []
    for file in _sources():
        for text, place in _texts(file):
            is_sql = "deploy" in file.parts  # the banner of the dashboards, which knows no backticks
            advice = _OF_HELP.sub("", re.sub(r"``?[^`]+``?|^kafka-telemetry [^\n]+$", "", text))
            if bare.search(advice) and not is_sql:
                found.append(place)
    return found


def _sources() -> Iterator[Path]:
    for folder in ("receiver", "plugins", "spark_streaming", "deploy"):
        yield from sorted((TREE / folder).rglob("*.py"))


def _texts(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the texts of a source file that may name a command of ours, and the place of each."""
    source = file.read_text()
    if "kafka-telemetry " not in source:
        return
    nodes = list(ast.walk(ast.parse(source)))
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "VALUE" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            text = node.value
        else:
            continue
        if "kafka-telemetry " in text:
            yield text, f"{file.relative_to(TREE)}:{node.lineno}"


def _commands(text: str, place: str, *, is_whole: bool) -> Iterator[Command]:
    """Yield each command of a line, without the variables in front of it."""
    words: list[str] = []
    split = shlex.shlex(text, posix=True, punctuation_chars="".join(sorted({*"".join(_JOINTS)})))
    split.whitespace_split = True
    for word in [*split, ";"]:
        if word not in _JOINTS:
            if words or not _VARIABLE.match(word):
                words.append(word)
        elif words:
            yield Command(tuple(words), place, is_whole)
            words = []


def _lines(block: str) -> Iterator[str]:
    """Yield the commands of a block: a line, and those that a backslash or a quote joins to it."""
    joined = ""
    for line in block.splitlines():
        joined += line
        if joined.endswith("\\"):
            joined = f"{joined[:-1]} "
            continue
        try:
            words = shlex.split(joined, comments=True)
        except ValueError:  # within quotes
            joined += "\n"
            continue
        if words:
            yield joined
        joined = ""
    assert not joined, f"the block ends within a command: {block}"
