"""AWS MSK with IAM, up to the token: the signer of `requirements/msk.lock`, beside what this environment has."""

import base64
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.kit.documented import ROOT

pytestmark = pytest.mark.slow

PROGRAM = """
import asyncio
from runtime.tokens import token_provider
from schemas.connection import KafkaSettings
broker = "b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com:9098"
msk = KafkaSettings(bootstrap_servers=broker, security_protocol="SASL_SSL", sasl_mechanism="AWS_MSK_IAM")
print(asyncio.run(token_provider(msk).token()))
"""


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the signer."""
    folder = tmp_path_factory.mktemp("msk")
    install = ("-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--require-hashes")
    lock = ROOT / "requirements" / "msk.lock"
    subprocess.run([sys.executable, *install, "--target", folder, "-r", lock], check=True)
    return folder


def signed(signer: Path, **credentials: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{signer}", "AWS_EC2_METADATA_DISABLED": "true"}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(command, env=environ | credentials, capture_output=True, text=True, check=False)


def test_the_token_is_a_request_to_connect_signed_for_the_brokers_region(signer: Path) -> None:
    done = signed(signer, AWS_ACCESS_KEY_ID="AKIDEXAMPLE", AWS_SECRET_ACCESS_KEY="secret", AWS_SESSION_TOKEN="session")
    token = done.stdout.strip()
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    query = parse_qs(url.query)
    assert url.hostname == "kafka.eu-west-1.amazonaws.com"
    assert query["Action"] == ["kafka-cluster:Connect"]
    assert query["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
    assert query["X-Amz-Security-Token"] == ["session"]
    assert query["X-Amz-Expires"] == ["900"]


def test_without_credentials_the_error_says_so(signer: Path, tmp_path: Path) -> None:
    done = signed(signer, HOME=str(tmp_path))
    assert done.returncode == 1
    assert "no token to sign in to Kafka: AWS credentials for MSK in eu-west-1" in done.stderr
