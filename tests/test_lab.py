"""`make lab` brings up the course's JupyterLab: on loopback, without a token, with the course's settings."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    # what git has of the course, in a folder with a blank in its name, and this environment
    home = tmp_path_factory.mktemp("a course")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode or not (ROOT / ".venv").is_dir():
        pytest.skip("not a git checkout with its .venv: run make test there")
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file() and not name.startswith(("tests", "exercises", "solutions")):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, home / name)
    (home / ".venv").symlink_to(ROOT / ".venv")
    port = free_port()
    log = home / "lab.log"
    with log.open("w") as out:
        server = subprocess.Popen(
            ["bash", home / "tools" / "lab.sh", str(port), "--no-browser"],
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "JUPYTER_TOKEN": "of the user's own"},
        )
    try:
        for _ in range(120):
            if server.poll() is not None:
                raise AssertionError(f"the lab ended: {log.read_text()}")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api", timeout=2).close()
                break
            except OSError:
                time.sleep(0.5)
        yield home, port, log
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(20)


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
        return answer.geturl(), answer.read().decode()


def test_opens_on_lesson_00_without_a_token(lab):
    _, port, _ = lab
    url, page = get(port, "/")
    assert url.endswith("/lab/tree/notebooks/00_start_here.ipynb")
    config = json.loads(page.split('id="jupyter-config-data" type="application/json">')[1].split("</script>")[0])
    assert config["token"] == ""
    off = {"@jupyterlab/apputils-extension:announcements", "@jupyterlab/extensionmanager-extension"}
    assert off <= set(config["disabledExtensions"])


def test_listens_on_loopback_only(lab):
    _, port, _ = lab
    for family, _, _, _, address in socket.getaddrinfo(socket.gethostname(), port, type=socket.SOCK_STREAM):
        if not address[0].startswith("127.") and address[0] != "::1":
            with socket.socket(family, socket.SOCK_STREAM) as other:
                other.settimeout(2)
                assert other.connect_ex(address) != 0


def test_settings_layout_and_files_are_the_courses(lab):
    home, port, _ = lab
    settings = json.loads(get(port, "/lab/api/settings/@jupyterlab/apputils-extension:notification")[1])
    defaults = {name: p["default"] for name, p in settings["schema"]["properties"].items()}
    assert defaults["fetchNews"] == "false"
    assert defaults["checkForUpdates"] is False
    (layout,) = (home / ".jupyter" / "lab" / "workspaces").iterdir()
    assert "@jupyterlab/toc:plugin" in layout.read_text()
    names = {item["name"] for item in json.loads(get(port, "/api/contents/")[1])["content"]}
    assert {"notebooks", "README.md"} <= names
    assert not {"conftest.py", "pyproject.toml", "tools", "tests"} & names


def test_starting_again_keeps_the_learners_layout(lab):
    home, _, _ = lab
    (layout,) = (home / ".jupyter" / "lab" / "workspaces").iterdir()
    assert "workspaces import" in (home / "tools" / "lab.sh").read_text()
    layout.write_text('{"data": {"mine": 1}, "metadata": {"id": "default"}}')
    script = (home / "tools" / "lab.sh").read_text().replace("exec ", "true ")
    subprocess.run(["bash", "-c", script, home / "tools" / "lab.sh", "1"], check=True, cwd=home)
    assert "mine" in layout.read_text()
