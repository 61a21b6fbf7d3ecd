"""Train a small classifier on real handwritten digits, with progress and a checkpoint after every epoch.

A training script like any other: it knows nothing of Danlu but the variables that every job sees.
Run it again in the same folder and it goes on from its checkpoint; SIGUSR1 asks it to save and stop.
"""

import argparse
import os
import signal
import time
from pathlib import Path

import joblib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--out", type=Path, default=Path("digits-model.joblib"))
    options = parser.parse_args()

    asked_to_stop = False

    def on_notice(*_: object) -> None:
        nonlocal asked_to_stop
        asked_to_stop = True

    signal.signal(signal.SIGUSR1, on_notice)

    cards = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    print(f"job {os.environ.get('DANLU_JOB_ID', '(none)')}, card {cards or '(none)'}, lr {options.lr}")
    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(images / 16.0, labels, test_size=0.25, random_state=0)
    print(f"{len(train_x)} digits to learn from, {len(test_x)} to be tested on")

    model, first = MLPClassifier((64,), learning_rate_init=options.lr, random_state=0), 1
    if options.out.exists():
        model, done = joblib.load(options.out)
        first = done + 1
        print(f"goes on after epoch {done}, from {options.out.resolve()}")
    rng = np.random.default_rng(first)
    for epoch in range(first, options.epochs + 1):
        began = time.perf_counter()
        for batch in np.array_split(rng.permutation(len(train_x)), 40):
            model.partial_fit(train_x[batch], train_y[batch], classes=np.arange(10))
        bar = "█" * (20 * epoch // options.epochs)
        print(
            f"epoch {epoch:2}/{options.epochs} {bar:20} loss {model.loss_:.3f}"
            f"  test accuracy {model.score(test_x, test_y):6.1%}  {time.perf_counter() - began:.2f} s",
            flush=True,
        )
        save(options.out, (model, epoch))
        if asked_to_stop:
            print("asked to stop: the checkpoint is written, bye")
            return
    print(f"checkpoint: {options.out.resolve()}")


def save(path: Path, state: object) -> None:
    """Whole or not at all: a kill in the middle leaves the checkpoint before."""
    making = path.with_suffix(".making")
    joblib.dump(state, making)
    making.rename(path)


if __name__ == "__main__":
    main()
