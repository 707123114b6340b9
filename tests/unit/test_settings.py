"""Settings: where they come from, which wins, and what is said when they are wrong."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from penstock.cli.config_text import rows
from penstock.model.backoff import Backoff
from penstock.model.errors import ConfigError
from penstock.model.route import KeyLimit
from penstock.settings import Settings, examine, given, load, load_with_origins
from penstock.settings.secrets import redact


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, and no variable of the machine's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_STORE", raising=False)
    return tmp_path


def refusal(config: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(config)
    return caught.value.message


def test_without_any_file_the_defaults_hold() -> None:
    settings = load()
    assert settings.store == "sqlite:///penstock.db"
    assert settings.api.http == "127.0.0.1:8700"
    assert settings.all_routes()["default"].sink == "log://"


def test_the_default_file_is_read_when_it_is_there(folder: Path) -> None:
    (folder / "penstock.toml").write_text('store = "sqlite:///other.db"\n')
    assert load().store == "sqlite:///other.db"


def test_a_named_file_that_is_missing_is_an_error(folder: Path) -> None:
    assert "missing.toml does not exist" in refusal(folder / "missing.toml")


def test_a_folder_in_place_of_the_file_is_an_error(folder: Path) -> None:
    assert "cannot be read" in refusal(folder)


def test_the_example_of_the_contract_is_read(folder: Path) -> None:
    (folder / "penstock.toml").write_text(
        """
        store = "sqlite:///penstock.db"
        [api]
        http = "127.0.0.1:8700"
        grpc = "127.0.0.1:8701"
        tokens = ["plain", {name = "ci", secret = "s3", scope = "read"}]
        [worker]
        total_partitions = 8
        bucket_size_sec = 60
        batch_size = 500
        lease = "30s"
        [routes.default]
        sink = "log://"
        [routes.push]
        sink = "https://example.test/hook"
        semaphore_limit = 256
        max_attempts = 8
        backoff = "1s..5m"
        """
    )
    settings = load()
    assert [token.scope for token in settings.api.tokens] == ["admin", "read"]
    assert settings.worker.lease == 30_000
    assert settings.routes["push"].backoff == Backoff(1_000, 300_000)


def test_environment_wins_over_dotenv_and_that_over_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "penstock.toml").write_text(
        'store = "sqlite:///toml.db"\n[worker]\nbatch_size = 1\nlease = "1s"\n'
    )
    (folder / ".env").write_text("PENSTOCK_WORKER__BATCH_SIZE=2\nPENSTOCK_STORE=sqlite:///env.db\n")
    monkeypatch.setenv("PENSTOCK_WORKER__BATCH_SIZE", "3")
    settings = load()
    assert (settings.store, settings.worker.batch_size) == ("sqlite:///env.db", 3)
    assert settings.worker.lease == 1_000


def test_an_argument_wins_over_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_API__HTTP", "127.0.0.1:1")
    assert load(overrides={"api.http": "127.0.0.1:2"}).api.http == "127.0.0.1:2"
    assert load(overrides={"api.http": None}).api.http == "127.0.0.1:1"


def test_other_programs_keys_in_a_dotenv_are_left_alone(folder: Path) -> None:
    (folder / ".env").write_text("RABBITMQ_HOST=localhost\nQUEUE_NAME=sms_queue\nSTORE=x\n")
    assert load() == Settings()


def test_the_command_lines_own_variables_are_not_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "http://127.0.0.1:8700")
    monkeypatch.setenv("PENSTOCK_TOKEN", "secret")
    assert load() == Settings()


def test_what_kubernetes_sets_beside_a_service_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_PORT", "tcp://10.0.0.1:8700")
    monkeypatch.setenv("PENSTOCK_PORT_8700_TCP_ADDR", "10.0.0.1")
    monkeypatch.setenv("PENSTOCK_SERVICE_HOST", "10.0.0.1")
    assert load() == Settings()


def test_an_empty_variable_is_as_if_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STORE", "")
    assert load().store == Settings().store


def test_an_unknown_variable_is_an_error_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STOER", "sqlite:///x.db")
    assert "PENSTOCK_STOER: no such setting; did you mean PENSTOCK_STORE?" in refusal()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("PENSTOCK_LOG_LEVEL", "PENSTOCK_LOG__LEVEL"),
        ("PENSTOCK_API_HTPP", "PENSTOCK_API__HTTP"),
        ("PENSTOCK_ROUTES_PUSH", "PENSTOCK_ROUTES__PUSH"),
        ("PENSTOCK_STORE_URL", "PENSTOCK_STORE"),
        ("PENSTOCK_TOKENS", "PENSTOCK_TOKEN"),
    ],
)
def test_a_near_miss_of_a_variable_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, meant: str
) -> None:
    monkeypatch.setenv(name, "x")
    assert f"{name}: no such setting; did you mean {meant}?" in refusal()


@pytest.mark.parametrize("name", ["PENSTOCK_IMAGE", "PENSTOCK_API_KEY", "PENSTOCK_HOME"])
def test_a_variable_of_somebody_elses_is_a_warning(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "x")
    examined = examine()
    assert examined.problems == []
    assert examined.warnings == [f"{name}: no such setting; it is ignored (environment)"]


def test_a_policy_for_a_route_that_is_not_there_is_a_warning(folder: Path) -> None:
    (folder / "penstock.toml").write_text(
        """
        [routes.push]
        [policies.slow]
        kind = "pace"
        rate = "1/s"
        applies_to = { route = ["push", "psuh"] }
        """
    )
    (warning,) = examine().warnings
    assert warning == (
        "policies.slow.applies_to.route: no route 'psuh'; known: default, push (penstock.toml)"
    )


def test_the_file_of_the_machine_is_read_where_there_is_none_in_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = folder / "etc.toml"
    machine.write_text('store = "sqlite:///machine.db"\n')
    module = import_module("penstock.settings.load")
    monkeypatch.setattr(module, "DEFAULT_FILES", (Path("penstock.toml"), machine))
    assert load().store == "sqlite:///machine.db"
    assert examine().file == machine
    (folder / "penstock.toml").write_text('store = "sqlite:///own.db"\n')
    assert load().store == "sqlite:///own.db"
    assert load(machine).store == "sqlite:///machine.db"


def test_a_nested_unknown_variable_is_an_error_with_a_hint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_API__HTPP", "127.0.0.1:1")
    told = refusal()
    assert "api.htpp: no such setting; did you mean api.http?" in told
    assert "environment: PENSTOCK_API__HTPP" in told


def test_lists_and_tables_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_API__TOKENS", "one, two")
    monkeypatch.setenv("PENSTOCK_ROUTES__PUSH__SINK", "https://example.test/")
    monkeypatch.setenv("PENSTOCK_ROUTES__PUSH__HEADERS", '{"X-Team": "a"}')
    settings = load()
    assert [token.secret.get_secret_value() for token in settings.api.tokens] == ["one", "two"]
    assert settings.routes["push"].headers == {"X-Team": "a"}
    monkeypatch.setenv("PENSTOCK_API__TOKENS", '[{"secret": "a,b", "scope": "read"}]')
    assert load().api.tokens[0].secret.get_secret_value() == "a,b"


@pytest.mark.parametrize("text", ['[{"name":"x"', ' {"secret": hunter2}', "[hunter2"])
def test_json_with_a_slip_in_a_variable_is_an_error_and_no_token(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("PENSTOCK_API__TOKENS", text)
    told = refusal()
    assert "PENSTOCK_API__TOKENS: starts like JSON but is not" in told
    assert "hunter2" not in told


def test_an_address_of_ipv6_is_not_taken_for_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_API__HTTP", "[::1]:8700")
    assert load().api.http == "[::1]:8700"


def test_a_variable_reaches_a_route_that_the_file_spells_with_capitals(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "penstock.toml").write_text('[routes.Push]\nsink = "log://"\nmax_attempts = 3\n')
    monkeypatch.setenv("PENSTOCK_ROUTES__PUSH__SINK", "https://example.test/")
    routes = load().routes
    assert list(routes) == ["Push"]
    assert (routes["Push"].sink, routes["Push"].max_attempts) == ("https://example.test/", 3)


def test_an_unknown_key_of_the_file_is_an_error_with_a_hint(folder: Path) -> None:
    file = folder / "penstock.toml"
    file.write_text("[worker]\nbatchsize = 5\n[nonsense]\nx = 1\n")
    told = refusal(file)
    assert "worker.batchsize: no such setting; did you mean worker.batch_size?" in told
    assert "nonsense: no such setting; known here: store, intake_topic, api" in told
    assert str(file) in told


def test_a_slip_in_a_route_is_told_from_a_setting_of_its_sink(folder: Path) -> None:
    file = folder / "penstock.toml"
    file.write_text("[routes.push]\nsemaphore_limt = 5\n")
    assert "routes.push.semaphore_limt: no such setting; did you mean" in refusal(file)
    file.write_text("[routes.push]\nacks = 1\n")
    assert load(file).routes["push"].as_sink_options("push").more == {"acks": 1}


def test_a_syntax_error_points_at_line_and_column(folder: Path) -> None:
    file = folder / "penstock.toml"
    file.write_text('store = "x"\n[api\n')
    assert "line 2, column" in refusal(file)


@pytest.mark.parametrize(
    ("toml", "named"),
    [
        ('[api]\nhttp = "8700"', "api.http"),
        ('[api]\nhttp = "host:99999"', "api.http"),
        ("[worker]\nbatch_size = 0", "worker.batch_size"),
        ('[worker]\nlease = "soon"', "worker.lease"),
        ("[worker]\nlease = true", "worker.lease"),
        ('[routes.a]\nbackoff = "5m..1s"', "routes.a.backoff"),
        ('[routes."a b"]\nsink = "log://"', "routes.a b"),
        ("[limits]\nmax_payload = 1.5", "limits.max_payload"),
        ('[limits]\nzone = "Europe/Atlantis"', "limits.zone"),
        ('[log]\nlevel = "loud"', "log.level"),
        ('[[api.tokens]]\nname = "x"', "api.tokens.0.secret"),
        ('routes = "x"', "routes"),
    ],
)
def test_a_wrong_value_is_named(folder: Path, toml: str, named: str) -> None:
    file = folder / "penstock.toml"
    file.write_text(toml)
    assert f"{named}: " in refusal(file)


def test_every_problem_is_listed_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "penstock.toml"
    file.write_text('[api]\nhttp = "x"\n[worker]\nbatch_size = 0\n')
    monkeypatch.setenv("PENSTOCK_LOG_LEVEL", "debug")
    told = refusal(file)
    assert all(name in told for name in ("api.http", "worker.batch_size", "PENSTOCK_LOG_LEVEL"))


def test_a_wrong_secret_is_not_repeated_in_the_error(folder: Path) -> None:
    file = folder / "penstock.toml"
    file.write_text('[[api.tokens]]\nsecret = "hunter2"\nscope = "everything"\n')
    assert "hunter2" not in refusal(file)


def test_a_library_reads_only_what_it_is_given(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "penstock.toml").write_text('store = "sqlite:///toml.db"\n')
    monkeypatch.setenv("PENSTOCK_STORE", "sqlite:///env.db")
    assert given(store="sqlite:///mine.db").store == "sqlite:///mine.db"
    assert given().store == Settings().store


def test_the_origin_of_every_value_is_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "penstock.toml").write_text('store = "sqlite:///t.db"\n[worker]\nlease = "1s"\n')
    (folder / ".env").write_text("PENSTOCK_API__GRPC=127.0.0.1:1\n")
    monkeypatch.setenv("PENSTOCK_LOG__LEVEL", "debug")
    origins = {path: origin for path, _, origin in rows(*load_with_origins(None))}
    assert origins["store"] == "penstock.toml"
    assert origins["worker.lease"] == "penstock.toml"
    assert origins["worker.batch_size"] == "default"
    assert origins["api.grpc"] == ".env: PENSTOCK_API__GRPC"
    assert origins["log.level"] == "environment: PENSTOCK_LOG__LEVEL"


def test_nothing_secret_is_shown(folder: Path) -> None:
    (folder / "penstock.toml").write_text(
        """
        store = "sqlite:///x.db?password=hunter2"
        [api]
        tokens = ["hunter2"]
        [routes.push]
        sink = "https://user:hunter2@example.test/hook?api_key=hunter2&x=1"
        secret = "whsec_hunter2"
        headers = {Authorization = "Bearer hunter2", X-Team = "blue"}
        sasl_password = "hunter2"
        """
    )
    shown = str(rows(*load_with_origins(None)))
    assert "hunter2" not in shown
    assert "blue" in shown
    assert "https://example.test/…#" in shown
    assert "hook" not in shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://u:p@h:6379/0", "redis://***@h:6379/0"),
        ("redis://u:p@ss@h/0", "redis://***@h/0"),
        ("amqp://u:p/w@h/q", "amqp://***@h/q"),
        ("kafka://h:80/@x?token=abc&x=1", "kafka://h:80/@x?token=***&x=1"),
        ("nats://h/?Password=a#f", "nats://h/?Password=***#f"),
        ("https://u:p@h:80/hooks/secret?x=1", "https://h:80/…#77a6"),
        ("sqlite:///penstock.db?writer=thread", "sqlite:///penstock.db?writer=thread"),
        ("python:pkg.mod:func", "python:pkg.mod:func"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert redact(url) == shown


def test_policies_are_checked_with_the_settings() -> None:
    quiet = {"kind": "quiet", "from": "22:00", "to": "08:00"}
    optout = {"keys": ["bob"], "legal": True}
    policies, lists = given(policies={"nights": quiet}, suppressions={"optout": optout}).all_rules()
    assert policies["nights"].shadow is False
    assert lists["optout"].keys == ("bob",)
    with pytest.raises(ConfigError, match=r"suppressions\.optout\.bypass: nothing bypasses"):
        given(suppressions={"optout": {**optout, "bypass": ["transactional"]}})
    with pytest.raises(ConfigError, match=r"policies\.nights\.to: is the same as from"):
        given(policies={"nights": {**quiet, "to": "22:00"}})
    with pytest.raises(ConfigError, match=r"policies\.a/b\.id"):
        given(policies={"a/b": quiet})


def test_every_problem_of_a_policy_is_listed() -> None:
    wrong: dict[str, dict[str, object]] = {
        "nights": {"kind": "quiet", "from": "22", "to": "8", "zone": "Europe/Berln"},
        "daily": {"kind": "cap", "scope": ["key", "key"], "limit": 0, "window": "24h", "bypas": []},
        "weekly": {"kind": "cap", "scope": ["key"], "max_defer": "-1"},
        "rate": {"kind": "pace", "burst": 0},
        "what": {"kind": "queue", "rate": "1/s"},
    }
    with pytest.raises(ConfigError) as caught:
        given(policies=wrong, suppressions={"a/b": {"bypass": ["x"], "legal": True}})
    fields = [line.strip().partition(": ")[0] for line in caught.value.problems]
    assert fields == [
        "policies.nights.from",
        "policies.nights.to",
        "policies.nights.zone",
        "policies.daily.bypas",
        "policies.daily.scope",
        "policies.daily.limit",
        "policies.weekly.max_defer",
        "policies.weekly.limit",
        "policies.rate.rate",
        "policies.rate.burst",
        "policies.what.kind",
        "suppressions.a/b.id",
        "suppressions.a/b.bypass",
    ]


def test_a_route_may_promise_order_or_a_number_in_flight_per_key() -> None:
    routes = given(routes={"a": {"ordered": True}, "b": {"max_in_flight_per_key": 3}}).routes
    assert routes["a"].as_route("a").per_key == KeyLimit(1, ordered=True)
    assert routes["b"].as_route("b").per_key == KeyLimit(3)
    with pytest.raises(ConfigError, match=r"routes\.a\.max_in_flight_per_key"):
        given(routes={"a": {"ordered": True, "max_in_flight_per_key": 2}})


def test_the_horizon_must_have_room() -> None:
    limits = given(limits={"min_delay": "1m", "max_delay": "15d"}).limits
    assert (limits.min_delay, limits.max_delay) == (60_000, 15 * 86_400_000)
    with pytest.raises(ConfigError, match=r"limits\.max_delay: must not be less than min_delay"):
        given(limits={"min_delay": "2m", "max_delay": "1m"})
    with pytest.raises(ConfigError, match=r"limits\.min_delay"):
        given(limits={"min_delay": "soon"})


def test_grpc_is_an_address_or_off() -> None:
    assert given(api={"grpc": "off"}).api.grpc == "off"
    with pytest.raises(ConfigError, match=r'api\.grpc: must be "host:port"'):
        given(api={"grpc": "8701"})


def test_routes_by_method_must_exist_and_need_a_format_that_has_methods(tmp_path: Path) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text(
        '[routes.push]\n[sources.a]\nfrom = "nats://h/a"\nformat = "decision-batch"\n'
        'route = "push"\n[sources.a.routes]\nsendPush = "push"\nsendSms = "smss"\n'
        '[sources.b]\nfrom = "nats://h/b"\nroute = "push"\nroutes = { sendPush = "push" }\n'
    )
    with pytest.raises(ConfigError) as told:
        load(config)
    assert "sources.a.routes.sendSms: no route 'smss'; known: default, push" in str(told.value)
    assert "sources.b.routes: only with format decision-batch or decision-items" in str(told.value)
    assert "sendPush" not in str(told.value)


def test_a_store_is_a_path_only_where_it_looks_like_one() -> None:
    assert Settings(store="own.db").store == "sqlite:///own.db"
    assert Settings(store="/var/lib/own").store == "sqlite:////var/lib/own"
    assert Settings(store="redis").store == "redis"  # refused by who opens it: no scheme


def test_every_problem_of_a_recurring_rule_is_listed(folder: Path) -> None:
    (folder / "penstock.toml").write_text(
        """
        [recurring.daily]
        cron = "61 9 * * *"
        zone = "Mars/Olympus"
        route = "nowhere"
        end = "tomorrow"
        priority = 10
        jitter = "2d"

        [recurring.poll]
        every = "1ms"
        payload = 1
        """
    )
    fields = [problem.partition(":")[0] for problem in examine().problems]
    assert fields == [
        "recurring.daily.zone",
        "recurring.daily.cron",
        "recurring.daily.end",
        "recurring.daily.priority",
        "recurring.daily.jitter",
        "recurring.daily.route",
        "recurring.poll.every",
    ]
