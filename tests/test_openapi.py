"""The OpenAPI document holds: whatever is asked after it, nothing breaks, and answers are as it says."""

from __future__ import annotations

import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import positive_data_acceptance

import statements
from service_run import QUERIES, STREAM, Running, running
from service_still import Still, StillControl
from slackwater.service import control
from slackwater.service.guard import FREE_POSTS, READS
from slackwater.service.problems import MEDIA_TYPE
from slackwater.service.server import app_for
from slackwater.terminal.serve import VARIABLE

NAMES = ["web", "by_port", "total", "p", "busy", "dns"]
WATCHED = "CREATE ALERT busy ON total WHEN n > 1e9 TO 'http://127.0.0.1:9/';\n"


def document() -> dict[str, Any]:
    return app_for(Still(), StillControl(), token="x" * 16).openapi()


for _kind, _strategy in {
    "queries": statements.QUERIES,
    "alerts": statements.ALERTS,
    "statements": statements.STATEMENTS,
    "contract": statements.CONTRACTS,
}.items():
    schemathesis.openapi.format(_kind, _strategy)
SQL = {
    ("/api/queries", "post"): ("Statements", "sql", "queries"),
    ("/api/alerts", "post"): ("Statements", "sql", "alerts"),
    ("/api/preview", "post"): ("Statements", "sql", "statements"),
    ("/api/queries/{name}", "patch"): ("ContractWanted", "contract", "contract"),
}
"""By operation: the schema of its body, the field that is SQL, and what is put there."""


def telling() -> dict[str, Any]:
    """The document, with names that there are and SQL that is nearly right: others are hardly ever guessed.

    What is said of any other status is left out: with it no status would be a wrong one.
    """
    made = document()
    for (path, method), (name, field, kind) in SQL.items():
        body = deepcopy(made["components"]["schemas"][name])
        body["properties"][field]["format"] = kind
        made["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"] = body
    for operations in made["paths"].values():
        for operation in operations.values():
            del operation["responses"]["default"]
            for parameter in operation.get("parameters", ()):
                if parameter["name"] in ("name", "query", "stream"):
                    parameter["schema"] = {"anyOf": [{"enum": NAMES}, parameter["schema"]]}
    return made


REFUSED = ["400", "401", "403", "404", "405", "406", "409", "413", "414", "415", "422", "429", "431"]
"""What may be said to a request that the document does not allow; such a one may be too large, too."""
config = schemathesis.Config.from_dict(
    {"checks": {"negative_data_rejection": {"expected-statuses": REFUSED}}}
)
schema = schemathesis.openapi.from_dict(telling(), config=config)


@pytest.fixture(scope="module")
def run(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    state = tmp_path_factory.mktemp("openapi") / "state"
    with (
        pytest.MonkeyPatch.context() as patch,
        running(spark, state, STREAM + QUERIES + WATCHED) as found,
    ):
        found.turn(4)
        # no batch comes meanwhile: there is no use in waiting for rows that a new query is tried on
        patch.setattr(control, "TASTING_S", 0.01)
        yield found


GIVEN: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
"""How often each operation has answered with each status."""


def checked(method: str, path: str) -> Any:
    """The test of one operation."""

    @schema.include(method=method.upper(), path=path).parametrize()
    @settings(
        max_examples=100 if (path, method) in SQL else 40,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def does_as_the_document_says(case: Any, run: Running) -> None:
        with warnings.catch_warnings():
            # of libraries below: it is not their tidiness that is tested
            warnings.simplefilter("ignore")
            response = case.call_and_validate(
                base_url=run.client.address.url,
                headers={"Authorization": f"Bearer {run.client.address.token}"},
                # text that fits the schema need not be SQL
                excluded_checks=[positive_data_acceptance],
                timeout=30,
            )
        GIVEN[method, path][response.status_code] += 1

    return does_as_the_document_says


# an event stream has no end that could be waited for; tests/test_service_events.py reads them
# one function for each: those that come of one all have its name, and processes that share tests know them by name
OPERATIONS = [
    (method, path)
    for path, operations in document()["paths"].items()
    for method in operations
    if not path.endswith("/events")
]
for _method, _path in OPERATIONS:
    _words = re.sub(r"\W+", "_", f"{_method} {_path}").strip("_")
    globals()[f"test_as_the_document_says_{_words}"] = checked(_method, _path)


def test_all_operations_are_tested() -> None:
    names = [name for name in globals() if name.startswith("test_as_the_document_says_")]
    assert len(names) == len(OPERATIONS) == sum(map(len, document()["paths"].values())) - 2


def test_sql_was_taken_and_refused() -> None:
    """What is hardly ever valid, or always, tests half of it."""
    if not all((method, path) in GIVEN for path, method in SQL):
        pytest.skip("not all that takes SQL was asked")
    for path, method in SQL:
        given = GIVEN[method, path]
        taken = sum(number for status, number in given.items() if status < 300)
        assert taken >= 4, (path, given)
        assert given[422] >= 4, (path, given)


def test_the_run_goes_on_after_all_that(run: Running) -> None:
    run.turn()
    assert run.client.get("/api/health").ok()["phase"] == "running"


def test_the_document_is_served(run: Running) -> None:
    assert run.client.get("/api/openapi.json").ok() == document()


def test_every_operation_is_described() -> None:
    made = document()
    tags = {tag["name"] for tag in made["tags"]}
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            assert operation["description"].endswith("."), path
            assert set(operation["tags"]) <= tags
            wrong = {code: r for code, r in operation["responses"].items() if not code.startswith("2")}
            assert "default" in wrong
            for response in wrong.values():
                assert response["content"] == {
                    MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}
                }
            needed = method.upper() not in READS and path not in FREE_POSTS
            assert ({} not in operation["security"]) == needed, path
    assert "HTTPValidationError" not in made["components"]["schemas"]
    assert made["components"]["securitySchemes"]["token"]["scheme"] == "bearer"


def test_the_documentation_has_every_operation_and_no_other() -> None:
    text = (Path(__file__).resolve().parents[1] / "docs" / "service.md").read_text()
    told = set()
    for methods, paths in re.findall(r"^\| (GET|POST|PUT|PATCH|DELETE) (/[^|]+) \|", text, re.MULTILINE):
        told |= {(methods, path.replace("NAME", "{name}")) for path in paths.split(", ")}
    there = {(m.upper(), path) for path, operations in document()["paths"].items() for m in operations}
    assert told == there | {("GET", "/metrics")}


def test_the_documentation_names_the_variable_that_is_read() -> None:
    text = (Path(__file__).resolve().parents[1] / "docs" / "service.md").read_text()
    assert set(re.findall(r"SLACKWATER_\w*TOKEN", text)) == {VARIABLE}
