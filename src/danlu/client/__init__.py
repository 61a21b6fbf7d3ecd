"""The REST API as a typed Python client, with the verbs of the command line.

    from danlu.client import Client

    job = Client().run(["python", "train.py"], gpus=1)
    for chunk in job.logs():        # follows until the job has ended
        sys.stdout.buffer.write(chunk)
    job.wait().exit_code

What is here: `http` (transport) · `personal` (starting one's own server) · `spec` (the body of a submit) ·
`snapshot` (code at submit) · `jobs` (a job and its log) · `follow` (framed streams) · `shell` (exec) ·
`credentials` (what `danlu login` remembers) · `wire` (requests) · `verbs` (the client).
May import: `danlu.errors`, `danlu.paths`, and of the standard library only what costs nothing at start-up.
Must not: import any server room; print.
"""

from danlu.client.client import Client as Client
from danlu.client.follow import Follow as Follow
from danlu.client.jobs import Job as Job
from danlu.client.jobs import Log as Log
