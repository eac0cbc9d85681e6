from functools import partial

from pergrad import Problem, Step, strategy


@strategy(framework="jax", source="JAX documentation of jax.lax.map", full_only=True)
def lax_map(problem: Problem) -> Step:
    """`lax.map` of the gradient of one instance: a compiled loop over the batch.

    Works on one instance at a time, so that its intermediate results stay in the cache and memory grows with the
    rows only. Nothing is vectorised over the batch, and each iteration is too small for several cores.
    """
    import jax

    gradient = jax.grad(problem.loss)
    gradients = jax.jit(lambda parameters, batch: jax.lax.map(partial(gradient, parameters), batch))
    return lambda batch: gradients(problem.parameters, batch)
