"""Spark's SQL as we read and write it: a function keeps its name and its arguments.

sqlglot knows what hundreds of functions mean and writes them as it sees fit, for other engines than the
one that will run them. Expressions go to Spark as they stand, so here only the syntax and the aggregates
are understood; every other call is a name with arguments.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

AGGREGATES = (
    "AVG", "COUNT", "COUNT_IF", "BOOL_AND", "BOOL_OR", "MAX", "MEDIAN", "MIN", "PERCENTILE_CONT",
    "STDDEV", "STDDEV_POP", "STDDEV_SAMP", "SUM", "VARIANCE", "VAR_SAMP", "VAR_POP",
)  # fmt: skip
"""What the plan takes apart."""
SYNTAX = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "POSITION", "OVERLAY", "SUBSTRING", "SUBSTR")
"""Calls with words between their arguments, such as ``EXTRACT(hour FROM ts)``."""


class SparkText(Spark):
    """The dialect of every text that the project reads or writes."""

    class Tokenizer(Spark.Tokenizer):
        # EXPLAIN is a statement here: sqlglot would make one string of what follows it
        COMMANDS: ClassVar[set[TokenType]] = set()
        # since Spark 4 a doubled quote stands for one
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']

    class Parser(SparkParser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {n: SparkParser.FUNCTIONS[n] for n in AGGREGATES}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {n: SparkParser.FUNCTION_PARSERS[n] for n in SYNTAX}
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            n: p for n, p in SparkParser.NO_PAREN_FUNCTION_PARSERS.items() if n in ("ANY", "CASE", "IF")
        }

        # array(1, 2)[0] is an element of an array, not another array
        ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {}

    class Generator(SparkGenerator):
        TYPE_MAPPING: ClassVar[dict[Any, str]] = {**SparkGenerator.TYPE_MAPPING, exp.DType.TIME: "TIME"}
        # as they were written: what percentile_cont means Spark knows best
        TRANSFORMS: ClassVar[dict[Any, Any]] = {
            kind: write
            for kind, write in SparkGenerator.TRANSFORMS.items()
            if kind not in (exp.WithinGroup, exp.PercentileCont)
        }
