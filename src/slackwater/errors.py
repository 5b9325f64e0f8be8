"""Every error that Slackwater raises on purpose: one root, one subclass per stage.

An error says what was expected, what came, where, and what to do about it. Errors about SQL text
carry the position and show the line with a pointer below the offending word.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Position:
    """A place in a SQL text: line and column count from 1, offset from 0."""

    line: int
    column: int
    offset: int


class SlackwaterError(Exception):
    """The root of all errors that are meant for the user's eyes."""


class LanguageError(SlackwaterError):
    """The SQL text cannot be understood, or asks for something that cannot be honoured."""

    def __init__(
        self,
        message: str,
        *,
        text: str = "",
        position: Position | None = None,
        hint: str = "",
        file: str = "",
    ) -> None:
        self.message = message
        self.text = text
        self.position = position
        self.hint = hint
        self.file = file
        super().__init__(message)

    def __str__(self) -> str:
        lines = [self.message]
        if self.position is not None:
            where = f"line {self.position.line}, column {self.position.column}"
            lines[0] = f"{self.file + ': ' if self.file else ''}{where}: {self.message}"
            source = self.text.split("\n")
            if 0 < self.position.line <= len(source):
                shown = source[self.position.line - 1].replace("\t", " ")
                lines.append(f"  {shown}")
                lines.append("  " + " " * (self.position.column - 1) + "^")
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class PlanError(SlackwaterError):
    """A well-formed query cannot be planned against the catalog."""


class SourceError(SlackwaterError):
    """A stream or table cannot be read as declared."""


class StateError(SlackwaterError):
    """The state directory is not what this run can go on from."""


class SinkError(SlackwaterError):
    """Answers cannot be written where they were asked to go."""


class RunError(SlackwaterError):
    """The pipeline stopped while running."""
