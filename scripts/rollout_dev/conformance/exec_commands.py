"""Awkward commands: nothing is broken, and the result must be exact."""

from __future__ import annotations

import asyncio
import time

from rollout_dev.conformance.exec_scene import RIGHT, Cell, Scene, none, right_if, wrong

EVERY_BYTE = bytes(range(256))
PRINT_EVERY_BYTE = "printf '" + "".join(f"\\{byte:03o}" for byte in EVERY_BYTE) + "'"
_LINE = "0123456789abcde\n"
_DOUBLED = 65536
_AWKWARD = 'it\'s "so" $x `y` \\ *\nnew\tline; é'
_QUICK_S = 6.0
_CODES = (0, 1, 3, 126, 127, 255)
_CONCURRENT = 8
NO_STDIN = "it has no stdin"


def many_lines(times: int) -> tuple[str, bytes]:
    """Return a script of builtins that prints `times` 64 KiB, and its output."""
    script = (
        "x='" + _LINE + "'; "
        f"while [ ${{#x}} -lt {_DOUBLED} ]; do x=$x$x; done; "
        f'i=0; while [ $i -lt {times} ]; do printf %s "$x"; i=$((i + 1)); done'
    )
    return script, _LINE.encode() * (_DOUBLED // len(_LINE)) * times


async def binary_output(scene: Scene) -> Cell:
    """All 256 byte values arrive unchanged."""
    trial = await scene.sh(PRINT_EVERY_BYTE)
    return right_if(trial.printed(EVERY_BYTE), str(trial))


async def split_utf8(scene: Scene) -> Cell:
    """A character whose bytes arrive a second apart stays intact."""
    trial = await scene.sh(r"printf '\303'; sleep 1; printf '\251'")
    return right_if(trial.printed("é".encode()), str(trial))


async def crlf(scene: Scene) -> Cell:
    """Carriage returns and colours are data."""
    trial = await scene.sh(r"printf 'a\r\n\033[31mb\r\n'")
    return right_if(trial.printed(b"a\r\n\x1b[31mb\r\n"), str(trial))


async def exit_codes(scene: Scene) -> Cell:
    """Exit codes arrive unchanged."""
    for code in _CODES:
        trial = await scene.sh(f"exit {code}")
        if not trial.exited(code):
            return wrong(f"for {code}: {trial}")
    return RIGHT


async def missing_program(scene: Scene) -> Cell:
    """A missing program gives 127, as in a shell, or an error with a message; never success."""
    trial = await scene.run(("/no/such/program",))
    return right_if(trial.exited(126, 127) or trial.reported, str(trial))


async def stderr_apart(scene: Scene) -> Cell:
    """stdout and stderr are two streams."""
    trial = await scene.sh("echo out; echo err >&2")
    stderr = trial.outcome.stderr if trial.outcome else b""
    return right_if(trial.printed(b"out\n") and stderr == b"err\n", f"{trial}, stderr {stderr!r}")


async def large_output(scene: Scene) -> Cell:
    """Of 20 MB, all arrive, or the first bytes and the total number."""
    script, expected = many_lines(306)
    trial = await scene.sh(script, timeout_s=60.0)
    return right_if(trial.printed(expected), str(trial))


async def stdin_to_its_end(scene: Scene) -> Cell:
    """A command that reads until the end of its input sees that end."""
    data = EVERY_BYTE * 400
    trial = await scene.sh("cat", stdin=data, timeout_s=10.0)
    if isinstance(trial.error, NotImplementedError):
        return none(NO_STDIN)
    return right_if(trial.printed(data), str(trial))


async def stdin_nobody_reads(scene: Scene) -> Cell:
    """A command that ends without reading any of its 5 MB of input succeeds."""
    trial = await scene.sh("sleep 1; exit 3", stdin=bytes(5_000_000), timeout_s=15.0)
    if isinstance(trial.error, NotImplementedError):
        return none(NO_STDIN)
    return right_if(trial.exited(_CODES[2]), str(trial))


async def background_child(scene: Scene) -> Cell:
    """A child that lives on and holds stdout open does not delay the result."""
    trial = await scene.sh("sleep 20 & echo done", timeout_s=25.0)
    return right_if(trial.printed(b"done\n") and trial.took_s < _QUICK_S, str(trial))


async def deadline(scene: Scene) -> Cell:
    """At the deadline the command ends with every process that it started."""
    ticks = f"{scene.folder}.ticks"
    script = '(while :; do echo x >>"$1"; sleep 1; done) & while :; do sleep 1; done'
    trial = await scene.sh(script, ticks, timeout_s=2.0)
    if not trial.gave_up or trial.took_s > _QUICK_S:
        return wrong(str(trial))
    before = await scene.look('cat "$1"', ticks)
    await asyncio.sleep(3)
    after = await scene.look('cat "$1"', ticks)
    return right_if(before and before == after, "its child lives on")


async def concurrent(scene: Scene) -> Cell:
    """Eight concurrent commands each get their own result."""
    started = time.monotonic()
    work = (scene.sh('sleep 1; echo "$1"', str(n)) for n in range(_CONCURRENT))
    for number, trial in enumerate(await asyncio.gather(*work)):
        if not trial.printed(f"{number}\n".encode()):
            return wrong(f"number {number}: {trial}")
    took_s = time.monotonic() - started
    return right_if(took_s < _QUICK_S, f"one after the other: {took_s:.0f} s")


async def awkward_names(scene: Scene) -> Cell:
    """Quotes, newlines and stars in arguments and file names are preserved."""
    script = (
        'mkdir "$2" && : >"$2/$1" && printf "%s|" "$1" && '
        'for f in "$2"/*; do printf %s "${f##*/}"; done'
    )
    trial = await scene.sh(script, _AWKWARD, f"{scene.folder}.names")
    return right_if(trial.printed(f"{_AWKWARD}|{_AWKWARD}".encode()), str(trial))
