"""The files to deploy with are what they should be: linted, verified, and the same steps as the documentation's."""

from __future__ import annotations

import configparser
import fnmatch
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from held_port import held_port
from suwen.index.cluster.place import Place

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = Path(sys.executable).parent
INSTALL = "pip install -c constraints.txt '.[serve]'"
WITH_SERVER = Path(__file__).with_name("with_server.py")
CLUSTER = "deploy/cluster.compose.yaml"
COMPOSE_RUN = "docker compose run --rm suwen "
#: systemd's own measure of what a unit could still do, 0 to 10; a unit without any hardening has 9.6.
MOST_EXPOSED = 2.0


def run(*command: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, each with its continued lines joined."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    joined = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def of(name: str) -> list[str]:
    return [rest for found, rest in instructions() if found == name]


def steps(page: str, beginning: str) -> list[str]:
    """The lines of a page's sh blocks that begin so."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S)
    found = [line.partition(" #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in found if line.startswith(beginning)]


def compose() -> dict:
    return yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))


def test_the_dockerfile_is_lint_free() -> None:
    done = run(PROGRAMS / "hadolint", "--no-color", "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")


def test_the_linter_notices_a_bad_dockerfile(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM python:latest\nRUN pip install suwen\n")
    done = run(PROGRAMS / "hadolint", "--no-color", "Dockerfile", cwd=tmp_path)
    assert done.returncode != 0 and "DL3007" in done.stdout


def test_the_image_installs_as_the_readme_says() -> None:
    (install,), (extras,) = [line for line in of("RUN") if "pip install" in line], of("ARG")
    name, _, chosen = extras.partition("=")
    assert install.replace(" --no-cache-dir", "").replace(f"${name}", chosen).replace('"', "'") == INSTALL
    assert INSTALL in steps("README.md", "pip install")
    assert INSTALL in steps("docs/deploy.md", "pip install")


def test_the_image_serves_as_the_readme_says() -> None:
    entry, command = json.loads(of("ENTRYPOINT")[0]), json.loads(of("CMD")[0])
    assert shlex.join([*entry, *command]) in steps("README.md", "suwen serve")
    served = shlex.join(["suwen", *compose()["services"]["suwen"]["command"]])
    assert served in steps("docs/deploy.md", "suwen serve")
    (unit,) = [line for line in _unit_lines() if line.startswith("ExecStart=")]
    assert unit.removeprefix("ExecStart=/opt/suwen/bin/") == served


def test_the_container_steps_are_the_machine_steps() -> None:
    in_container = [line.removeprefix(COMPOSE_RUN) for line in steps("docs/deploy.md", COMPOSE_RUN)]
    on_machine = [line.removeprefix("suwen ") for line in steps("docs/deploy.md", "suwen ")]
    assert in_container == [line for line in on_machine if not line.startswith("serve")]
    assert len(in_container) >= 3


def test_the_container_steps_run(tmp_path: Path, offline, warm) -> None:
    """The same commands in an empty folder, as they would run in the volume."""
    for line in steps("docs/deploy.md", COMPOSE_RUN):
        done = offline(["suwen", *shlex.split(line.removeprefix(COMPOSE_RUN))], cwd=tmp_path, path=warm.programs)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert (tmp_path / "my-index").is_dir() and (tmp_path / "keys.toml").is_file()
    _check_health(tmp_path, offline)


def _check_health(folder: Path, offline) -> None:
    """The image's own question, asked beside a server and without one."""
    probe = json.loads(of("HEALTHCHECK")[0].partition("CMD")[2])
    with held_port() as port:
        told = {"path": PROGRAMS, "cwd": folder, "variables": {"SUWEN_SERVE_PORT": str(port)}}
        served = offline([sys.executable, str(WITH_SERVER), "my-index", str(port), *probe], **told)
        assert served.returncode == 0, served.stderr
        assert offline(probe, **told).returncode != 0


def test_the_image_does_not_run_as_root_and_says_how_it_is() -> None:
    assert of("USER") == ["10001"]
    last = [name for name, _ in instructions()]
    assert last.index("USER") > max(place for place, name in enumerate(last) if name in ("RUN", "COPY"))
    (check,) = of("HEALTHCHECK")
    probe = json.loads(check.partition("CMD")[2])
    assert "/healthz" in probe[-1]
    compile(probe[-1], "HEALTHCHECK", "exec")


def test_what_the_image_copies_builds_the_wheel(tmp_path: Path) -> None:
    """The build context after .dockerignore, without the rest of the checkout, is enough."""
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    assert "*" in ignored
    copied = [name for line in of("COPY") if "--from" not in line for name in line.split()[:-1]]
    assert set(copied) == allowed
    unwanted = [line.removeprefix("**/") for line in ignored if line.startswith("**/")]
    for name in copied:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns(*unwanted))
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    done = run(PROGRAMS / "python", "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").glob("suwen-*.whl")
    assert wheel.stat().st_size > 1_000_000
    assert not fnmatch.filter([path.name for path in (tmp_path / "src").rglob("*")], "*.pyc")


def test_the_compose_file_fits_its_specification() -> None:
    done = run(PROGRAMS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml")
    assert done.returncode == 0, done.stdout


def test_the_compose_file_is_checked_at_all(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("services:\n  suwen:\n    comand: serve\n")
    done = run(PROGRAMS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", tmp_path / "compose.yaml")
    assert done.returncode != 0 and "comand" in done.stdout


def test_the_compose_file_gives_the_service_few_rights() -> None:
    service = compose()["services"]["suwen"]
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    (volume,) = service["volumes"]
    name, _, target = volume.partition(":")
    assert name in compose()["volumes"] and target in of("VOLUME") and target in of("WORKDIR")


def cluster() -> dict:
    return yaml.safe_load((ROOT / CLUSTER).read_text(encoding="utf-8"))


def test_the_compose_file_of_a_cluster_fits_its_specification() -> None:
    done = run(PROGRAMS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", CLUSTER)
    assert done.returncode == 0, done.stdout


def test_the_cluster_has_one_writer_and_a_reader_on_one_index() -> None:
    services = cluster()["services"]
    servers = [services[name]["command"] for name in ("writer", "reader")]
    assert servers[0][1] == servers[1][1] and [("--read-only" in one) for one in servers] == [False, True]
    place = Place(servers[0][1])
    assert place.milvus == "http://milvus:19530" and "@postgres/" in place.shown
    assert {"milvus", "postgres", "etcd", "minio"} <= set(services)
    for name in ("writer", "reader"):
        assert set(services[name]["depends_on"]) == {"postgres", "milvus"}
        assert set(services[name]["build"]["args"]["EXTRAS"].split(",")) <= {"serve", "milvus"}


def test_the_cluster_is_reached_from_this_machine_alone_and_keeps_its_data() -> None:
    found = cluster()
    for name, service in found["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert all(volume.partition(":")[0] in found["volumes"] for volume in service["volumes"]), name
        image = service["image"]
        assert "build" in service or (":" in image and not image.endswith(":latest")), name
        assert "build" in service or "healthcheck" in service, name
        secrets = [value for key, value in service.get("environment", {}).items() if "PASSWORD" in key]
        assert all(value.startswith("${") for value in secrets), name


def _unit_lines() -> list[str]:
    return (ROOT / "deploy" / "suwen.service").read_text(encoding="utf-8").splitlines()


def test_the_unit_is_hardened() -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read_string("\n".join(_unit_lines()))
    assert set(parser.sections()) == {"Unit", "Service", "Install"}
    service = parser["Service"]
    wanted = {"DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes"}
    assert wanted.items() <= dict(service).items()
    assert service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"


def test_systemd_finds_no_fault_in_the_unit(tmp_path: Path) -> None:
    """Where systemd is: its own verdict, with the program it starts put where this test has one."""
    if shutil.which("systemd-analyze") is None:
        return
    unit = tmp_path / "suwen.service"
    text = "\n".join(_unit_lines()).replace("/opt/suwen/bin/suwen", sys.executable)
    unit.write_text(text, encoding="utf-8")
    done = run("systemd-analyze", "verify", "--man=no", unit)
    assert (done.returncode, done.stderr) == (0, "")
    measured = run("systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED * 10:.0f}", unit)
    assert measured.returncode == 0, measured.stdout


@pytest.mark.parametrize("page", ["docs/deploy.md", "docs/integrations.md"])
def test_the_pages_name_files_that_are_there(page: str) -> None:
    targets = re.findall(r"\]\((\.\./[^)#]+)\)", (ROOT / page).read_text(encoding="utf-8"))
    assert [target for target in targets if not (ROOT / "docs" / target).exists()] == []
