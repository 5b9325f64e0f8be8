"""Statements from Python: each says in a call what SQL says in a sentence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from slackwater.language.contracts import Contract
from slackwater.language.render import (
    alter_query,
    create_alert,
    create_query,
    create_stream,
    create_table,
    create_view,
    drop_alert,
    drop_query,
)


class Declarations(ABC):
    """What a session can declare; every call becomes SQL, so that there is one way in."""

    @abstractmethod
    def sql(self, text: str, *, file: str = "") -> list[str]:
        """Apply statements, all or none; the texts of what EXPLAIN asked for."""

    def stream(
        self,
        name: str,
        columns: Mapping[str, str],
        *,
        format: str,
        timestamp_by: str,
        options: Mapping[str, str] | None = None,
        payload: str | None = None,
        key: Sequence[str] = (),
        payload_options: Mapping[str, str] | None = None,
        lateness: str = "",
        tolerance: str = "",
        max_rate: str = "",
        idle: str = "",
        tick: str = "",
        interrupted_after: str = "",
    ) -> None:
        """``CREATE STREAM``: columns by name with their Spark SQL types, lengths of time as in SQL."""
        text = create_stream(
            name,
            columns,
            format,
            timestamp_by,
            options=options,
            payload=payload,
            key=key,
            payload_options=payload_options,
            lateness=lateness,
            tolerance=tolerance,
            max_rate=max_rate,
            idle=idle,
            tick=tick,
            interrupted_after=interrupted_after,
        )
        self.sql(text)

    def table(
        self, name: str, columns: Mapping[str, str], *, format: str, options: Mapping[str, str] | None = None
    ) -> None:
        """``CREATE TABLE``."""
        self.sql(create_table(name, columns, format, options))

    def view(self, name: str, select: str) -> None:
        """``CREATE VIEW``."""
        self.sql(create_view(name, select))

    def query(self, name: str, select: str, *, contract: Contract | str | None = None) -> None:
        """``CREATE QUERY``; the contract as a value or as SQL writes it after WITH."""
        self.sql(create_query(name, select, contract))

    def alter(self, name: str, contract: Contract | str) -> None:
        """``ALTER QUERY``."""
        self.sql(alter_query(name, contract))

    def drop(self, name: str) -> None:
        """``DROP QUERY``."""
        self.sql(drop_query(name))

    def alert(self, name: str, *, query: str, when: str, url: str | Sequence[str]) -> None:
        """``CREATE ALERT``: the condition as SQL writes it after WHEN; one webhook or several."""
        self.sql(create_alert(name, query, when, [url] if isinstance(url, str) else url))

    def drop_alert(self, name: str) -> None:
        """``DROP ALERT``."""
        self.sql(drop_alert(name))
