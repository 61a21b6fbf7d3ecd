"""Train one model on several nodes at once, with PyTorch's DistributedDataParallel.

    danlu run --nodes 2 -- python train.py              one process on each of two nodes
    danlu run --nodes 2 --gpus 1 -- python train.py     the same, on a card each
    danlu run -- python train.py                        one process alone

Danlu starts this script once on every node, and has said in the environment which of them it is and where they meet
(RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT): `init_process_group` needs nothing else. With several processes per node,
torchrun starts them, and says the same of each: see README.md. SIGUSR1 asks all ranks to save and stop; run again, it
goes on from there.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("spirals.pt"))
    options = parser.parse_args()
    stop = torch.zeros(1)
    signal.signal(signal.SIGUSR1, lambda *_: stop.fill_(1))

    rank, device = meet()
    train(rank, device, stop, options.epochs, options.out)
    dist.destroy_process_group()
    if device.type == "cpu":
        # Threads of gloo may still hold tensors, and abort a Python that takes its leave before them. So it takes none.
        os._exit(0)


def train(rank: int, device: torch.device, stop: torch.Tensor, epochs: int, out: Path) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(int(os.environ.get("DANLU_CPUS", "1")))  # as many as were asked for, and not all there are
    data = spirals()
    sampler = DistributedSampler(data, seed=0)
    loader = DataLoader(data, batch_size=25, sampler=sampler)
    net = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh())
    net.append(torch.nn.Linear(64, 2))
    model = DistributedDataParallel(net.to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    first = 1
    if out.exists():
        saved = torch.load(out, map_location=device)
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"] + 1

    for epoch in range(first, epochs + 1):
        began = time.perf_counter()
        sampler.set_epoch(epoch)
        for points, labels in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(points.to(device)), labels.to(device))
            loss.backward()  # every rank computes on its part of the data; this averages their gradients
            optimizer.step()
        right = accuracy(net, data, device)
        if rank == 0:
            say(f"epoch {epoch}/{epochs}  accuracy {right:6.1%}  {time.perf_counter() - began:.2f} s")
            save(out, {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch})
        # One may have heard the notice before the others: either all stop after this epoch, or none does.
        asked = stop.clone().to(device)
        dist.all_reduce(asked)
        if asked.item():
            say(f"rank {rank} was asked to stop: the checkpoint is written, bye")
            break
    say(f"rank {rank} is done, and its weights sum up to {checksum(net):.6f}")


def meet() -> tuple[int, torch.device]:
    """Wait until all ranks are there. This one's number, and what it computes on."""
    rank, local_rank = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    is_on_card = torch.cuda.is_available()
    backend = "nccl" if is_on_card else "gloo"
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    node, world = os.environ.get("DANLU_NODE", "this machine"), dist.get_world_size()
    say(f"rank {rank} of {world} on {node}, with {backend}")
    return rank, torch.device("cuda", local_rank) if is_on_card else torch.device("cpu")


def spirals(count: int = 1000) -> TensorDataset:
    """Points of two spirals that wind around each other: which one does a point belong to?"""
    noise = torch.Generator().manual_seed(1)
    labels = torch.arange(count) % 2
    angle = torch.rand(count, generator=noise) * 4 + 0.5
    turned = angle + labels * torch.pi
    points = torch.stack((angle * turned.cos(), angle * turned.sin()), 1) / 5
    return TensorDataset(points + 0.02 * torch.randn(count, 2, generator=noise), labels)


def accuracy(net: torch.nn.Module, data: TensorDataset, device: torch.device) -> float:
    points, labels = data.tensors
    with torch.no_grad():
        return float((net(points.to(device)).argmax(1) == labels.to(device)).float().mean())


def checksum(net: torch.nn.Module) -> float:
    return float(sum(parameter.detach().double().sum() for parameter in net.parameters()))


def say(line: str) -> None:
    """In one write: ranks share a log, and an unbuffered `print` writes a line and its end apart."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def save(path: Path, state: dict[str, object]) -> None:
    """Whole or not at all: a kill in the middle leaves the checkpoint before."""
    making = path.with_suffix(".making")
    torch.save(state, making)
    making.rename(path)


if __name__ == "__main__":
    main()
