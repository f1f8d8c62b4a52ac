"""Requests that schemathesis makes of /openapi.json: whatever comes, the answer is one that the document promises."""
import os

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings

EXAMPLES = int(os.environ.get("TESSERA_SCHEMA_EXAMPLES", "25"))  # of each operation


@pytest.fixture(scope="module")
def api(server):
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


schema = schemathesis.pytest.from_fixture("api")


@schemathesis.hook
def map_body(context, body):
    """Valid requests may ask for a million tokens; the tests have no time for them."""
    if isinstance(body, dict):
        for name, most in (("max_tokens", 4), ("max_completion_tokens", 4), ("n", 3)):
            if isinstance(body.get(name), int) and not isinstance(body[name], bool) and body[name] > most:
                body[name] = most
        if ("prompt" in body or "messages" in body) and "max_tokens" not in body and "max_completion_tokens" not in body:
            body["max_tokens"] = 2
    return body


@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
def test_answers_are_as_the_document_says(case, server):
    case.call_and_validate(timeout=60)
    assert server.is_alive()
