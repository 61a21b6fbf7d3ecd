"""The route into a running job: a command, or a shell on a terminal, over a WebSocket."""

import asyncio
import contextlib
import json
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect

from danlu.actions.jobs.enter import Terminal, check_entrant, enter
from danlu.api.auth import TheDesk, Welcome, actor_of
from danlu.api.bodies import parse_json, problem_out
from danlu.engines.base import Stream
from danlu.errors import DanluError, Forbidden, Invalid

router = APIRouter()

STDIN, CHANNELS = 0, {"stdout": b"\x01", "stderr": b"\x02"}
_GONE = Forbidden("you may not be in this job any more", "ask an administrator")


@router.websocket("/jobs/{ref}/exec")
async def exec_in_job(socket: WebSocket, desk: TheDesk, ref: str) -> None:
    await socket.accept()
    try:
        actor = await actor_of(socket)
        first = await socket.receive()
        if first["type"] == "websocket.disconnect":
            return
        command, terminal = _read_ask(first.get("text") or "")
        job, stream = await enter(
            desk.cache,
            desk.context.store,
            desk.engine,
            desk.rules.queues,
            actor,
            ref,
            command,
            terminal,
            now=datetime.now(UTC),
        )
    except WebSocketDisconnect:
        return
    except DanluError as error:
        await socket.send_text(json.dumps({"problem": problem_out(error)}))
        await socket.close()
        return
    welcome = Welcome(desk, socket, lambda actor: check_entrant(actor, job))
    incoming = asyncio.create_task(_incoming(socket, stream))
    outgoing = asyncio.create_task(_outgoing(socket, stream))
    leaving = asyncio.create_task(welcome.over())
    try:
        await asyncio.wait({outgoing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not outgoing.done():
            outgoing.cancel()
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                await socket.send_text(json.dumps({"problem": problem_out(_GONE)}))
                await socket.close()
    finally:
        for task in (incoming, outgoing, leaving):
            task.cancel()
        await asyncio.gather(incoming, outgoing, leaving, return_exceptions=True)
        await stream.close()


async def _outgoing(socket: WebSocket, stream: Stream) -> None:
    """Send the output of the command until the command ends."""
    try:
        while (output := await stream.read()) is not None:
            channel, data = output
            await socket.send_bytes(CHANNELS[channel] + data)
        await socket.send_text(json.dumps({"exit": await stream.wait()}))
        await socket.close()
    except (WebSocketDisconnect, RuntimeError):
        pass  # the person is gone


async def _incoming(socket: WebSocket, stream: Stream) -> None:
    """Pass on the person's input until the person disconnects."""
    try:
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                break
            if data := message.get("bytes"):
                if data[0] == STDIN:
                    await stream.write(data[1:])
            elif text := message.get("text"):
                await _control(stream, parse_json(text, "a message"))
    except (OSError, ValueError, Invalid, RuntimeError):
        pass
    await stream.close()


async def _control(stream: Stream, wanted: dict[str, Any]) -> None:
    match wanted:
        case {"resize": [int(rows), int(columns)]} if _is_size(rows) and _is_size(columns):
            await stream.resize(rows, columns)
        case {"eof": True}:
            await stream.close_input()


def _is_size(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= 65535


def _read_ask(text: str) -> tuple[tuple[str, ...], Terminal | None]:
    try:
        asked = parse_json(text, "the first message")
        command = asked["command"]
        if not (isinstance(command, list) and command and all(isinstance(word, str) for word in command)):
            raise ValueError
        if not asked.get("tty"):
            return tuple(command), None
        rows, columns = asked.get("rows", 24), asked.get("columns", 80)
        if not _is_size(rows) or not _is_size(columns):
            raise Invalid("`rows` and `columns` of a terminal are whole numbers from 1 to 65535")
        if not isinstance(term := asked.get("term", "xterm"), str):
            raise ValueError
        return tuple(command), Terminal(term, rows, columns)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Invalid('the first message must be {"command": […], "tty": …}') from None
