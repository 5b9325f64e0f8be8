"""Statements as reports show them: no value of an option, no path of a webhook, and all else as it was written."""

from __future__ import annotations

import pytest

from slackwater.language.parse import parse
from slackwater.language.shown import UNREADABLE, shown_sql

OPTIONS = """OPTIONS (
  api_key 'hush', 'kafka.ssl.keystore.key' = 'hush', passphrase "hush", pwd = 'it''s hush; ) -- x', -- or 'hush'
  fs.s3a.access.key 'hush', `odd name` 'hush', url 'jdbc:postgresql://u:hush@h/d', pin -4711, on TRUE)"""
NAMES = (
    "OPTIONS (api_key '…', 'kafka.ssl.keystore.key' '…', passphrase '…', pwd '…', "
    "fs.s3a.access.key '…', `odd name` '…', url '…', pin '…', on '…')"
)


def test_no_value_of_an_option_is_shown() -> None:
    stream = (
        "CREATE STREAM p (ts TIMESTAMP, m MAP<STRING, INT>)\nUSING kafka {options} FORMAT csv {options}\n"
        "  KEY (m) TIMESTAMP BY ts LATENESS 1.50 SECONDS MAX RATE 5 PER SECOND OF m"
    )
    table = "CREATE TABLE t (a DECIMAL(3, 1)) USING org.example.jdbc {options}"
    text = f"{stream};\n{table}"
    shown = shown_sql(text.replace("{options}", OPTIONS))
    assert shown == text.replace("{options}", NAMES)
    assert len(parse(shown)) == 2


def test_options_that_follow_other_clauses_are_not_shown_either() -> None:
    text = "CREATE STREAM p (ts TIMESTAMP) USING x OPTIONS (a 'hush') TIMESTAMP BY ts OPTIONS (b 'hush')"
    assert shown_sql(text) == text.replace("hush", "…")


def test_a_name_that_is_the_word_itself_is_none_of_them() -> None:
    text = (
        "CREATE STREAM options (options STRING, n INT) USING options OPTIONS (options 'hush') KEY (options) "
        "TIMESTAMP BY timestamp_seconds(options(n, 'as written')) AS ts"
    )
    assert shown_sql(text) == text.replace("hush", "…")
    text = "CREATE TABLE options (options STRING) USING csv"
    assert shown_sql(text) == text


@pytest.mark.parametrize("before", [True, False])
def test_of_webhooks_hosts_are_shown(before: bool) -> None:
    to = "TO 'https://ann:hush@h:1/hush?hush' AND 'http://h/'"
    shown = "TO 'https://h:1/…' AND 'http://h'"
    alert = (
        "CREATE ALERT a ON q {} WHEN n > 1.50" if before else "CREATE ALERT a ON q WHEN n > 1.50 POSSIBLY {}"
    )
    assert shown_sql(alert.format(to)) == alert.format(shown)


def test_comments_beside_secrets_are_left_out() -> None:
    assert shown_sql("CREATE ALERT a -- TO 'https://h/hush'\n  ON q WHEN n > 1 /* hush */ TO 'http://h'") == (
        "CREATE ALERT a\nON q WHEN n > 1 TO 'http://h'"
    )


def test_other_statements_are_as_they_were_written() -> None:
    query = (
        "CREATE QUERY q AS SELECT password, 'token' AS secret /* why */, COUNT(*) AS n FROM p\n"
        "  WHERE token = 'abc' AND url = 'https://h/x' GROUP BY window(ts, '1 second')  WITH ERROR 5%"
    )
    text = f"{query};\nALTER QUERY q WITH EXACT"
    assert shown_sql(text) == text
    assert shown_sql("") == ""


@pytest.mark.parametrize(
    "text", ["CREATE TABLE t (a INT) USING csv OPTIONS (pwd 'hush'", "pwd 'hush", "DROP"]
)
def test_of_what_cannot_be_read_nothing_is_shown(text: str) -> None:
    assert shown_sql(text) == UNREADABLE
