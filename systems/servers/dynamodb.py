"""DynamoDB Local from the jars of scripts/install-servers; where those could not be had, moto."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path

from penstock.stores.dynamodb import init_store
from systems.servers.kafka import cache_folder
from systems.servers.ports import free_port
from systems.servers.process import ServerProcess

HEAP = "192m"
CREDENTIALS = "local:local"


class DynamoServer(ServerProcess):
    """One in-memory server; its tables are told apart by name."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = free_port()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, table: str, redis: str, port: int | None = None, **options: object) -> str:
        """The store's address; another `port` for a proxy before the server.

        Through a proxy the product's own time-outs hold; else the local server may be slow.
        """
        if port is None:
            options = {"timeout": "60s", **options}
        more = "".join(f"&{name}={value}" for name, value in options.items())
        host = f"127.0.0.1:{port or self.port}"
        return f"dynamodb+redis://{CREDENTIALS}@{host}/{table}?redis={redis}{more}"

    def make_table(self, name: str, *, shards: int = 1) -> None:
        asyncio.run(init_store(self.url(name, "redis://", shards=shards)))

    def answers(self) -> bool:
        try:
            self.ask("ListTables", {})
        except OSError:
            return False
        return True

    def empty(self, table: str) -> None:
        """Take out everything but what makes it a table of Penstock."""
        while items := self.ask("Scan", {"TableName": table, "ProjectionExpression": "pk"}):
            found = [item["pk"]["S"] for item in items["Items"]]
            gone = [pk for pk in found if pk not in ("s:schema", "s:probe")]
            for i in range(0, len(gone), 25):
                deletes = [{"DeleteRequest": {"Key": {"pk": {"S": pk}}}} for pk in gone[i : i + 25]]
                self.ask("BatchWriteItem", {"RequestItems": {table: deletes}})
            if "LastEvaluatedKey" not in items:
                return

    def drop(self, table: str) -> None:
        self.ask("DeleteTable", {"TableName": table})

    def ask(
        self, operation: str, body: dict[str, object]
    ) -> dict[str, list[dict[str, dict[str, str]]]]:
        request = urllib.request.Request(
            f"http://{self.host}/",
            data=json.dumps(body).encode(),
            headers={
                "Content-Type": "application/x-amz-json-1.0",
                "X-Amz-Target": f"DynamoDB_20120810.{operation}",
                "Authorization": "AWS4-HMAC-SHA256 Credential=local/20300101/us-east-1/dynamodb/"
                "aws4_request, SignedHeaders=host, Signature=0",
            },
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            found: dict[str, list[dict[str, dict[str, str]]]] = json.load(answer)
            return found


class DynamoLocal(DynamoServer):
    def __init__(self, folder: Path, jars: Path) -> None:
        super().__init__(folder)
        self._jars = jars

    def command(self) -> list[str]:
        java = shutil.which("java")
        assert java, "no java: run scripts/install-servers"
        quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        main = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"
        return [
            *(java, f"-Xmx{HEAP}", *quick, f"-Djava.library.path={self._jars}"),
            *("-cp", f"{self._jars}/*", main),
            *("-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(self.port)),
        ]


class Moto(DynamoServer):
    """The stand-in, which has no PartiQL worth the name."""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]


def dynamodb_jars() -> Path | None:
    """The folder of DynamoDB Local's jars; None where Maven Central could not be reached."""
    cache = cache_folder()
    if (cache / "dynamodb" / ".stamp").exists():
        return cache / "dynamodb"
    if (cache / "dynamodb.unreachable").exists():
        return None
    raise RuntimeError(f"no DynamoDB Local in {cache}: run scripts/install-servers")


def dynamo_server(folder: Path) -> DynamoServer:
    jars = dynamodb_jars()
    return Moto(folder) if jars is None else DynamoLocal(folder, jars)
