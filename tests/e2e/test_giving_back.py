"""Borrowed cards go back to their owner: real processes get their signal, write a checkpoint, and go on from it."""

import signal

from tests.e2e.installation import PATIENCE_S, Installation, eventually
from tests.e2e.test_shared_server import Shared

# Counts, and after its signal goes on where it was.
TRAINING = """
n=$(cat checkpoint 2>/dev/null || echo 0); echo "begins at $n"
trap 'echo "checkpoint at $n"; echo $n > checkpoint; exit 0' USR1
while :; do n=$((n + 1)); sleep 0.05; done
"""


def lab(here: Installation) -> tuple[Shared, str, str]:
    """Two cards; nlp has one and may borrow, cv has the other."""
    here.root.chmod(0o711)
    shared = Shared(here, engine='fake_gpus = "2xRTX3090"\n')
    for team in ("nlp", "cv"):
        here.danlu("team", "create", team)
    here.danlu("user", "create", "li", "--team", "nlp")
    here.danlu("user", "create", "dean", "--team", "cv")
    here.danlu("quota", "set", "team:nlp", "gpus=1", "borrow=yes")
    here.danlu("quota", "set", "team:cv", "gpus=1")
    return shared, shared.token("li"), shared.token("dean")


def test_a_borrower_is_asked_to_checkpoint_and_goes_on_later(here: Installation) -> None:
    shared, li, dean = lab(here)
    work = here.root / "training"
    work.mkdir()
    work.chmod(0o777)
    own = shared.danlu(li, "submit", "--gpus", "1", "--", "sleep", "1000").text
    here.until(own, "RUNNING")
    words = ("submit", "--gpus", "1", "--preemptible", "--signal", "USR1@30", "--workdir", str(work), "--")
    borrows = shared.danlu(li, *words, "sh", "-c", TRAINING).text
    eventually(lambda: "begins at 0" in shared.danlu(li, "logs", borrows).text, "it trains on the borrowed card")

    owner = shared.danlu(dean, "submit", "--gpus", "1", "--time", "10m", "--", "sleep", "1000").text
    here.until(owner, "RUNNING")
    assert here.client().job(own).state == "RUNNING", "what is within its quota is left alone"
    back = here.until(borrows, "QUEUED")
    assert back["attempt"] == 2
    written = int((work / "checkpoint").read_text())
    assert f"checkpoint at {written}" in shared.danlu(li, "logs", "--attempt", "1", borrows).text
    assert "team nlp" in shared.danlu(li, "why", borrows).text

    # Not lost with the server either.
    shared.process.send_signal(signal.SIGKILL)
    shared.process.wait(PATIENCE_S)
    shared.serve()
    shared.danlu(dean, "stop", owner)
    here.until(borrows, "RUNNING")
    eventually(lambda: f"begins at {written}" in shared.danlu(li, "logs", borrows).text, "it goes on where it was")


def test_a_server_killed_while_a_borrower_leaves_finishes_what_it_began(here: Installation) -> None:
    shared, li, dean = lab(here)
    stubborn = "trap '' TERM; echo on; while :; do sleep 0.1; done"
    holds = shared.danlu(li, "submit", "--gpus", "1", "--", "sleep", "1000").text
    here.until(holds, "RUNNING")
    borrows = shared.danlu(li, "submit", "--gpus", "1", "--preemptible", "--", "sh", "-c", stubborn).text
    eventually(lambda: "on" in shared.danlu(li, "logs", borrows).text, "it runs")
    owner = shared.danlu(dean, "submit", "--gpus", "1", "--", "true").text
    eventually(lambda: here.client().job(borrows).data["stop_requested_at"], "it is asked to leave")
    shared.process.send_signal(signal.SIGKILL)
    shared.process.wait(PATIENCE_S)
    shared.serve()
    here.until(owner, "SUCCEEDED")
    assert here.until(borrows, "RUNNING")["attempt"] == 2
