from functools import partial

from pergrad import Problem, Step, strategy


@strategy(framework="jax", source="JAX documentation of jax.lax.map: batch_size", full_only=True)
def lax_map_chunks(problem: Problem) -> Step:
    """`lax.map` with `batch_size`: a compiled loop over chunks of the batch, vectorised within each chunk.

    Between `lax.map` and `vmap`: chunks of 16 instances bound the memory of intermediate results. A batch that is
    no larger than a chunk is one `vmap`.
    """
    import jax

    gradient = jax.grad(problem.loss)
    gradients = jax.jit(lambda parameters, batch: jax.lax.map(partial(gradient, parameters), batch, batch_size=16))
    return lambda batch: gradients(problem.parameters, batch)
