from pergrad import Problem, Step, strategy


@strategy(framework="jax", source="JAX documentation: jax.vmap", full_only=True)
def vmap_without_jit(problem: Problem) -> Step:
    """`vmap(grad)` without `jit`: the transforms run in Python at every call, one operation after another.

    What is forgotten most easily. Nothing is fused, every intermediate result goes through memory, and Python
    walks through the loss at each call; no call has to wait for a compiler, which can help in a debugger.
    """
    import jax

    gradients = jax.vmap(jax.grad(problem.loss), in_axes=(None, 0))
    return lambda batch: gradients(problem.parameters, batch)
