"""Names of aggregates: those that SQL has, and what to write in place of those that are not kept."""

from __future__ import annotations

from slackwater.language.dialect import AGGREGATES

INSTEAD = {
    "approx_count_distinct": "COUNT(DISTINCT x)",
    "approx_distinct": "COUNT(DISTINCT x)",
    "approx_quantile": "percentile(x, p), which is exact",
    "array_agg": "a set-valued query (no aggregate)",
    "array_unique_agg": "COUNT(DISTINCT x), or a set-valued query",
    "percentile_approx": "percentile(x, p), which is exact",
    "approx_percentile": "percentile(x, p), which is exact",
    "collect_list": "a set-valued query (no aggregate)",
    "collect_set": "COUNT(DISTINCT x), or a set-valued query",
    "first": "MIN or MAX: rows of a window have no order",
    "last": "MIN or MAX: rows of a window have no order",
    "any_value": "MIN or MAX",
    "first_value": "MIN or MAX: rows of a window have no order",
    "last_value": "MIN or MAX: rows of a window have no order",
    "max_by": "MAX(struct(y, x)).x in place of max_by(x, y)",
    "min_by": "MIN(struct(y, x)).x in place of min_by(x, y)",
    "try_sum": "SUM",
    "try_avg": "AVG",
    "string_agg": "a set-valued query (no aggregate)",
    "listagg": "a set-valued query (no aggregate)",
}
"""What to write in place of an aggregate that is not kept."""
OTHERS = frozenset(
    {
        "bit_and", "bit_or", "bit_xor", "bitmap_construct_agg", "bitmap_or_agg", "corr", "count_min_sketch",
        "covar_pop", "covar_samp", "grouping", "grouping_id", "histogram_numeric", "hll_sketch_agg",
        "hll_union_agg", "kurtosis", "mode", "percentile_disc", "regr_avgx", "regr_avgy", "regr_count",
        "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy", "skewness",
        "theta_sketch_agg",
    }
)  # fmt: skip
"""Spark's further aggregates."""
SUPPORTED = (
    "COUNT, SUM, AVG, MIN, MAX, STDDEV, VARIANCE (and their _POP), MEDIAN, PERCENTILE, COUNT(DISTINCT), "
    "COUNT_IF, BOOL_AND, BOOL_OR, and aggregates registered from Python"
)


BY_NAME = {
    "mean": "avg",
    "every": "bool_and",
    "some": "bool_or",
    "std": "stddev_samp",
    "var_samp": "var_samp",
    "stddev": "stddev_samp",
    "percentile": "percentile",
}
"""Kept aggregates that are known by another name."""


def is_built_in(name: str) -> bool:
    """Whether SQL has an aggregate of this name: a user's would never be called.

    >>> is_built_in("Sum"), is_built_in("geo_mean")
    (True, False)
    """
    lower = name.lower()
    return name.upper() in AGGREGATES or lower in INSTEAD or lower in OTHERS or lower in {*BY_NAME, "any"}
