from pergrad import Problem, Step, Unsupported, strategy


@strategy(
    framework="jax",
    source="JAX documentation, configuration options: jax_cpu_enable_async_dispatch",
    environment={"JAX_CPU_ENABLE_ASYNC_DISPATCH": "false"},
)
def vmap_synchronous(problem: Problem) -> Step:
    """`jit(vmap(grad))` with one line of configuration: on the CPU a call runs in the thread that makes it.

    By default JAX hands a call to another thread, and waiting for the result costs a wake-up, which is more than a
    small network's whole gradient. The line has to stand before anything else is done with JAX. On a GPU it changes
    nothing.
    """
    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", False)
    if problem.device.platform != "cpu":
        raise Unsupported("calls are dispatched synchronously on the CPU only")

    gradients = jax.jit(jax.vmap(jax.grad(problem.loss), in_axes=(None, 0)))
    return lambda batch: gradients(problem.parameters, batch)
