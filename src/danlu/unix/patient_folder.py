"""A folder that other machines read and write too: an operation there may hang, but holds up no other work."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from danlu.errors import EngineDown

AT_ONCE = 8
PATIENCE_S = 60.0
Given = ParamSpec("Given")
Found = TypeVar("Found")


class PatientFolder:
    def __init__(self, root: str, *, patience_s: float = PATIENCE_S) -> None:
        self.root = root
        self._patience_s = patience_s
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="far-folder")

    async def apart(self, do: Callable[Given, Found], *given: Given.args, **named: Given.kwargs) -> Found:
        """Run in a thread of this folder's own pool: other work does not wait for this operation."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(do, *given, **named))

    async def in_time(self, do: Callable[Given, Found], *given: Given.args, **named: Given.kwargs) -> Found:
        """Like `apart`, but raise EngineDown after a time limit. The operation may still finish when the file system
        answers again."""
        try:
            async with asyncio.timeout(self._patience_s):
                return await self.apart(do, *given, **named)
        except TimeoutError:
            raise EngineDown(f"the shared folder {self.root} does not answer") from None
