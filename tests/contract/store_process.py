"""A process that writes as fast as it can and says what was acknowledged: `store_process URL ROUND`."""

import asyncio
import os
import sys

from danlu.domain.people import AuditEntry
from danlu.store.sql import SqlStore
from tests.builders import NOW, job
from tests.contract.store_tools import array, started


async def main(url: str, number: str) -> None:
    store = SqlStore(url)
    await store.open()

    async def submit(worker: int) -> None:
        for i in range(100_000):
            name = f"r{number}w{worker}i{i}"
            jobs = array(name, 5, labels=(("round", number),)) if i % 3 == 0 else [job(name)]
            if i == 1 and worker < 4:
                jobs = array(name, 600)
            made = await store.insert(jobs, audit=[AuditEntry(NOW, "ada", "job.submit", name)])
            os.write(1, f"{made[-1].id} 1\n".encode())
            await store.update([started(made[-1])], audit=[AuditEntry(NOW, "ada", "job.stop", name)])
            os.write(1, f"{made[-1].id} 2\n".encode())

    await asyncio.gather(*(submit(worker) for worker in range(20)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
