"""Statements and contracts as hypothesis makes them: most of them valid, others nearly so."""

from __future__ import annotations

from hypothesis import strategies as st

_new = st.builds("{}{}".format, st.sampled_from("abcdefgh"), st.integers(0, 30))
_there = st.sampled_from(("total", "by_port", "web", "busy", "p", "a0", "nothing"))
_names = st.one_of(_new, _new, _new, _there)
_columns = st.sampled_from(("size", "port"))
_aggregates = st.builds(
    "{}({}) AS n".format, st.sampled_from(("SUM", "AVG", "MIN", "MAX", "COUNT", "MEDIAN")), _columns
)
_tests = st.builds(
    " WHERE {} {} {}".format, _columns, st.sampled_from((">", "<=", "=", "<>")), st.integers(-5, 70_000)
)
_windows = st.one_of(
    st.builds("window(ts, '{} seconds')".format, st.integers(1, 60)),
    st.builds("window(ts, '{} seconds', '1 second')".format, st.integers(1, 10)),
    st.builds("tuples({})".format, st.integers(1, 100)),
)
_groups = st.builds("{}{}".format, _windows, st.sampled_from(("", ", port")))
_selects = st.one_of(
    st.builds("SELECT {} FROM p{} GROUP BY {}".format, _aggregates, _tests | st.just(""), _groups),
    st.builds("SELECT port, size FROM p{}".format, _tests),
)
_shares = st.sampled_from(("1%", "5%", "12.5%", "0.001%"))
_valid_contracts = st.one_of(
    st.sampled_from(("EXACT", "ERROR", "ERROR CONFIDENCE 90%", "SUBSET GAP 3", "EXACT PRIORITY 1")),
    st.builds("ERROR {} WEIGHT {}".format, _shares, st.floats(0.1, 9)),
    st.builds("SUBSET GAP {}".format, st.integers(1, 9)),
    # these need a stream of agents, or current values
    st.builds("PRECISION {}".format, st.integers(0, 100)),
    st.builds("DRIFT {} BELIEF 90%".format, _shares),
)
_queries = st.builds(
    "CREATE QUERY {} AS {}{}".format,
    _names,
    _selects,
    st.just("") | st.builds(" WITH {}".format, _valid_contracts),
)
_alerts = st.builds(
    "CREATE ALERT {} ON {} {} {} TO 'http://127.0.0.1:9/'".format,
    _names,
    st.sampled_from(("total WHEN n", "total WHEN bytes", "by_port WHEN n", "web WHEN bytes", "web WHEN n")),
    st.sampled_from((">", "<")),
    st.integers(0, 10**9),
)
_others = st.one_of(
    st.builds("CREATE VIEW {} AS {}".format, _names, _selects),
    st.builds("ALTER QUERY {} WITH {}".format, _there, _valid_contracts),
    st.builds("DROP {} {}".format, st.sampled_from(("QUERY", "VIEW", "ALERT", "STREAM")), _there),
    st.just("EXPLAIN total"),
    st.just("CREATE TABLE t (host STRING) USING csv OPTIONS (path '/nothing/there.csv')"),
)
_one = st.one_of(_queries, _queries, _alerts, _others)


@st.composite
def _nearly(draw: st.DrawFn, whole: st.SearchStrategy[str]) -> str:
    """A text with one thing wrong: a word that is gone, there twice or another one, or an end too early."""
    words = draw(whole).split(" ")
    place = draw(st.integers(0, len(words) - 1))
    kind = draw(st.sampled_from(("gone", "twice", "other", "ends")))
    if kind == "ends":
        return " ".join(words[:place]) or "'"
    if kind == "gone":
        return " ".join(words[:place] + words[place + 1 :]) or ";"
    other = (
        words[place]
        if kind == "twice"
        else draw(st.sampled_from(("sise", "ts", "(", "'", "5 %", "\x00", "é;")))
    )
    return " ".join([*words[: place + 1], other, *words[place + 1 :]])


_several = st.lists(_one, min_size=2, max_size=3).map("; ".join)
STATEMENTS = st.one_of(_one, _one, _one, _several, _nearly(_one))
QUERIES = st.one_of(*[_queries] * 6, _nearly(_queries), STATEMENTS)
ALERTS = st.one_of(*[_alerts] * 6, _nearly(_alerts), STATEMENTS)
CONTRACTS = st.one_of(_valid_contracts, _valid_contracts, _nearly(_valid_contracts))
