"""Reads a Dockerfile and .dockerignore, as far as this project uses them.

Not a checker: BuildKit's own is run over the same files (``tests/images/lint``). What is not known
here is refused, so that no instruction is passed over in silence.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Instructions that are read and carried out, and those that only an engine has a use for.
_CARRIED_OUT: Final = ("CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "HEALTHCHECK", "LABEL", "RUN", "USER")
_KNOWN: Final = frozenset((*_CARRIED_OUT, "WORKDIR", "ARG", "EXPOSE", "STOPSIGNAL", "VOLUME"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction.

    Attributes:
        name: In capitals.
        flags: Values of ``--name=value``, by name, in order; ``--mount`` may be there twice.
        text: What follows the flags, lines joined.
    """

    name: str
    flags: tuple[tuple[str, str], ...]
    text: str

    def flag(self, name: str) -> str | None:
        """The value of a flag, None where it isn't given."""
        return dict(self.flags).get(name)

    @property
    def mounts(self) -> tuple[Mapping[str, str], ...]:
        """Each ``--mount`` by its keys."""
        values = [value for name, value in self.flags if name == "mount"]
        return tuple(dict(pair.split("=", 1) for pair in value.split(",")) for value in values)

    @property
    def words(self) -> list[str]:
        """The text as words: a JSON list, or split as a shell does."""
        if self.text.startswith("["):
            words: list[str] = json.loads(self.text)
            return words
        return shlex.split(self.text)

    @property
    def pairs(self) -> dict[str, str]:
        """The text as ``KEY=value`` pairs, of ENV, LABEL and ARG; a key alone has no value."""
        return {key: value for key, _, value in (word.partition("=") for word in shlex.split(self.text))}


def read(path: Path) -> tuple[Instruction, ...]:
    """Read a Dockerfile.

    Raises:
        ValueError: It has an instruction that is not known here.
    """
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.lstrip().startswith("#")]
    return tuple(_instructions("\n".join(lines)))


def _instructions(text: str) -> Iterator[Instruction]:
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if not line.strip():
            continue
        name, rest = line.split(None, 1)
        if name not in _KNOWN:
            raise ValueError(f"{name}: not an instruction that is known here")
        flags = []
        while found := re.match(r"--([a-z-]+)=(\S+)\s*", rest):
            flags.append((found[1], found[2]))
            rest = rest[found.end() :]
        yield Instruction(name=name, flags=tuple(flags), text=rest)


def context(tree: Path) -> Iterator[Path]:
    """The files that an engine gets of a tree, by its .dockerignore.

    Yields:
        Paths relative to the tree.
    """
    lines = (tree / ".dockerignore").read_text("utf-8").splitlines()
    rules = [(line.lstrip("!"), line.startswith("!")) for line in lines if line and not line.startswith("#")]
    patterns = [(_pattern(text), kept) for text, kept in rules]
    for folder, folders, names in os.walk(tree):
        at = Path(folder).relative_to(tree)
        # Nothing of a hidden folder is let in by a rule, and some have very many files.
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (at / name for name in sorted(names) if _kept(at / name, patterns))


def _pattern(text: str) -> re.Pattern[str]:
    # A pattern stands for what is below it as well.
    escaped = re.escape(text).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
    return re.compile(f"{escaped}(?:/.*)?")


def _kept(path: Path, patterns: list[tuple[re.Pattern[str], bool]]) -> bool:
    decisions = [kept for pattern, kept in patterns if pattern.fullmatch(path.as_posix())]
    return decisions[-1] if decisions else True
