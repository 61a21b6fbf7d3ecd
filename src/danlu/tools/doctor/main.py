"""The command `danlu doctor`: observe, judge, report. `danlu.cli.commands.tools` starts it."""

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace

from danlu.cli import render
from danlu.config.settings import Settings, load_settings
from danlu.errors import DanluError, Refused
from danlu.tools.doctor.checks import Examination
from danlu.tools.doctor.findings import Finding, Level, as_data, count
from danlu.tools.doctor.look.slurm import find_conf
from danlu.tools.doctor.report import render_report, render_summary

HAS_PROBLEM = 1
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    render.set_color(options.color)
    try:
        return _examine(options)
    except DanluError as error:
        render.progress("")
        render.error(error)
        return error.exit_code
    except KeyboardInterrupt:
        render.progress("")
        return INTERRUPTED
    except BrokenPipeError:
        return 141


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m danlu.tools.doctor.main", allow_abbrev=False)
    parser.add_argument("--config")
    parser.add_argument("--server", default="")
    parser.add_argument("--deep", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--color", default="auto")
    return parser.parse_args(argv)


def _examine(options: argparse.Namespace) -> int:
    settings, why = _settings(options.config)
    examination = Examination(
        settings,
        config=options.config or "",
        server=options.server,
        deep=options.deep,
        tell=render.progress,
        announce=_announce,
    )
    findings = examination.findings()
    render.progress("")
    if options.json:
        _print_data(settings.engine.kind, examination.subject, findings)
    else:
        render.out(f"{render.painted(examination.subject, 'bold')}{why}\n")
        render.out(render_report(findings, render.painted, render.width()))
        render.out(f"\n{render_summary(findings, render.painted)}")
        if examination.can_go_deeper and not options.deep:
            render.out("`danlu doctor --deep` also checks from each node: folder, users, names, clock, cards")
    return HAS_PROBLEM if count(findings)[Level.PROBLEM] else 0


def _print_data(kind: str, subject: str, findings: Sequence[Finding]) -> None:
    render.as_json(
        {
            "engine": kind,
            "subject": subject,
            "counts": {str(level): number for level, number in count(findings).items()},
            "findings": [as_data(one) for one in findings],
        }
    )


def _announce(text: str) -> None:
    render.progress("")
    render.say(text)


def _settings(config: str | None) -> tuple[Settings, str]:
    """The settings, with the engine detected if not configured, and a hint how to choose the other engine."""
    settings = load_settings(config, os.environ)
    if settings.engine.kind == "kubernetes":
        raise Refused("this version does not support Kubernetes", "engine.kind: local or slurm")
    is_open = not config and "DANLU_ENGINE_KIND" not in os.environ
    if is_open and (os.environ.get("SLURM_CONF") or (shutil.which("sinfo") and find_conf())):
        found = replace(settings, engine=replace(settings.engine, kind="slurm"))
        return found, "\n(Slurm's commands are installed here; `DANLU_ENGINE_KIND=local` checks this machine instead)"
    return settings, ""


if __name__ == "__main__":
    sys.exit(main())
