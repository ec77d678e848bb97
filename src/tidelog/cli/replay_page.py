"""The page of a simulated run: one HTML file, which loads nothing from any address.

The page has the console's style sheet and elements. Its scripts are the console's modules, joined
in the order of their imports. The content security policy allows these scripts and styles by their
hashes and nothing else, so that no text of a run can be executed.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from tidelog.cli.output import print_line, say
from tidelog.console.assets import load_assets

if TYPE_CHECKING:
    from tidelog.sim.job import Job
    from tidelog.sim.run import SeedRun
    from tidelog.sim.story import TimelineRecorder

_STYLES: Final = ("console.css", "replay/replay.css")
#: The scripts, each after those that it imports.
_SCRIPTS: Final = ("dom.js", "format.js", "elements.js", "theme.js", "replay/replay.js")
_IMPORT: Final = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:const|function|class) )", re.MULTILINE)
_DEFINED: Final = re.compile(r"^(?:const|let|function|class) (\w+)", re.MULTILINE)

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header class="bar">
<span class="brand">tidelog</span>
<p class="where">{title}</p>
<div class="tools">{together}<button type="button" id="theme" class="quiet">Theme</button></div>
</header>
<main id="content" tabindex="-1">
<h1>{title}</h1>
<p class="subtitle">{keys}</p>
<div id="runs" class="runs{two}"></div>
<noscript>The steps are drawn by the script in this file: please allow it.</noscript>
</main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""
_KEYS: Final = (
    "Keys: left and right arrow step, Home and End go to the ends, f and F to the next fault and to"
    " the one before, v to the violation."
)
_TOGETHER: Final = (
    '<label><input type="checkbox" id="together" checked> Step by time together</label>'
)


def replay_page(runs: Sequence[dict[str, Any]]) -> str:
    """Return the page of one run, or of two runs beside each other."""
    assets = {path: asset.content.decode() for path, asset in load_assets().items()}
    style = "\n".join(assets[path] for path in _STYLES)
    script = joined([assets[path] for path in _SCRIPTS])
    title = " beside ".join(
        f"seed {run['seed']}{' with a mutant' if run['mutant'] else ''}" for run in runs
    )
    policy = (
        f"default-src 'none'; script-src {_hash_of(script)}; style-src {_hash_of(style)};"
        " base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(
        policy=html.escape(policy, quote=False),
        title=html.escape(f"Simulated run of {title}"),
        keys=_KEYS,
        style=style,
        script=script,
        data=_data(runs),
        together=_TOGETHER if len(runs) > 1 else "",
        two=" two" if len(runs) > 1 else "",
    )


def write_replay(path: str, jobs: Sequence[Job]) -> None:
    """Make runs, and write their page to a file; exit with 1 if the first shows a violation.

    The file has the old or the new content, never a part.
    """
    target = Path(path)
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise typer.BadParameter(
            f"no file can be written in {target.parent}: a directory that is there and may be"
            " written is needed",
            param_hint="--html",
        )
    documents = []
    for job in jobs:
        recorders: list[TimelineRecorder] = []
        result = job.run(_recorder_of(recorders))
        documents.append(recorders[0].document(result, job.command()))
        verdict = f"VIOLATION {result.violation}" if result.violation else "no violation"
        say(f"tidelog: {job.command()}: {result.events} events, {verdict}")
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    unfinished.write_text(replay_page(documents), encoding="utf-8")
    os.replace(unfinished, target)
    print_line(f"page: {path}")
    if documents[0]["violation"]:
        raise typer.Exit(1)


def _recorder_of(recorders: list[TimelineRecorder]) -> Callable[[SeedRun], None]:
    """Return a function that adds a recorder of a run to `recorders`, before the run begins."""
    from tidelog.sim.story import TimelineRecorder

    return lambda run: recorders.append(TimelineRecorder(run))


def joined(modules: Sequence[str]) -> str:
    """Return modules as one script; raise ValueError if two modules define the same name.

    Imports and the words `export` are removed, because all modules share one scope. Each import
    must therefore be whole lines, and each `export` must begin a line.
    """
    known: dict[str, None] = {}
    parts = []
    for module in modules:
        text = _EXPORT.sub("", _IMPORT.sub("", module))
        for name in _DEFINED.findall(text):
            if name in known:
                raise ValueError(f"two scripts of the page define {name}")
            known[name] = None
        parts.append(text)
    body = "\n".join(parts)
    if re.search(r"^(?:import|export)\b", body, re.MULTILINE) or "</script" in body:
        raise ValueError("a script of the page cannot stand in it")
    return f"(() => {{\n'use strict';\n{body}\n}})();\n"


def _data(runs: Sequence[dict[str, Any]]) -> str:
    """Return the runs as JSON without `<`, which could end the page's script element too early."""
    return json.dumps(list(runs), separators=(",", ":")).replace("<", "\\u003c")


def _hash_of(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
