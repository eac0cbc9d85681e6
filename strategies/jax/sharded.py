import os

from pergrad import Batch, Gradients, Problem, Step, Unsupported, strategy

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@strategy(
    framework="jax",
    source="JAX documentation: manual parallelism with shard_map",
    environment={"XLA_FLAGS": f"--xla_force_host_platform_device_count={CORES}"},
    full_only=True,
    every_device=True,
)
def sharded(problem: Problem) -> Step:
    """`shard_map` of `vmap(grad)`: the batch is sharded over all devices, each core of the host being one.

    Every device computes the rows of its share of the batch, and nothing is exchanged. The rows stay where they
    were computed. The batch is divided among as many devices as divide it evenly; their number is recorded.
    """
    import jax
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    devices = jax.devices(problem.device.platform)
    if len(devices) < 2:
        raise Unsupported(f"JAX sees one {problem.device.platform} device only, so there is nothing to divide")
    count = max(n for n in range(1, len(devices) + 1) if problem.batch_size % n == 0)
    problem.facts["devices"] = count
    mesh = Mesh(devices[:count], ("instances",))
    divided = NamedSharding(mesh, P("instances"))
    parameters = jax.device_put(problem.parameters, NamedSharding(mesh, P()))

    # With check_vma the gradient by the parameters, which all devices share, would be summed over the devices.
    share = jax.vmap(jax.grad(problem.loss), in_axes=(None, 0))
    specs = {"in_specs": (P(), P("instances")), "out_specs": P("instances")}
    gradients = jax.jit(jax.shard_map(share, mesh=mesh, **specs, check_vma=False))

    def step(batch: Batch) -> Gradients:
        return gradients(parameters, jax.device_put(batch, divided))

    return step
