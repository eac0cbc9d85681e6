from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="tf2",
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
    import tensorflow as tf

    from strategies._layers_tensorflow import uses
    from strategies._norms_tensorflow import norms, scaled_sum

    @tf.function(autograph=False)
    def step(batch: Batch) -> Gradients:
        layers = uses(problem, batch)
        factors = problem.clip_norm / tf.maximum(norms(layers, problem.parameters), problem.clip_norm)
        return scaled_sum(layers, factors, problem.parameters)

    return step
