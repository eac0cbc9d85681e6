"""TensorFlow 1: a graph, placeholders, variables and a session, through `tf.compat.v1`."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from harness.core.framework import Framework
from harness.core.problem import Gradients, GraphProblem, Problem
from harness.core.workload import Arrays, Workload, cast
from harness.frameworks._tensorflow import TENSORFLOW, TensorFlowAdapter, add_placements
from harness.frameworks.base import Device, with_state

FRAMEWORK = Framework(
    name="tf1",
    label="TensorFlow 1: graphs and sessions",
    light="#8a3208",
    dark="#ee8550",
    result="the session returns NumPy, so its fetch is inside",
    stays_on_device=False,
    reference="tf2",  # a graph is TensorFlow's functions, and those run eagerly too
    **TENSORFLOW,
)


class TensorFlow1Adapter(TensorFlowAdapter):
    """Results are NumPy arrays: `session.run` fetches them, so the fetch is inside the measured time."""

    name = "tf1"
    array_types = (np.ndarray, np.generic)

    def __init__(self, threads: int | None) -> None:
        super().__init__(threads)
        self.tf1 = self.tf.compat.v1
        self.tf1.logging.set_verbosity(self.tf1.logging.ERROR)
        self.tf1.disable_v2_behavior()

    def _bind(self, workload: Workload, floats: Arrays, state: Arrays, device: Device, batch_size: int) -> Problem:
        # A new graph holds the parameters as variables on the device.
        graph = self.tf.Graph()
        with graph.as_default(), self._device(device.handle):
            variables = {
                name: self.tf1.get_variable(f"parameter{number}", initializer=value)
                for number, (name, value) in enumerate(floats.items())
            }
            constants = {name: self.tf1.constant(value) for name, value in state.items()}
        dtype = next(iter(floats.values())).dtype.name
        example = cast(workload.batches(seed=0, size=1, count=1)[0], dtype)
        return GraphProblem(
            variables,
            batch_size,
            device.handle,
            self.ops,
            with_state(workload.losses, constants),
            graph=graph,
            config=self._config(),
            specification={name: (value.dtype, value.shape[1:]) for name, value in example.items()},
        )

    def place(self, batch: Arrays, device: Device) -> Mapping[str, Any]:
        """NumPy arrays, as they are: a session is fed."""
        return batch

    def readable(self, problem: Problem) -> Mapping[str, Any]:
        """None: variables live in the strategy's session."""
        return {}

    def scope(self, problem: Problem) -> AbstractContextManager[Any]:
        """The problem's graph is the default one."""
        return self._scope(problem)

    @contextlib.contextmanager
    def _scope(self, problem: Problem) -> Iterator[None]:
        assert isinstance(problem, GraphProblem)
        with problem.graph.as_default(), self._device(problem.device):
            yield

    def wait(self, output: Gradients) -> Gradients:
        """`session.run` returns when everything has been computed and fetched."""
        return output

    def numpy(self, array: Any) -> np.ndarray[Any, Any]:
        """The array itself."""
        return np.asarray(array)

    @contextlib.contextmanager
    def placements(self) -> Iterator[Counter[tuple[str, str]]]:
        """A session tells it of a run that asks; a callable is run once more, on zeros, since it cannot ask."""
        found = Counter[tuple[str, str]]()
        options = self.tf1.RunOptions(output_partition_graphs=True)
        known: set[tuple[int, str]] = set()
        callables: list[tuple[Any, Any, Sequence[Any]]] = []
        session = self.tf1.Session
        run, make_callable = session.run, session.make_callable

        def recorded(this: Any, fetches: Any, feed_dict: Any = None, *rest: Any, **named: Any) -> Any:
            if (key := (id(this), repr(fetches))) in known:  # one graph, however often it is run
                return run(this, fetches, feed_dict, *rest, **named)
            known.add(key)
            told = self.tf1.RunMetadata()
            values = run(this, fetches, feed_dict, options, told)
            add_placements(found, told.partition_graphs)
            return values

        def remembered(this: Any, fetches: Any, feed_list: Any = None, accept_options: bool = False) -> Any:
            callables.append((this, fetches, feed_list or ()))
            return make_callable(this, fetches, feed_list, accept_options)

        session.run, session.make_callable = recorded, remembered
        try:
            yield found
            for this, fetches, feeds in callables:
                recorded(this, fetches, {x: np.zeros(x.shape, x.dtype.as_numpy_dtype) for x in feeds})
        finally:
            session.run, session.make_callable = run, make_callable

    def _device(self, handle: str) -> AbstractContextManager[Any]:
        device: AbstractContextManager[Any] = self.tf1.device(None if handle == "/device:CPU:0" else handle)
        return device

    def _config(self) -> Any:
        config = self.tf1.ConfigProto()
        config.gpu_options.allow_growth = True
        config.allow_soft_placement = True  # what has no GPU kernel is computed on the CPU, and marked
        if self.limit is not None:
            config.intra_op_parallelism_threads = self.limit
            config.inter_op_parallelism_threads = self.limit
        return config


ADAPTER = TensorFlow1Adapter
