"""What the adapters of TensorFlow 1 and TensorFlow 2 share: one package, two ways to use it."""

from __future__ import annotations

import importlib
from typing import Any

from harness.core.domain import usable_cores
from harness.frameworks.base import Adapter, Device

TENSORFLOW: dict[str, Any] = {
    "package": "tensorflow",
    "packages": ("tensorflow", "keras"),
    "extra": "tensorflow",
    "start_s": 6.0,
    "precision": "full float32: TF32 is off for the process",
    "memory": "TensorFlow's own; GPU memory grows with need",
    "out_of_memory": ("RESOURCE_EXHAUSTED", "ResourceExhausted", "out of memory", "allocate memory"),
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
    def environment(dtype: str = "float32") -> dict[str, str]:
        """Quiet start; GPU memory grows with need instead of being taken whole."""
        return {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}

    def devices(self) -> list[Device]:
        """CPU, then GPUs, as logical devices such as `/device:CPU:0`."""
        found = []
        for kind in ("CPU", "GPU"):
            for index, _ in enumerate(self.tf.config.list_physical_devices(kind)):
                name = f"/device:{kind}:{index}"
                found.append(Device(kind.lower(), name, name))
        return found

    def threads(self) -> dict[str, int]:
        """Threads within one operation and between them; 0 would mean TensorFlow's choice, one per usable core."""
        threading = self.tf.config.threading
        cores = len(usable_cores())
        return {
            "intra_op": threading.get_intra_op_parallelism_threads() or cores,
            "inter_op": threading.get_inter_op_parallelism_threads() or cores,
        }
