"""What `make run` does: the first job of a newcomer, for real, and what to try next."""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
DANLU = Path(sys.executable).with_name("danlu")


def danlu(*words: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([DANLU, *words], text=True, capture_output=True, env={**os.environ, **(env or {})})


def status() -> dict[str, object] | None:
    answer = danlu("status", "--json")
    return json.loads(answer.stdout) if answer.returncode == 0 else None


def has_cards(found: dict[str, object]) -> bool:
    nodes = found["nodes"]
    return isinstance(nodes, list) and any(node["gpus"] for node in nodes)


def main() -> int:
    found = status()
    pretend = "1xRTX3090" if not Path("/dev/nvidiactl").exists() else ""
    if found and not has_cards(found):
        danlu("down")  # jobs go on; it comes back with a pretend card
    out = Path.cwd() / "digits-model.joblib"
    out.unlink(missing_ok=True)
    command = ["run", "--gpus", "1", "--name", "digits", "--time", "10m", "--signal", "USR1@30", "--"]
    command += [sys.executable, str(HERE / "digits" / "train.py"), "--out", str(out)]
    print(f"$ danlu run --gpus 1 … -- python examples/digits/train.py --out {out.name}\n", flush=True)
    done = subprocess.run([DANLU, *command], env={**os.environ, **({"DANLU_FAKE_GPUS": pretend} if pretend else {})})
    if done.returncode:
        return done.returncode
    job = json.loads(danlu("show", "@", "--json").stdout)
    server = status() or {}
    typed = ".venv/bin/danlu" if Path(sys.prefix).name == ".venv" else "danlu"
    print(f"""
The job {job["id"]} {job["state"].lower()} on {"a pretend" if pretend else "a real"} card.
  log         {job["log_path"]}
  checkpoint  {out}
  server      pid {server.get("pid")}, {server.get("address")}

Try next:
  {typed} ps        your jobs
  {typed} logs @    the log of the last one
  {typed} submit --array 1-4 -- sh -c 'echo task $DANLU_ARRAY_INDEX; sleep 5'    four tasks at once

Stop the server (never the jobs): {typed} down""")
    return 0


if __name__ == "__main__":
    sys.exit(main())
