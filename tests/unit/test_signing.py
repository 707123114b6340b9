"""Signatures are those of the Standard Webhooks scheme, as published."""

import base64
import hashlib
import hmac
from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from penstock.model.signing import Signer

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_published_example_comes_out() -> None:
    signed = Signer(KEY).sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_it_signs_id_timestamp_and_the_exact_bytes() -> None:
    body = bytes(range(256))
    mac = hmac.new(base64.b64decode(KEY[6:]), b"a.b.17." + body, hashlib.sha256)
    assert Signer(KEY).sign("a.b", 17, body) == "v1," + base64.b64encode(mac.digest()).decode()


def test_a_text_without_the_prefix_is_the_key_itself() -> None:
    mac = hmac.new("pässword".encode(), b"i.1.x", hashlib.sha256)
    assert Signer("pässword").sign("i", 1, b"x") == "v1," + base64.b64encode(mac.digest()).decode()


def test_while_keys_rotate_each_signs() -> None:
    both = Signer(f"{KEY}  other").sign("i", 1, b"x").split(" ")
    assert both == [Signer(KEY).sign("i", 1, b"x"), Signer("other").sign("i", 1, b"x")]


@pytest.mark.parametrize("bad", ["", "   ", "whsec_", "whsec_not base64!", "whsec_???"])
def test_a_secret_without_a_key_is_refused_and_not_shown(bad: str) -> None:
    with pytest.raises(ValueError, match=r"is empty|must be base64") as caught:
        Signer(bad)
    assert "???" not in str(caught.value)


def test_the_schemes_own_library_verifies_what_we_sign() -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = '{"exact" :  1}'
    now = int(datetime.now(UTC).timestamp())
    headers = {
        "webhook-id": "m-1",
        "webhook-timestamp": str(now),
        "webhook-signature": Signer(f"{secret} another-key").sign("m-1", now, body.encode()),
    }
    assert Webhook(secret).verify(body, headers) == {"exact": 1}
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(body + " ", headers)
