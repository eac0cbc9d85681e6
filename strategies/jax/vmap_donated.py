from functools import partial

from pergrad import Batch, Gradients, Parameters, Problem, Step, strategy


@strategy(
    framework="jax", source="JAX documentation: buffer donation (donate_argnums)", reuses_output=True, full_only=True
)
def vmap_donated(problem: Problem) -> Step:
    """`jit(vmap(grad))` that writes into the memory of its previous result, which it is given as a donation.

    Large rows cost page faults on fresh memory more than arithmetic; a donated buffer has its pages already. The
    result of a call becomes invalid with the next call: copy what must be kept.
    """
    import jax
    import jax.numpy as jnp

    gradient = jax.vmap(jax.grad(problem.loss), in_axes=(None, 0))

    @partial(jax.jit, donate_argnums=0, keep_unused=True)
    def gradients(previous: Gradients, parameters: Parameters, batch: Batch) -> Gradients:
        return gradient(parameters, batch)

    size = problem.batch_size
    # Zeros without a device would make the second call, which is given results on one, compile again.
    rows = {
        name: jnp.zeros((size, *value.shape), value.dtype, device=value.sharding)
        for name, value in problem.parameters.items()
    }

    def step(batch: Batch) -> Gradients:
        nonlocal rows
        rows = gradients(rows, problem.parameters, batch)
        return rows

    return step
