"""The pages together: each link leads somewhere, each page is in the site, each job is valid."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from checkout import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(
    [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")],
)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^()\s]+)\)|^\[[^\]]+\]: (\S+)$", re.MULTILINE)


def prose(page: Path) -> str:
    """Return the page without its code."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors that a page's headings get, on GitHub and in the site."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ +(.*?) *$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return frozenset(
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain
    )


def broken(page: Path) -> Iterator[str]:
    for match in LINK.finditer(prose(page)):
        target = match[1] or match[2]
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or not found.is_relative_to(ROOT):
            yield f"{target}: no such file"
        elif anchor and found.suffix == ".md" and anchor not in anchors(found):
            yield f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert list(broken(page)) == []


def test_a_broken_link_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "# A [b](c) heading!\n[a](no.md) [b](#a-b-heading) [c](#other)\n\n[d]: ../no.py\n"
    monkeypatch.setattr(Path, "read_text", lambda *_: text)
    anchors.cache_clear()
    found = list(broken(DOCS / "index.md"))
    anchors.cache_clear()
    assert [problem.partition(":")[0] for problem in found] == ["c", "no.md", "#other", "../no.py"]


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, whose Python names are for MkDocs."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def pages_of(nav: object) -> Iterator[str]:
    match nav:
        case str():
            yield nav
        case list():
            for each in nav:
                yield from pages_of(each)
        case dict():
            for each in nav.values():
                yield from pages_of(each)


def test_every_page_is_in_the_site_once() -> None:
    site: Any = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), Loader=_Loader)  # noqa: S506
    listed = list(pages_of(site["nav"]))
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert len(listed) == len(set(listed))
    assert there ^ set(listed) == set(), "mkdocs.yml lists every page, under `nav`"
    assert site["strict"] is True


def test_every_how_to_is_found_from_the_first_page_or_from_one_that_it_links() -> None:
    reached, waiting = set[Path](), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.is_relative_to(DOCS):
            continue
        reached.add(page)
        targets = [(match[1] or match[2]).partition("#")[0] for match in LINK.finditer(prose(page))]
        waiting += [(page.parent / target).resolve() for target in targets if target]
    assert set(DOCS.rglob("*.md")) - reached == set(), "link it from docs/index.md"


def specs(name: str) -> Iterator[dict[str, Any]]:
    text = (DOCS / "how-to" / f"{name}.md").read_text("utf-8")
    for block in re.findall(r"^( *)```yaml\n(.*?)^\1```", text, re.DOTALL | re.MULTILINE):
        for document in yaml.safe_load_all(block[1]):
            if "apiVersion" not in document:
                yield document.get("spec", document)


def test_the_deployment_of_sglang_is_the_one_that_its_jobs_name() -> None:
    text = (DOCS / "how-to" / "sglang-on-the-cluster.md").read_text("utf-8")
    block = text.partition("```yaml\n")[2].partition("```")[0]
    deployment, service = yaml.safe_load_all(block)
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]

    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    names = {port["name"]: port["containerPort"] for port in container["ports"]}
    (port,) = service["spec"]["ports"]
    assert names[port["targetPort"]] == port["port"]
    assert f"--port={port['port']}" in container["args"]
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["spec"]["volumes"]}
    address = "http://{name}.{namespace}:".format(**service["metadata"]) + str(port["port"])
    urls = {
        spec["policy"]["sglang"]["url"]
        for spec in specs("sglang-on-the-cluster")
        if "url" in spec["policy"]["sglang"]
    }
    assert urls == {address}
