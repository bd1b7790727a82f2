"""The tutorial and the quick start, done as they are written: files, commands, kill, timeline.

Left out are the environment, which is the one that runs the tests, and the PostgreSQL, which is
theirs too. The slow task is less slow.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, build_opener, urlopen

import django
import pytest

from tests.pages import DOCS, README, ROOT, Block, blocks

from . import places
from .waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]

TUTORIAL = DOCS / "tutorial.md"
OURS = ("venv", "pip install", "initdb", "pg_ctl", "-m example_project", "-m tests")
# What an existing project has, in the words of the tutorial's settings.
PROJECT = """
INSTALLED_APPS += ["shop"]
if "MAILERS" not in globals():  # Django 6.1 has them, and then nothing else
    EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "",
        "USER": "",
        "PASSWORD": "",
        "HOST": "",
        "PORT": "",
    }
}
"""


class Newcomer:
    """Follows the page block by block in an empty directory and keeps what was printed."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.address = urlsplit(url)
        self.printed: list[str] = []
        self.workers: list[tuple[subprocess.Popen[bytes], Path]] = []
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("DJANGO", "DATABASE"))},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }

    def do(self, block: Block) -> None:
        """Do what one block says."""
        if block.language == "python":
            self._write(block)
        elif "relay_worker" in block.text:
            self._work(block.text)
        elif block.text.startswith("kill"):
            self._kill()
        elif "runserver" in block.text:
            self._look(block.text)
        elif block.language == "console" and not any(word in block.text for word in OURS):
            self.printed.append(self._run(block.text))

    def _write(self, block: Block) -> None:
        if "django_tasks" in block.text and django.VERSION >= (6, 0):
            return
        text = block.text.replace("time.sleep(20)", "time.sleep(6)")
        server = self.address
        for key, value in {
            "NAME": server.path.lstrip("/"),
            "USER": server.username,
            "PASSWORD": server.password,
            "HOST": server.hostname,
            "PORT": server.port or 5432,
        }.items():
            text = re.sub(rf'"{key}": "[^"]*"', f'"{key}": "{value or ""}"', text)
        place = block.file or ("mysite/settings.py" if "INSTALLED_APPS" in text else None)
        if place is None:
            self.printed.append(self._run(f"python manage.py shell -c {shlex.quote(text)}"))
            return
        with open(self.directory / place, "a") as file:
            file.write(f"\n{text}")

    def _run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-e", "-c", command],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout

    def _work(self, text: str) -> None:
        """Start a worker, and let it run the first job; or two, where two terminals are told of."""
        line = next(line for line in text.splitlines() if "relay_worker" in line)
        for _ in range(2 if "--lease" in line else 1):
            log = self.directory / f"worker-{len(self.workers)}.log"
            with open(log, "wb") as out:
                process = subprocess.Popen(
                    [sys.executable, *shlex.split(line)[1:]],
                    cwd=self.directory,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                )
            self.workers.append((process, log))
        if "--lease" not in line:
            self.says("job 1 [a-z_.]+ succeeded")
            self.stop()

    def _kill(self) -> None:
        process, log = self.says(r"job 2 hello.tasks.greet_slowly started \(claim 1\)")
        shown = re.search(r"relay_worker \S+-(\d+)-\w+:", log.read_text())
        assert shown is not None
        assert int(shown[1]) == process.pid, "the number in the name is the process"
        self._run(f"kill -9 {shown[1]}")
        self.says(r"job 2 hello.tasks.greet_slowly rescued from .*; it is ready now")
        self.says(r"job 2 hello.tasks.greet_slowly succeeded")

    def _look(self, text: str) -> None:
        """Start the site, log in, and keep what the page of the second job says."""
        *before, serve = text.splitlines()
        self._run("\n".join(before))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        log = self.directory / "site.log"
        with open(log, "wb") as out:
            site = subprocess.Popen(
                [sys.executable, *shlex.split(serve)[1:], "--noreload", str(port)],
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until(
                lambda: "Quit the server" in log.read_text() or answers(address), 30, what="site"
            )
            self.printed.append(page_of(f"{address}/admin/django_relay/job/2/change/"))
        finally:
            site.kill()
            site.wait()

    def says(self, words: str) -> tuple[subprocess.Popen[bytes], Path]:
        """Wait until a worker says something, and return which."""

        def who() -> tuple[subprocess.Popen[bytes], Path] | None:
            return next((w for w in self.workers if re.search(words, w[1].read_text())), None)

        try:
            return wait_until(who, 40, what=f"a worker says {words}")  # type: ignore[return-value]
        except AssertionError:
            print(*(log.read_text() for _, log in self.workers), sep="\n----\n")
            raise

    def stop(self) -> None:
        """Ctrl-C in each terminal."""
        for process, _ in self.workers:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for process, _ in self.workers:
            process.wait(timeout=40)


def answers(address: str) -> bool:
    try:
        urlopen(address, timeout=5).close()
    except HTTPError:
        return True
    except URLError:
        return False
    return True


def page_of(address: str) -> str:
    """Log in on the way to a page of the admin, as a browser would, and return its words."""
    browser = build_opener(HTTPCookieProcessor(CookieJar()))
    with browser.open(address, timeout=30) as answer:
        form, there = answer.read().decode(), answer.url
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', form)
    assert token is not None
    fields = {"csrfmiddlewaretoken": token[1], "username": "admin", "password": "relay"}
    fields["next"] = urlsplit(address).path
    with browser.open(there, urlencode(fields).encode(), timeout=30) as answer:
        assert answer.url == address
        return re.sub(r"<[^>]+>", " ", answer.read().decode())


@pytest.fixture
def newcomer(django_db_blocker: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Newcomer]:
    with (
        django_db_blocker.unblock(),
        places.made(os.environ["DATABASE_URL"], migrated=False) as place,
    ):
        newcomer = Newcomer(tmp_path, place.url)
        try:
            yield newcomer
        finally:
            newcomer.stop()


def test_a_newcomer_who_does_what_the_tutorial_says_sees_what_it_says(newcomer: Newcomer) -> None:
    for block in blocks(TUTORIAL):
        newcomer.do(block)
    newcomer.stop()
    assert [process.returncode for process, _ in newcomer.workers].count(-signal.SIGKILL) == 1

    shown = "\n".join(newcomer.printed)
    assert "Applying django_relay.0001_initial... OK" in shown
    assert "Hello, Ada!" in shown
    page = next(each for each in newcomer.printed if "Timeline" in each)
    told = re.findall(r"^- \*\*([\w ]+)", TUTORIAL.read_text(), re.MULTILINE)
    assert len(told) == 6
    assert re.search(".*".join(told), page, re.DOTALL), "the page says what the tutorial says"
    timeline = [line.split()[2] for line in newcomer.printed[-1].splitlines() if " s  " in line]
    shown_there = blocks(TUTORIAL, "text")[-1].text.splitlines()
    assert timeline == [line.split()[2] for line in shown_there]
    assert timeline == ["enqueued", "claimed", "rescued", "claimed", "succeeded"]


def test_the_quick_start_works_in_an_existing_project(newcomer: Newcomer) -> None:
    newcomer._run("django-admin startproject mysite . && python manage.py startapp shop")
    newcomer.do(Block("python", PROJECT, "`mysite/settings.py`"))
    for block in blocks(README):
        newcomer.do(block)
    assert newcomer.printed[-1].split()[-1] == "1", "the id of the job is printed"
    _, log = newcomer.says("job 1 shop.tasks.send_welcome succeeded")
    assert "Subject: Welcome" in log.read_text()
