"""Options of recorded traces: a misspelt one is told, where Spark would pass over it in silence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from slackwater.errors import SourceError

_FILES = (
    "pathGlobFilter recursiveFileLookup modifiedBefore modifiedAfter ignoreCorruptFiles ignoreMissingFiles "
    "basePath"
)
_TEXT = (
    "encoding charset dateFormat timestampFormat timestampNTZFormat timeFormat lineSep mode multiLine locale "
    "timeZone samplingRatio columnNameOfCorruptRecord enableDateTimeParsingFallback compression"
)
_KNOWN: Mapping[str, str] = {
    "csv": f"{_FILES} {_TEXT} header sep delimiter quote escape comment enforceSchema inferSchema "
    "ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace nullValue emptyValue nanValue positiveInf negativeInf "
    "maxColumns maxCharsPerColumn unescapedQuoteHandling charToEscapeQuoteEscaping preferDate "
    "columnPruning escapeQuotes quoteAll extension singleVariantColumn",
    "json": f"{_FILES} {_TEXT} primitivesAsString prefersDecimal allowComments allowUnquotedFieldNames "
    "allowSingleQuotes allowNumericLeadingZeros allowNonNumericNumbers allowBackslashEscapingAnyCharacter "
    "allowUnquotedControlChars dropFieldIfAllNull ignoreNullFields useUnsafeRow singleVariantColumn",
    "parquet": f"{_FILES} mergeSchema datetimeRebaseMode int96RebaseMode",
}


def check_options(stream: str, kind: str, given: Iterable[str]) -> None:
    """Raise where a replayed trace is given an option that its reader does not have.

    >>> check_options("p", "csv", ["header", "SEP"])
    """
    known = {o.lower(): o for o in ("path", "speed", "format", *_KNOWN[kind].split())}
    for option in given:
        if option.lower() not in known:
            near = difflib.get_close_matches(option.lower(), known, n=1)
            hint = f"did you mean {known[near[0]]}?" if near else f"there are {', '.join(known.values())}"
            raise SourceError(f"stream {stream}: a {kind} trace has no option {option!r}; {hint}")
