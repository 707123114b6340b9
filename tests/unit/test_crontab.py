"""Lines of a crontab as recurring rules."""

from __future__ import annotations

from penstock.model.crontab import CrontabProblem, read_crontab

CRONTAB = """\
# every night
MAILTO="ops@example.com"
CRON_TZ=Europe/Berlin
15 3 * * *   /usr/local/bin/backup --all
@hourly  clean.sh
0 9 * * mon-fri /usr/local/bin/backup --report 100\\%
TZ=UTC
*/5 * * * * mail ops%Subject: tick%all is well
"""


def test_each_line_is_a_rule_with_its_command() -> None:
    rules, problems = read_crontab(CRONTAB, route="commands")
    assert problems == []
    assert [rule.id for rule in rules] == ["backup", "clean.sh", "backup-6", "mail"]
    first = rules[0].fields
    assert (first["cron"], first["zone"], first["route"]) == (
        "15 3 * * *",
        "Europe/Berlin",
        "commands",
    )
    assert first["payload"] == {
        "command": "/usr/local/bin/backup --all",
        "environment": {"MAILTO": "ops@example.com"},
    }
    assert rules[2].fields["payload"]["command"] == "/usr/local/bin/backup --report 100%"
    assert rules[3].fields["zone"] == "UTC"
    assert rules[3].fields["payload"]["stdin"] == "Subject: tick\nall is well"


def test_a_system_crontab_has_a_user() -> None:
    rules, _ = read_crontab("17 * * * * root run-parts /etc/cron.hourly\n", route="r", system=True)
    assert rules[0].fields["payload"] == {"command": "run-parts /etc/cron.hourly", "user": "root"}


def test_what_cannot_be_a_rule_is_told_by_its_line() -> None:
    text = "@reboot start\n0 0 30 2 * never\n* * * *\nTZ=Nowhere\n61 * * * * x\n"
    _, problems = read_crontab(text, route="r")
    assert problems == [
        CrontabProblem(1, "@reboot names no time of day"),
        CrontabProblem(2, "never comes: no month of '2' has day '30'"),
        CrontabProblem(3, "there is no command"),
        CrontabProblem(4, "'Nowhere' is not a time zone"),
        CrontabProblem(5, "'61' is not a minute"),
    ]
