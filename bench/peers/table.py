"""Every peer: its server, its environment, what is started, and with which settings."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Peer:
    """One line of the comparison. Commands are words; the first is a program of its environment."""

    name: str
    title: str
    server: str
    """redis, redis-aof, beanstalkd, rabbitmq, postgres or sqlite."""
    settings: str
    """What was chosen for two cores, for the table's notes."""
    enqueue: tuple[str, ...]
    workers: tuple[tuple[str, ...], ...] = ()
    """The first is the one that is killed. None: the enqueuer itself works, too."""
    environment: str = ""
    lacks: dict[str, str] = field(default_factory=dict)
    """Workload → why it is not measured."""
    config: str = ""
    """penstock.toml of a peer that has one; its API's port stands for @PORT@."""

    @property
    def place(self) -> str:
        """The name of its environment."""
        return self.environment or self.name

    @property
    def is_ours(self) -> bool:
        return self.place == "penstock"


NO_BULK = "has no call for many"
_PYTHON = "python"
_SIDE = (_PYTHON, "@ADAPTERS@/side.py")
_BATCH = "handler takes batches"
_HTTP = """
store = "@STORE@"
[api]
http = "127.0.0.1:@PORT@"
[worker]
lease = "@LEASE@s"
[routes.default]
sink = "python:penstock_peer:handle"
"""


def _ours(name: str, title: str, server: str, settings: str) -> Peer:
    """The library on a shared store: one process schedules, another works."""
    return Peer(
        name,
        title,
        server,
        settings,
        (*_SIDE, "penstock_peer", "enqueue", "library"),
        ((*_SIDE, "penstock_peer", "worker"),),
        environment="penstock",
    )


def _served(name: str, title: str, server: str, settings: str, *roles: str) -> Peer:
    """The same behind HTTP."""
    return Peer(
        name,
        title,
        server,
        settings,
        (*_SIDE, "penstock_peer", "enqueue", "http"),
        tuple((_PYTHON, "-m", "penstock", role) for role in roles),
        environment="penstock",
        config=_HTTP,
    )


def behind_settings(role: str, server: str, gather: str = "") -> Peer:
    """`penstock serve` or `penstock worker`; messages are put straight into its store."""
    more = f'gather = "{gather}"\n' if gather else ""
    config = _HTTP.replace("[worker]\n", f"[worker]\n{more}")
    if role == "worker":
        config = config.replace("[worker]\n", '[worker]\nmetrics = "127.0.0.1:@PORT@"\n')
    return Peer(
        f"{role}-{server}",
        f"penstock {role}, {server}",
        server,
        _BATCH,
        (*_SIDE, "penstock_peer", "enqueue", "library"),
        ((_PYTHON, "-m", "penstock", role),),
        environment="penstock",
        config=config,
    )


def _on_node(name: str, title: str, settings: str) -> Peer:
    """A peer on PostgreSQL in one Node process."""
    program = ("node", f"@PLACE@/{name}_peer.mjs")
    about = f"one Node process, {settings}; PostgreSQL as it comes"
    return Peer(name, title, "postgres", about, program, ((*program, "worker"),))


def _rabbit(variant: str, title: str, settings: str) -> Peer:
    return Peer(
        f"rabbitmq-{variant}",
        title,
        "rabbitmq",
        settings,
        (*_SIDE, "rabbitmq_peer", "enqueue", variant),
        ((*_SIDE, "rabbitmq_peer", "worker", variant),),
        environment="rabbitmq",
    )


def _words(command: str) -> tuple[str, ...]:
    return tuple(command.split())


_RQ = _words("rq worker --with-scheduler -q -u @URL@ -w rq_peer.Worker")
_ALONE = " --without-gossip --without-mingle --without-heartbeat"

PEERS: tuple[Peer, ...] = (
    Peer(
        "penstock-sqlite",
        "Penstock, SQLite, embedded",
        "sqlite",
        f"one process schedules and works, synchronous=FULL, {_BATCH}",
        (*_SIDE, "penstock_peer", "enqueue", "embedded"),
        environment="penstock",
    ),
    _ours("penstock-redis", "Penstock, Redis, library", "redis", f"one worker process, {_BATCH}"),
    _ours(
        "penstock-redis-aof",
        "Penstock, Redis with AOF, library",
        "redis-aof",
        f"one worker process, appendfsync everysec, {_BATCH}",
    ),
    _ours(
        "penstock-postgres",
        "Penstock, PostgreSQL, library",
        "postgres",
        f"one worker process, PostgreSQL as it comes, {_BATCH}",
    ),
    _served(
        "penstock-sqlite-http",
        "Penstock, SQLite, HTTP",
        "sqlite",
        f"`penstock serve`, synchronous=FULL, {_BATCH}",
        "serve",
    ),
    _served(
        "penstock-redis-http",
        "Penstock, Redis, HTTP",
        "redis",
        f"`penstock worker` and `penstock api`, {_BATCH}",
        "worker",
        "api",
    ),
    Peer(
        "celery",
        "Celery",
        "redis",
        "prefork, 2 children, acks_late, no results, without gossip, mingle and heartbeat",
        (*_SIDE, "celery_peer", "enqueue"),
        (_words("celery -A celery_peer worker --concurrency=2 --loglevel=ERROR" + _ALONE),),
    ),
    Peer(
        "huey",
        "Huey",
        "redis",
        "2 worker processes, scheduler every second (its shortest), no results",
        (*_SIDE, "huey_peer", "enqueue"),
        (_words("huey_consumer huey_peer.huey -w 2 -k process -s 1 -q"),),
        lacks={"bulk": NO_BULK},
    ),
    Peer(
        "bullmq",
        "BullMQ",
        "redis",
        "one Node process, 100 jobs at once, nothing kept",
        ("node", "@PLACE@/bullmq_peer.mjs"),
        (("node", "@PLACE@/bullmq_peer.mjs", "worker"),),
    ),
    Peer(
        "beanstalkd",
        "beanstalkd",
        "beanstalkd",
        "no binlog, pipelined puts, 2 Python workers that delete and reserve in one write",
        (*_SIDE, "beanstalkd_peer", "enqueue"),
        ((*_SIDE, "beanstalkd_peer", "worker"),) * 2,
    ),
    Peer(
        "rq",
        "RQ",
        "redis",
        "2 workers that do not fork for a job, both with the scheduler, bulk by a pipeline",
        (*_SIDE, "rq_peer", "enqueue"),
        (_RQ, _RQ),
    ),
    Peer(
        "arq",
        "arq",
        "redis",
        "one process, 100 jobs at once, poll every 50 ms, no results, bulk 100 at once",
        (*_SIDE, "arq_peer", "enqueue"),
        (_words("arq arq_peer.WorkerSettings"),),
    ),
    Peer(
        "dramatiq",
        "Dramatiq",
        "redis",
        "2 processes of 8 threads, no metrics",
        (*_SIDE, "dramatiq_peer", "enqueue"),
        (_words("dramatiq dramatiq_peer --processes 2 --threads 8"),),
        lacks={"bulk": NO_BULK},
    ),
    Peer(
        "taskiq",
        "taskiq",
        "redis",
        "stream broker, 2 worker processes, list schedule source, scheduler every second",
        (*_SIDE, "taskiq_peer", "enqueue"),
        (
            _words("taskiq worker taskiq_peer:broker --workers 2 --log-level ERROR"),
            _words("taskiq scheduler taskiq_peer:scheduler --update-interval 1 --log-level ERROR"),
        ),
    ),
    Peer(
        "asynq",
        "asynq (Go)",
        "redis",
        "one Go process, 100 tasks at once, delayed tasks looked for every 100 ms",
        _words("asynq enqueue"),
        (_words("asynq worker"),),
        lacks={"bulk": NO_BULK},
    ),
    Peer(
        "river",
        "River (Go)",
        "postgres",
        "one Go process, 100 jobs at once, jobs looked for every 100 ms, bulk by COPY;"
        " PostgreSQL as it comes",
        _words("river enqueue"),
        (_words("river worker"),),
    ),
    Peer(
        "procrastinate",
        "Procrastinate",
        "postgres",
        "one process, 100 jobs at once, jobs looked for every 100 ms and NOTIFY, nothing kept;"
        " PostgreSQL as it comes",
        (*_SIDE, "procrastinate_peer", "enqueue"),
        ((*_SIDE, "procrastinate_peer", "worker"),),
    ),
    _on_node("pgboss", "pg-boss", "100 jobs a fetch, every half second (its shortest)"),
    _on_node("graphile", "Graphile Worker", "100 jobs at once, local queue of 200, every 100 ms"),
    _on_node("bullmqpg", "BullMQ on PostgreSQL", "100 jobs at once, nothing kept"),
    _rabbit(
        "one",
        "RabbitMQ, one TTL + DLX queue",
        "persistent, confirmed, one Python consumer, prefetch 500",
    ),
    _rabbit(
        "slots",
        "RabbitMQ, a queue per 100 ms",
        "persistent, confirmed, one Python consumer, prefetch 500",
    ),
)


def chosen(names: list[str]) -> list[Peer]:
    """Those named; a first word will do for a family ("penstock"); none named: all."""
    found = [p for p in PEERS if not names or {p.name, p.place} & set(names)]
    unknown = [n for n in names if not any(n in {p.name, p.place} for p in PEERS)]
    if unknown:
        known = ", ".join(peer.name for peer in PEERS)
        raise ValueError(f"no peer {unknown[0]!r}; there are: {known}")
    return found
