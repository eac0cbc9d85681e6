"""What the adapters of TensorFlow 1 and TensorFlow 2 share: one package, two ways to use it."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from harness.core.domain import usable_cores
from harness.core.framework import GPU_OUT_OF_MEMORY
from harness.frameworks.base import Adapter, Device

TENSORFLOW: dict[str, Any] = {
    "package": "tensorflow",
    "packages": ("tensorflow", "keras"),
    "extra": "tensorflow",
    "start_s": 6.0,
    "precision": "full float32: TF32 is off for the process",
    "memory": "TensorFlow's own; GPU memory grows with need",
    "data_dependent": ("OperatorNotAllowedInGraph", "symbolic `?tf.Tensor`? as a Python"),
    "untransformable": ("No (pfor )?(vectorization|converter) defined",),
    "out_of_memory": (
        *("RESOURCE_EXHAUSTED", "ResourceExhausted", "out of memory", "allocate memory"),
        "Dst tensor is not initialized",
        *GPU_OUT_OF_MEMORY,
    ),
    "autotuning": "TensorFlow chooses convolutions by trying, in the first calls",
    "gpu_install": "'tensorflow[and-cuda]'",
    "workload_template": "tensorflow",
}
"""What both ways to use TensorFlow have in common, as fields of `Framework`."""


class TensorFlowAdapter(Adapter):
    """Devices, threads and operations of the package `tensorflow`."""

    def __init__(self, threads: int | None) -> None:
        super().__init__(threads)
        import tensorflow as tf

        if threads is not None:
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(threads)
        tf.config.experimental.enable_tensor_float_32_execution(False)
        self.tf = tf
        self.ops = importlib.import_module("harness.ops.tensorflow")

    @staticmethod
    def environment(dtype: str = "float32", device: str = "any") -> dict[str, str]:
        """Quiet start, unless devices are looked for; GPU memory grows with need instead of being taken whole."""
        return {"TF_CPP_MIN_LOG_LEVEL": "0" if device == "any" else "2", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}

    def hide_accelerators(self) -> None:
        """No GPU of any make is visible, where something is asked of TensorFlow for the first time."""
        with contextlib.suppress(RuntimeError):  # it has been started already
            self.tf.config.set_visible_devices([], "GPU")

    def devices(self) -> list[Device]:
        """CPU, then GPUs, as logical devices such as `/device:CPU:0`, each GPU with its own name before it."""
        found = [Device("cpu", name, name) for name in map("/device:CPU:{}".format, range(self._count("CPU")))]
        with said_on_stderr() as lines:
            gpus = self.tf.config.get_visible_devices("GPU")
        if not gpus and (why := next(filter(NO_GPU.search, lines), "")):
            self.missing["gpu"] = why.partition("] ")[2] or why
        for index, physical in enumerate(gpus):
            handle = f"/device:GPU:{index}"
            named = self.tf.config.experimental.get_device_details(physical).get("device_name", "")
            found.append(Device("gpu", f"{named} {handle}".strip(), handle))
        return found

    def _count(self, kind: str) -> int:
        """Logical devices of a kind; one that is physical can be made several."""
        physical = self.tf.config.get_visible_devices(kind)
        made = (self.tf.config.get_logical_device_configuration(device) for device in physical)
        return sum(len(logical or (None,)) for logical in made)

    def threads(self) -> dict[str, int]:
        """Threads within one operation and between them; 0 would mean TensorFlow's choice, one per usable core."""
        threading = self.tf.config.threading
        cores = len(usable_cores())
        return {
            "intra_op": threading.get_intra_op_parallelism_threads() or cores,
            "inter_op": threading.get_inter_op_parallelism_threads() or cores,
        }


NO_GPU = re.compile("dlopen|cuInit|cuda drivers|CUDA_ERROR|cuDNN", re.IGNORECASE)
"""What TensorFlow logs where it cannot use a GPU; no function of it tells."""


@contextlib.contextmanager
def said_on_stderr() -> Iterator[list[str]]:
    """Collect the lines that libraries write to the process's standard error, and pass them on."""
    lines: list[str] = []
    with tempfile.TemporaryFile("w+", errors="replace") as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            lines += file.read().splitlines()
            os.write(2, "".join(f"{line}\n" for line in lines).encode())


BESIDE_THE_WORK = {
    "_Arg",
    "_DeviceArg",
    "_Retval",
    "_DeviceRetval",
    "_Send",
    "_Recv",
    "_HostSend",
    "_HostRecv",
    "Const",
    "NoOp",
    "Placeholder",
}
"""Operations that hand values over, wherever they are."""


def add_placements(found: Counter[tuple[str, str]], graphs: Iterable[Any]) -> None:
    """Count (operation, device) of every node of the graphs that were made for devices, for `Adapter.placements`."""
    for graph in graphs:
        for node in graph.node:
            if node.op not in BESIDE_THE_WORK:
                found[node.op, "/device:" + node.device.rpartition("/device:")[2]] += 1
