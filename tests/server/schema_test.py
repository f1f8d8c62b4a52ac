"""Requests that schemathesis makes of /openapi.json: whatever comes, the answer is one that the document promises."""
import os

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings

EXAMPLES = int(os.environ.get("TESSERA_SCHEMA_EXAMPLES", "25"))  # of each operation


# A request that the document allows may still be refused: fields can contradict each other, and a token id may be none of
# the model's. A body of far too many items may be too large before anybody counts them.
CHECKS = {"positive_data_acceptance": {"enabled": False}, "negative_data_rejection": {"expected-statuses": [400, 404, 413, 415, 422]}}


@pytest.fixture(scope="module")
def api(server):
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json", config=schemathesis.Config.from_dict({"checks": CHECKS}))


schema = schemathesis.pytest.from_fixture("api")


@schemathesis.hook
def before_call(context, case, kwargs):
    """Requests may ask for a million tokens; the tests have no time for them."""
    body = case.body
    if isinstance(body, dict):
        for name, most in (("max_tokens", 4), ("max_completion_tokens", 4), ("n", 3)):
            if isinstance(body.get(name), int) and not isinstance(body[name], bool) and most < body[name] <= 1000000:
                body[name] = most
        if "messages" in body and body.get("max_tokens") is None and body.get("max_completion_tokens") is None:
            body["max_tokens"] = 2


@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
def test_answers_are_as_the_document_says(case, server):
    case.call_and_validate(timeout=60)
    assert server.is_alive()
