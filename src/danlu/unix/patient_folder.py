"""A folder that other machines see and write to as well: what is done there may hang, and holds up nobody else."""

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
        """In a thread of its own: whoever needs one for something else does not wait for this."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(do, *given, **named))

    async def in_time(self, do: Callable[Given, Found], *given: Given.args, **named: Given.kwargs) -> Found:
        """As `apart`; EngineDown if there is no end to it. It may still be done, when the file system goes on."""
        try:
            async with asyncio.timeout(self._patience_s):
                return await self.apart(do, *given, **named)
        except TimeoutError:
            raise EngineDown(f"the shared folder {self.root} does not answer") from None
