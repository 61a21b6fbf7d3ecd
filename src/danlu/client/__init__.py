"""The REST API as a typed Python client, with the verbs of the command line.

    from danlu.client import Client

    job = Client().run(["python", "train.py"], gpus=1)
    for chunk in job.logs():        # follows until the job has ended
        sys.stdout.buffer.write(chunk)
    job.wait().exit_code

client (the verbs) · session (requests) · http (transport) · own_server (starts a personal server) · job_body (the
body of a submit) · snapshot (code at submit) · jobs (a job and its log) · follow (framed streams) · shell (exec) ·
credentials.

May import: domain, errors, paths, and modules of the standard library that start fast.
Must not: import any server room; print.
"""

from danlu.client.client import Client as Client
from danlu.client.follow import Follow as Follow
from danlu.client.jobs import Job as Job
from danlu.client.jobs import Log as Log
