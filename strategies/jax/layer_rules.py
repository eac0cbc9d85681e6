from functools import partial

from pergrad import Batch, Gradients, Parameters, Problem, Step, strategy


@strategy(
    framework="jax", source="I. Goodfellow, arXiv 1510.01799; buffers donated", reuses_output=True, through_ops=True
)
def layer_rules(problem: Problem) -> Step:
    """One pass for the batch, rows from each layer's input and cotangent, written into the previous result.

    A dense layer's row is an outer product, an embedding's a scatter, a convolution's a product over its windows:
    the rules are in `_layers_jax.py`. The buffers of the previous result are donated, so that no call pays for
    fresh memory; it becomes invalid with the next call. Every parameter must belong to a layer with a rule.
    """
    import jax
    import jax.numpy as jnp

    from strategies._layers_jax import rows_of

    @partial(jax.jit, donate_argnums=0, keep_unused=True)
    def gradients(previous: Gradients, parameters: Parameters, batch: Batch) -> Gradients:
        return rows_of(problem, parameters, batch)

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
