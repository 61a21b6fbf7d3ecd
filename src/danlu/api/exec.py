"""The route into a running job: a command, or a shell on a terminal, over a WebSocket."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect

from danlu.actions.entering import Terminal, enter
from danlu.api.desk import TheDesk, actor_of
from danlu.api.wire import problem_out
from danlu.engines.base import Stream
from danlu.errors import DanluError, Invalid

router = APIRouter()

STDIN, CHANNELS = 0, {"stdout": b"\x01", "stderr": b"\x02"}


@router.websocket("/jobs/{ref}/exec")
async def exec_in_job(socket: WebSocket, desk: TheDesk, ref: str) -> None:
    await socket.accept()
    try:
        actor = await actor_of(socket)
        command, terminal = _read_ask(await socket.receive_text())
        stream = await enter(
            desk.book,
            desk.office.store,
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
    incoming = asyncio.create_task(_incoming(socket, stream))
    try:
        while (output := await stream.read()) is not None:
            channel, data = output
            await socket.send_bytes(CHANNELS[channel] + data)
        await socket.send_text(json.dumps({"exit": await stream.wait()}))
        await socket.close()
    except (WebSocketDisconnect, RuntimeError):
        pass  # the person is gone
    finally:
        incoming.cancel()
        await stream.close()


async def _incoming(socket: WebSocket, stream: Stream) -> None:
    """What the person types, until they hang up."""
    try:
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                break
            if data := message.get("bytes"):
                if data[0] == STDIN:
                    await stream.write(data[1:])
            elif text := message.get("text"):
                await _control(stream, json.loads(text))
    except (OSError, ValueError, RuntimeError):
        pass
    await stream.close()


async def _control(stream: Stream, wanted: dict[str, Any]) -> None:
    match wanted:
        case {"resize": [int(rows), int(columns)]}:
            await stream.resize(rows, columns)
        case {"eof": True}:
            await stream.close_input()


def _read_ask(text: str) -> tuple[tuple[str, ...], Terminal | None]:
    try:
        asked = json.loads(text)
        command = asked["command"]
        if not (isinstance(command, list) and command and all(isinstance(word, str) for word in command)):
            raise ValueError
        if not asked.get("tty"):
            return tuple(command), None
        screen = Terminal(str(asked.get("term", "xterm")), int(asked.get("rows", 24)), int(asked.get("columns", 80)))
        return tuple(command), screen
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Invalid('the first message must be {"command": […], "tty": …}') from None
