"""The console's page and files over HTTP: types, caching, and a policy without exceptions."""

import gzip
import hashlib
import json
import re
from pathlib import Path

import httpx
import pytest

from receiver.api import console as package
from receiver.api.console.assets import console
from receiver.settings.rest import RestSettings
from receiver.telemetry.selectors import SELECTORS
from tests.unit.api.conftest import Api, problem_of, token_settings

FOLDER = Path(package.__file__).parent
JAVASCRIPT = "text/javascript; charset=utf-8"


def test_the_page_and_everything_that_it_names(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        page = await rest.get("/")
        assert page.status_code == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "no-cache" in page.headers["cache-control"]
        paths = re.findall(r'(?:src|href)="(console/[^"]+)"', page.text)
        assert any(path.endswith("/app.js") for path in paths)
        for path in paths:
            file = await rest.get(f"/{path}")
            assert file.status_code == 200, path
            assert "immutable" in file.headers["cache-control"]
            for answer in (page, file):
                policy = answer.headers["content-security-policy"]
                assert policy.startswith("default-src 'self';")
                assert "unsafe" not in policy
            if file.headers["content-type"] == JAVASCRIPT:
                # Each import is a file beside the importing one: without an import map, a browser
                # knows no packages.
                code = re.sub(r"/\*.*?\*/", "", file.text, flags=re.DOTALL)
                imports = re.findall(r"""\b(?:from|import)\s*\(?\s*["']([^"']+)["']""", code)
                for imported in imports:
                    name = imported.removeprefix("./")
                    assert f"{path.rpartition('/')[0]}/{name}" in paths or name in console().lazy, path
                    assert (await rest.get(f"/{path.rpartition('/')[0]}/{name}")).status_code == 200

    api.run(scenario)


def test_nothing_runs_or_is_styled_inline() -> None:
    page = (FOLDER / "assets" / "index.html").read_text()
    assert re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", page) is None
    for source in (FOLDER / "assets").glob("*.js"):
        text = source.read_text()
        assert (
            re.search(
                r"innerHTML|outerHTML|document\.write|\beval\(|new Function|https?://(?!127\.0\.0\.1)", text
            )
            is None
        )


def test_a_known_file_is_not_sent_again(api: Api) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        for path in ("/", f"/console/{console().build}/app.js"):
            first = await rest.get(path, headers={"accept-encoding": "identity"})
            assert "content-encoding" not in first.headers
            refused = await rest.get(path, headers={"accept-encoding": "br, gzip;q=0"})
            assert "content-encoding" not in refused.headers
            compressed = await rest.get(path, headers={"accept-encoding": "gzip"})
            assert compressed.headers["content-encoding"] == "gzip"
            assert compressed.content == first.content
            assert int(compressed.headers["content-length"]) < len(first.content)
            again = await rest.get(path, headers={"if-none-match": first.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")

    api.run(scenario)


def test_the_first_load_is_small() -> None:
    served = console()
    first = [file for name, file in served.files.items() if name not in served.lazy]
    assert sum(len(file.compressed) for file in (served.page, *first)) < 65_000
    assert sum(len(file.compressed) for file in served.files.values()) < 120_000
    assert all(gzip.decompress(file.compressed) == file.content for file in served.files.values())


@pytest.mark.parametrize("path", ["BUILD/absent.js", "0123456789abcdef/app.js", "BUILD/..%2Fassets.py"])
def test_files_that_are_not_there(api: Api, path: str) -> None:
    async def scenario(rest: httpx.AsyncClient) -> None:
        problem_of(await rest.get("/console/" + path.replace("BUILD", console().build)), 404)

    api.run(scenario)


@pytest.mark.parametrize("guarded", [False, True])
def test_it_can_be_turned_off(api: Api, guarded: bool) -> None:
    api.settings = token_settings(console=False) if guarded else RestSettings(console=False)
    status = 401 if guarded else 404

    async def scenario(rest: httpx.AsyncClient) -> None:
        for path in ("/", f"/console/{console().build}/app.js"):
            problem_of(await rest.get(path), status)

    api.run(scenario)


def test_the_page_needs_no_authentication_and_what_it_reads_does(api: Api) -> None:
    api.settings = token_settings()

    async def scenario(rest: httpx.AsyncClient) -> None:
        assert (await rest.get("/")).status_code == 200
        assert (await rest.get(f"/console/{console().build}/app.js")).status_code == 200
        for method, path in (
            ("POST", "/"),
            ("PUT", f"/console/{console().build}/app.js"),
            ("GET", "/v1/clients"),
        ):
            problem_of(await rest.request(method, path), 401)

    api.run(scenario)


def test_the_libraries_are_as_published() -> None:
    modules = json.loads((FOLDER / "vendor" / "modules.json").read_text())
    for module in modules.values():
        content = (FOLDER / "vendor" / module["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == module["sha256"], module["file"]
        package_name = module["from"].rpartition("@")[0]
        license_file = FOLDER / "vendor" / f"LICENSE.{package_name.strip('@').replace('/', '-')}"
        assert license_file.is_file()
    assert {module["file"] for module in modules.values()} == {
        path.name for path in (FOLDER / "vendor").iterdir() if path.suffix in {".css", ".mjs"}
    }


def test_the_editor_has_every_selector() -> None:
    draft = (FOLDER / "assets" / "draft.js").read_text()
    (listed,) = re.findall(r"SELECTORS = \[(.*?)\]", draft, re.DOTALL)
    assert re.findall(r"'([^']+)'", listed) == list(SELECTORS)
