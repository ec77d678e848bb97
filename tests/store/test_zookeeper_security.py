"""The store on a ZooKeeper that wants TLS, certificates and a password, and on protected nodes."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.cluster.zookeepers import PROPERTIES, SETTINGS, require_zookeeper

from tidelog.core.config import BrokerConfig
from tidelog.core.errors import ConfigError
from tidelog.local.ports import LOOPBACK, free_ports
from tidelog.local.zookeeper import LocalZookeeper
from tidelog.metadata.store import ANY_VERSION, Create, SetData, StoreError, TransactionFailed
from tidelog.runtime.stores.opening import make_store

_JAAS = """Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required user_broker="secret" user_other="x";
};
"""


@dataclass(frozen=True)
class Secured:
    """A server, and the files that its clients need."""

    server: LocalZookeeper
    secure_port: int
    authority: Path
    client: Path


def openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)


def certificate(directory: Path, name: str, authority: Path | None) -> Path:
    """A PEM file with key and certificate, for LOOPBACK, signed by an authority or by itself."""
    key, request = directory / f"{name}.key", directory / f"{name}.csr"
    made, together = directory / f"{name}.crt", directory / f"{name}.pem"
    extensions = directory / f"{name}.ext"
    extensions.write_text(f"subjectAltName=IP:{LOOPBACK},DNS:localhost\n")
    new = ("req", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-subj", f"/CN={name}")
    if authority is None:
        openssl(*new, "-x509", "-days", "30", "-out", str(made))
    else:
        openssl(*new, "-out", str(request))
        signing = ["-CA", str(authority), "-CAkey", str(authority.with_suffix(".key"))]
        openssl(
            *("x509", "-req", "-in", str(request), *signing, "-CAcreateserial", "-days", "30"),
            *("-extfile", str(extensions), "-out", str(made)),
        )
    # PKCS 8, as ZooKeeper reads it.
    together.write_bytes(key.read_bytes() + made.read_bytes())
    return together


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One server with a plain port that wants a password, and one of TLS and certificates."""
    require_zookeeper()
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make certificates with")
    path = tmp_path_factory.mktemp("secured")
    authority = certificate(path, "authority", None).with_suffix(".crt")
    authority_pem = path / "trusted.pem"
    authority_pem.write_bytes(authority.read_bytes())
    keystore = certificate(path, "server", authority)
    client = certificate(path, "client", authority)
    jaas = path / "jaas.conf"
    jaas.write_text(_JAAS)
    port, secure_port = free_ports(2)
    server = LocalZookeeper(
        str(path / "server"),
        port,
        settings={
            **SETTINGS,
            "secureClientPort": str(secure_port),
            "secureClientPortAddress": LOOPBACK,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "ssl.keyStore.location": str(keystore),
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": str(authority_pem),
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": "need",
        },
        properties={**PROPERTIES, "java.security.auth.login.config": str(jaas)},
        jars=("netty-",),
        end_with_program=True,
    )
    server.start()
    yield Secured(server, secure_port, authority_pem, client)
    server.stop()


def config(port: int, **keys: str) -> BrokerConfig:
    given = {key.replace("_", "."): value for key, value in keys.items()}
    return BrokerConfig.from_properties(
        {
            "broker.id": "1",
            "metadata.store": f"zookeeper://{LOOPBACK}:{port}",
            "metadata.session.timeout.ms": "20000",
            **given,
        }
    )


#: For connections that fail: the store retries until this time is over.
FAILS_SOON = {"zookeeper_connection_timeout_ms": "2000"}


def tls(secured: Secured, **keys: str) -> dict[str, str]:
    return {
        "zookeeper_ssl_client_enable": "true",
        "zookeeper_ssl_truststore_location": str(secured.authority),
        "zookeeper_ssl_keystore_location": str(secured.client),
        **keys,
    }


async def write_and_read(keys: BrokerConfig, path: str) -> bytes:
    store = make_store(keys, asyncio.get_running_loop(), lambda line: None)
    await store.open()
    try:
        await store.transact([Create(path, b"x" * 100_000)])
        node = await store.get(path)
        assert node is not None
        return node.data
    finally:
        await store.close()


def test_a_store_behind_tls_and_certificates(secured: Secured) -> None:
    keys = config(secured.secure_port, **tls(secured))
    assert asyncio.run(write_and_read(keys, "/tls")) == b"x" * 100_000


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"zookeeper_ssl_truststore_location": ""}, "certificate verify failed"),
        ({"zookeeper_ssl_keystore_location": ""}, ""),
        ({"zookeeper_ssl_truststore_location": "/nowhere"}, "No such file"),
    ],
    ids=["unknown authority", "no certificate", "no file"],
)
def test_what_is_wrong_with_tls_is_told(secured: Secured, wrong: dict[str, str], told: str) -> None:
    keys = config(secured.secure_port, **tls(secured, **wrong), **FAILS_SOON)
    with pytest.raises(StoreError) as raised:
        asyncio.run(write_and_read(keys, "/never"))
    assert f"{LOOPBACK}:{secured.secure_port}" in str(raised.value)
    assert told in str(raised.value)


def test_a_plain_connection_to_a_port_of_tls_is_told(secured: Secured) -> None:
    with pytest.raises(StoreError, match=f"{LOOPBACK}:{secured.secure_port}"):
        asyncio.run(write_and_read(config(secured.secure_port, **FAILS_SOON), "/never"))


def credentials(path: Path, text: str) -> str:
    file = path / "credentials"
    file.write_text(text)
    return str(file)


@pytest.mark.rule("R22")
def test_protected_nodes_are_of_who_made_them(secured: Secured, tmp_path: Path) -> None:
    """SASL DIGEST-MD5; what the broker makes is read by all, and changed by itself alone."""
    own = config(
        secured.server.port,
        zookeeper_sasl_credentials_file=credentials(tmp_path, "broker:secret\n"),
        zookeeper_set_acl="true",
    )

    async def story() -> None:
        loop = asyncio.get_running_loop()
        mine = make_store(own, loop, lambda line: None)
        others = make_store(config(secured.server.port), loop, lambda line: None)
        await mine.open()
        await others.open()
        try:
            await mine.transact([Create("/mine", b"1"), SetData("/mine", b"2", 0)])
            node = await others.get("/mine")
            assert node is not None and node.data == b"2"
            with pytest.raises(TransactionFailed, match="not authorized") as raised:
                await others.transact([SetData("/mine", b"3", ANY_VERSION)])
            assert raised.value.error.path == "/mine"
            await mine.transact([SetData("/mine", b"4", 1)])
            await mine.transact([Create("/config", b""), Create("/config/users", b"secret")])
            assert await others.get("/config") is not None
            with pytest.raises(StoreError, match="not authorized.*: /config/users"):
                await others.get("/config/users")
            with pytest.raises(StoreError, match="not authorized.*: /config/users"):
                await others.get_many(["/mine", "/config/users"])
        finally:
            await mine.close()
            await others.close()

    asyncio.run(story())


def test_a_wrong_password_is_told(secured: Secured, tmp_path: Path) -> None:
    keys = config(
        secured.server.port,
        zookeeper_sasl_credentials_file=credentials(tmp_path, "broker:wrong"),
    )
    with pytest.raises(StoreError, match="authentication failed"):
        asyncio.run(write_and_read(keys, "/never"))


def test_protection_without_authentication_is_told(secured: Secured) -> None:
    keys = config(secured.server.port, zookeeper_set_acl="true")
    with pytest.raises(StoreError, match="INVALIDACL"):
        asyncio.run(write_and_read(keys, "/never"))


@pytest.mark.parametrize("text", ["", "broker", "broker:", ":secret"])
def test_a_file_of_credentials_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    keys = config(1, zookeeper_sasl_credentials_file=credentials(tmp_path, text))
    with pytest.raises(ConfigError, match=r"credentials: one line user:password expected"):
        asyncio.run(write_and_read(keys, "/never"))
    missing = config(1, zookeeper_sasl_credentials_file=str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="No such file"):
        asyncio.run(write_and_read(missing, "/never"))
