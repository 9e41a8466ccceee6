"""The OpenAPI document: it is the file in the documentation, and the service does what it says."""

import json
import os
import pwd
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from oar.api import long_polling
from oar.lib.access import tokens
from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from tests.api.conftest import Api
from tests.builders import add_job, add_resources

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "openapi.json"
#: Streams have no end.
ENDLESS = "/v1/stream"
#: What asks the server of OAR itself is answered 503 where none runs.
OF_THE_SERVER = ("server", "server_notify", "reservation_request", "reservation_alter", "rounds")
_CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"

#: A few examples of each operation, the same ones each time.
OPTIONS = (
    *("--checks", _CHECKS, "--exclude-path", ENDLESS),
    *(word for each in OF_THE_SERVER for word in ("--exclude-operation-id", each)),
    *("--phases", "examples,coverage,fuzzing"),
    *("--max-examples", "4", "--max-time", "15", "--generation-deterministic", "--no-shrink"),
    *("--suppress-health-check", "all", "--request-timeout", "30", "--warnings", "off", "--no-color"),
)


def test_the_document_is_the_one_in_the_documentation(anonymous: httpx.Client) -> None:
    served = anonymous.get("/openapi.json").json()
    written = json.loads(DOCUMENT.read_text())
    assert served == written, "python -m docs.generate"


def test_no_number_is_taken_beyond_the_bounds_that_the_document_tells(anonymous: httpx.Client) -> None:
    document = anonymous.get("/openapi.json").json()
    reads = [(path, all_of["get"]) for path, all_of in document["paths"].items() if "get" in all_of]
    tried = 0
    for path, operation in reads:
        for parameter in operation.get("parameters", ()):
            schema = parameter["schema"].get("anyOf", [parameter["schema"]])[0]
            if schema.get("type") != "integer" or parameter["in"] == "header":
                continue
            assert {"minimum", "maximum"} <= schema.keys(), (path, parameter["name"])
            for wrong in (schema["minimum"] - 1, schema["maximum"] + 1):
                place = path.replace(f"{{{parameter['name']}}}", str(wrong))
                here = re.sub(r"\{[^}]+\}", "1", place)
                asked = {} if parameter["in"] == "path" else {parameter["name"]: wrong}
                assert anonymous.get(here, params=asked).status_code == 400, (path, parameter["name"], wrong)
                tried += 1
    assert tried > 50


def test_each_body_has_an_example_that_its_operation_takes(anonymous: httpx.Client) -> None:
    document = anonymous.get("/openapi.json").json()
    components = document["components"]["schemas"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            place = path
            for parameter in operation.get("parameters", ()):
                some = "1" if parameter["schema"].get("type") == "integer" else "x"
                place = place.replace(f"{{{parameter['name']}}}", some)
            schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            if schema:
                (name,) = re.findall(r'"#/components/schemas/(\w+)"', json.dumps(schema))
                (example,) = components[name]["examples"]
                answer = anonymous.request(method, place, json=example)
                assert answer.status_code in (401, 404), (name, answer.text)  # it was read before


@pytest.mark.slow
@pytest.mark.parametrize("who", ["anonymous", "user", "administrator"])
def test_the_service_does_what_the_document_says(
    api: Api, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    monkeypatch.setattr(long_polling, "MAX_WAIT", 0)
    api.runtime.config = Config(api_rate_read=0, api_rate_change=0, api_rate_estimate=0)
    resources = add_resources(database)
    add_job(database, JobState.RUNNING, on=resources[:1])
    add_job(database, user="nobody")
    address = f"http://127.0.0.1:{api.port}"
    served = tmp_path / "openapi.json"  # a file: for a document from the network the tool waits 10 s and no longer
    served.write_bytes(httpx.get(f"{address}/openapi.json", timeout=60).content)
    command = [sys.executable, "-m", "schemathesis.cli", "run", str(served), "--url", address, *OPTIONS]
    if who != "anonymous":
        me = pwd.getpwuid(os.geteuid())
        user = User("nobody", 65534) if who == "user" else User(me.pw_name, me.pw_uid, administers=True)
        with database.begin() as tx:
            _, token = tokens.create(tx, user, scope="rw" if who == "user" else "admin")
        command += ["-H", f"Authorization: Bearer {token}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
