from pergrad import GraphProblem, Step, strategy


@strategy(framework="tf1", source="second answer to the question: tf.unstack of a batch of fixed size")
def unstack(problem: GraphProblem) -> Step:
    """Unstack the losses of a batch of fixed size and ask for B gradients in one `session.run`.

    One run instead of B. But every instance gets its own copy of the backward graph, and the gradient of
    `unstack` pads the other B-1 entries with zeros, so the graph grows with the square of B: building it takes
    seconds at B=64 and minutes at B=256. The run fetches B small arrays for every parameter.
    How long a run takes without its fetch is recorded.
    """
    import tensorflow.compat.v1 as tf

    inputs = problem.placeholders(problem.batch_size)
    losses = tf.unstack(problem.losses(problem.parameters, inputs), num=problem.batch_size)
    variables = list(problem.parameters.values())
    found = [tf.gradients(loss, variables, unconnected_gradients="zero") for loss in losses]
    # The gradient of a lookup is sparse until it is converted.
    gradients = [dict(zip(problem.parameters, map(tf.convert_to_tensor, row))) for row in found]
    session = problem.session(gradients, inputs)

    return lambda batch: session.run(gradients, problem.feed(inputs, batch))
