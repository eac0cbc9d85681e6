from pergrad import GraphProblem, Step, strategy


@strategy(
    framework="tf1", source="I. Goodfellow, TensorFlow issue 4897: one copy of the weights per instance", full_only=True
)
def weight_copies(problem: GraphProblem) -> Step:
    """Give every instance its own copy of the weights, and differentiate the sum of losses by the copies.

    A copy is a `tf.identity` and costs nothing. Each loss depends on one copy only, so one call of `tf.gradients`
    returns all rows and the graph grows with B, not with its square. But every instance has its own small
    operations, forwards and backwards: nothing is computed for the batch as a whole.
    """
    import tensorflow.compat.v1 as tf

    inputs = problem.placeholders(problem.batch_size)
    copies, losses = [], []
    for i in range(problem.batch_size):
        copies.append({name: tf.identity(variable) for name, variable in problem.parameters.items()})
        losses.append(problem.losses(copies[i], {name: value[i : i + 1] for name, value in inputs.items()}))
    flat = [value for copy in copies for value in copy.values()]
    gradients = tf.gradients(losses, flat, unconnected_gradients="zero")
    count = len(problem.parameters)
    stacked = {name: tf.stack(gradients[k::count]) for k, name in enumerate(problem.parameters)}
    session = problem.session()

    return lambda batch: session.run(stacked, problem.feed(inputs, batch))
