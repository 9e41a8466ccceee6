"""The definitions of programs with web pages, and the file by which a user's commands find a running one."""

import json
from pathlib import Path

import pytest

from oar.lib.apps.builtin import BUILTIN
from oar.lib.apps.definitions import App, find_app, parse_app, read_apps
from oar.lib.apps.session_file import AppSession, local_url, parse_session, ssh_command
from oar.lib.base.errors import BadRequest, ConfigError
from oar.lib.config.deciding import OF_SERVER
from oar.lib.config.files import Config

PORTS = (20000, 29999)
TOKEN = "0123456789abcdef" * 4
PATH = f"/jobs/42/lab?token={TOKEN}"
SESSION = {"job": 42, "app": "jupyter", "family": 4, "port": 20123, "token": TOKEN, "path": PATH}


def test_a_site_has_the_programs_of_oar_without_a_directory(tmp_path: Path) -> None:
    apps = read_apps(str(tmp_path / "missing"))
    assert (set(apps.items), apps.problems) == (set(BUILTIN), ())
    assert {"jupyter", "code-server", "rstudio"} <= set(apps.items)


def test_a_file_of_the_site_adds_or_replaces_a_program(tmp_path: Path) -> None:
    (tmp_path / "jupyter.yaml").write_text("command: mylab {port}\nenvironment: {T: '{token}'}\n")
    (tmp_path / "ttyd.yaml").write_text(
        "title: A shell\ncommand: [ttyd, -p, '{port}']\nbefore: module load ttyd\nenvironment: {T: '{token}'}\n"
        "files: {x.conf: 'a {b} {token}'}\npath: '/?t={token}'\nseconds: 5\n"
    )
    apps = read_apps(str(tmp_path))
    assert apps.problems == ()
    assert apps.items["jupyter"] == App("jupyter", ("mylab", "{port}"), environment={"T": "{token}"})
    assert apps.items["ttyd"] == App(
        name="ttyd",
        title="A shell",
        command=("ttyd", "-p", "{port}"),
        before="module load ttyd",
        environment={"T": "{token}"},
        files={"x.conf": "a {b} {token}"},
        path="/?t={token}",
        seconds=5,
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the file must have lines KEY: VALUE"),
        ("title: x", "the key command is missing"),
        ("command: x {port}\nport: 1", "unknown key 'port'. Use one of: title, description, command, before,"),
        ("command: x", "command: {port} is missing: the program must listen on the port that the job chooses"),
        ("command: x {port} {token}", "command: {token} would be visible in the list of processes. Use it in"),
        ("command: x {port}\nbefore: 'export T={token}'", "before: {token} would be visible in the list of processes."),
        ("command: x {port} {host}", "command: unknown name {host}. Use one of: address, port, prefix, token,"),
        ("command: x '{port}", "command: No closing quotation"),
        ("command: [x, 1, '{port}']", "command: 1 is not a text. Put it in quotes"),
        ("command: x {port}\nenvironment: {A: yes}", "environment: A: True is not a text. Put it in quotes"),
        ("command: x {port}\nenvironment: {A-B: x}", "environment: bad name 'A-B'"),
        ("command: x {port}\nfiles: {../x: x}", "files: bad name '../x'"),
        ("command: x {port}\nfiles: {..: x}", "files: bad name '..'"),
        ("command: x {port}\npath: lab", "path: 'lab' is not a path. It begins with / or {prefix}/"),
        ("command: x {port}\npath: //evil/", "path: '//evil/' is not a path. It begins with / or {prefix}/"),
        ("command: x {port}\nseconds: 0", "seconds: 0 is not a number from 1 to 3600"),
        ('command: x {port}\ntitle: "a\\nb"', "title: the text must be one line"),
        ("command: [x", "line 1: invalid YAML"),
        (
            "command: x {port}\nenvironment: {T: '{tokne}'}",
            "environment: T: unknown name {tokne}. Use one of: address,",
        ),
        ("command: x {port}\nfiles: {x: 'p={tokne}'}", "files: x: unknown name {tokne}. Write {token}, or choose"),
        ("command: x {port}\nfiles: {x: 'p={Token}'}", "files: x: unknown name {Token}. Write {token}, or choose"),
        ("command: x {port}", "nothing uses {token}: every user of the cluster could open the program. Use it in"),
        ("command: x {port}\npath: '/?t={token}'", "nothing uses {token}: every user of the cluster could open"),
        (f"command: x {{port}}\n#{'x' * 65536}", "the file has more than 65536 characters"),
    ],
)
def test_a_mistake_in_a_file_is_one_line_that_names_it(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "jupyter.yaml").write_text(text)
    apps = read_apps(str(tmp_path))
    (line,) = apps.problems
    assert line.startswith(f"{tmp_path}/jupyter.yaml: {problem}")
    assert "jupyter" not in apps.items  # the definition of OAR is not what the site meant
    with pytest.raises(ConfigError, match=r"jupyter\.yaml: "):
        find_app(str(tmp_path), "jupyter")


def test_each_mistake_has_a_line(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("comand: x {port}\nseconds: many\n")
    (tmp_path / "Lab.yaml").write_text("command: x {port}")
    (tmp_path / "notes.txt").write_text("not ours")
    lines = read_apps(str(tmp_path)).problems
    assert [line.removeprefix(f"{tmp_path}/").split(":")[0] for line in lines] == ["Lab.yaml", *["a.yaml"] * 3]


def test_an_unknown_program_is_named_with_those_of_the_site(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"unknown program 'emacs'. Programs of this site: code-server, jupyter"):
        find_app(str(tmp_path), "emacs")


def test_no_definition_of_oar_shows_the_token_to_other_users() -> None:
    for name, content in BUILTIN.items():
        app, problems = parse_app(name, content)
        assert problems == []
        assert not any("{token}" in word for word in (*app.command, app.before))


def test_frontends_check_the_ports_of_the_server() -> None:
    """The script of the job chooses one of them where it was submitted; another frontend reads it."""
    assert "apps_ports" in OF_SERVER
    option = next(option for option in Config.options() if option.name == "apps_ports")
    assert option.read(option.text(PORTS)) == PORTS


# -- the session file -------------------------------------------------------------------------------------------------


def parsed(**changes: object) -> AppSession | None:
    return parse_session(json.dumps({**SESSION, **changes}).encode(), 42, PORTS)


def test_the_file_of_a_running_program_is_read() -> None:
    session = parsed()
    assert session == AppSession(42, "jupyter", 4, 20123, TOKEN, f"/jobs/42/lab?token={TOKEN}")
    assert session.has_token_in_path


@pytest.mark.parametrize(
    "changes",
    [
        {"job": 43},
        {"job": True},
        {"port": 22},
        {"port": "20123"},
        {"port": 20123.0},
        {"family": 5},
        {"token": "short"},
        {"token": TOKEN + "\n"},
        {"path": "http://evil/"},
        {"path": "//evil/"},
        {"path": "/a\r\nb"},
        {"path": "/" + "a" * 600},
        {"app": "a\x1b[2J"},
        {"app": None},
    ],
)
def test_what_the_user_may_have_written_into_it_is_checked(changes: dict[str, object]) -> None:
    assert parsed(**changes) is None


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"7", b"{}", b"\xff\xfe", b'{"job": 42}'])
def test_a_file_that_is_none_is_not_read(data: bytes) -> None:
    assert parse_session(data, 42, PORTS) is None


def test_the_address_has_the_version_of_ip_on_which_the_program_listens() -> None:
    session = parsed()
    assert session
    assert ssh_command("127.0.0.1", session, "a@f") == "ssh -N -L 20123:127.0.0.1:20123 a@f"
    assert ssh_command("::1", session._replace(family=6), "a@f") == "ssh -N -L 20123:[::1]:20123 a@f"
    assert ssh_command("::1", session, "a@f") is None
    assert local_url(session) == f"http://localhost:20123/jobs/42/lab?token={TOKEN}"
