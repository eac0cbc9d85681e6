from pergrad import GraphProblem, Step, strategy


@strategy(
    framework="tf1",
    quantity="clipped_sum",
    source="Z. Bu et al., arXiv 2210.00038: book-keeping",
    full_only=True,
    through_ops=True,
)
def ghost_clipping(problem: GraphProblem) -> Step:
    """Norms without rows, then one product per layer for the batch, in one `session.run`.

    The inputs and cotangents that gave the norms also give the sum: each instance's cotangents are scaled by what
    its gradient is clipped by, then multiplied with the inputs as in a plain backward pass.
    """
    import tensorflow.compat.v1 as tf

    from strategies._layers_tensorflow import uses
    from strategies._norms_tensorflow import norms, scaled_sum

    inputs = problem.placeholders(problem.batch_size)
    layers = uses(problem, inputs)
    factors = problem.clip_norm / tf.maximum(norms(layers, problem.parameters), problem.clip_norm)
    result = scaled_sum(layers, factors, problem.parameters)
    session = problem.session()

    return lambda batch: session.run(result, problem.feed(inputs, batch))
