from pergrad import Batch, Gradients, Parameters, Problem, Step, strategy


@strategy(
    framework="jax",
    quantity="clipped_sum",
    source="Z. Bu et al., arXiv 2210.00038: book-keeping",
    full_only=True,
    through_ops=True,
)
def ghost_clipping(problem: Problem) -> Step:
    """Norms without rows, then one product per layer for the batch: the backward pass runs only once.

    The inputs and cotangents that gave the norms also give the sum: each instance's cotangents are scaled by what
    its gradient is clipped by, then multiplied with the inputs as in a plain backward pass.
    """
    import jax
    import jax.numpy as jnp

    from strategies._layers_jax import uses
    from strategies._norms_jax import norms, scaled_sum

    @jax.jit
    def result(parameters: Parameters, batch: Batch) -> Gradients:
        layers = uses(problem, parameters, batch)
        factors = problem.clip_norm / jnp.maximum(norms(layers, parameters), problem.clip_norm)
        return scaled_sum(layers, factors, parameters)

    return lambda batch: result(problem.parameters, batch)
