"""This machine as a node: real cards through NVML's own library interface, or pretended ones."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from danlu.domain.resources import model_fits
from danlu.errors import Invalid
from danlu.monitor.machine import parse_fake_gpus, read_gpus, read_node

# Just enough of the driver's library to be asked by the real binding: two cards, or a driver that is broken.
DRIVER = r"""
#include <stdlib.h>
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory_t;
static int broken(void) { return getenv("BROKEN_DRIVER") != 0; }
int nvmlInitWithFlags(unsigned flags) { return broken() ? 9 : 0; }
int nvmlInit_v2(void) { return broken() ? 9 : 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return "Driver Not Loaded"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **card) { *card = (void *)(unsigned long)(index + 1); return 0; }
int nvmlDeviceGetName(void *card, char *name, unsigned size) {
    strncpy(name, card == (void *)1 ? "NVIDIA GeForce RTX 3090" : "NVIDIA A100-SXM4-80GB", size); return 0; }
int nvmlDeviceGetUUID(void *card, char *uuid, unsigned size) {
    strncpy(uuid, card == (void *)1 ? "GPU-1111" : "GPU-2222", size); return 0; }
int nvmlDeviceGetMemoryInfo(void *card, memory_t *memory) {
    memory->total = (card == (void *)1 ? 24576ULL : 81920ULL) << 20; return 0; }
"""
READ = """
import json
from danlu.monitor.machine import read_gpus
print(json.dumps([[g.index, g.model, g.uuid, g.memory_mib, g.shards] for g in read_gpus(shards=8, signs=("/",))]))
"""


def ask_driver(folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        if os.environ.get("CI"):
            pytest.fail("no C compiler: the way to NVML is not tested")
        pytest.skip("NO C COMPILER: the way to NVML is not tested")
    (folder / "driver.c").write_text(DRIVER)
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", library, folder / "driver.c"], check=True)
    env = {**os.environ, "LD_LIBRARY_PATH": str(folder), **variables}
    return subprocess.run([sys.executable, "-c", READ], env=env, text=True, capture_output=True)


def test_cards_come_from_the_driver(tmp_path: Path) -> None:
    answer = ask_driver(tmp_path)
    assert json.loads(answer.stdout) == [
        [0, "NVIDIA GeForce RTX 3090", "GPU-1111", 24576, 8],
        [1, "NVIDIA A100-SXM4-80GB", "GPU-2222", 81920, 8],
    ], answer.stderr


def test_a_driver_that_does_not_answer_means_no_cards_and_a_word_in_the_log(tmp_path: Path) -> None:
    answer = ask_driver(tmp_path, BROKEN_DRIVER="1")
    assert json.loads(answer.stdout) == []
    assert "the NVIDIA driver does not answer" in answer.stderr


def test_without_a_driver_there_are_no_cards_and_nothing_is_loaded() -> None:
    assert read_gpus(signs=()) == ()


def test_pretend_cards() -> None:
    gpus = parse_fake_gpus("4xRTX3090, 2xGTX1080Ti,A100")
    assert [gpu.model for gpu in gpus] == ["RTX3090"] * 4 + ["GTX1080Ti"] * 2 + ["A100"]
    assert [gpu.index for gpu in gpus] == list(range(7))
    assert model_fits(gpus[4].model, "1080ti")
    assert [gpu.memory_mib // 1024 for gpu in gpus] == [24] * 4 + [11] * 2 + [80]
    assert parse_fake_gpus("Quadro RTX 5000")[0].memory_mib == 16 * 1024
    assert parse_fake_gpus("Imaginary 7")[0].memory_mib == 24 * 1024
    assert [gpu.model for gpu in parse_fake_gpus("2x3090,1 x 1080 Ti")] == ["3090", "3090", "1080 Ti"]


@pytest.mark.parametrize(
    "text", ["", "0xRTX3090", "4x", "x", "4xRTX3090,,", "-1xA100", "0x3090", "2x4", "4", "3090", "3 x"]
)
def test_nonsense_about_pretend_cards_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="cards are written as"):
        parse_fake_gpus(text)


def test_the_configuration_wins_over_the_hardware() -> None:
    node = read_node(name="desk", fake_gpus="2xA100", shards_per_gpu=4, cpus=3, memory_mib=100)
    assert (node.name, node.cpus, node.memory_mib, [gpu.shards for gpu in node.gpus]) == ("desk", 3, 100, [4, 4])
    assert read_node().cpus >= 1
