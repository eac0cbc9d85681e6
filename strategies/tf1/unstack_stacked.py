from pergrad import GraphProblem, Step, strategy


@strategy(framework="tf1", source="second answer to the question, with tf.stack before the fetch", full_only=True)
def unstack_stacked(problem: GraphProblem) -> Step:
    """Like `unstack`, but the B gradients of each parameter are stacked in the graph before they are fetched.

    The run fetches one array per parameter instead of B, which is most of what `unstack` spends at run time. The
    graph still grows with the square of B, and building it takes as long. How long a run takes without its
    fetch is recorded.
    """
    import tensorflow.compat.v1 as tf

    inputs = problem.placeholders(problem.batch_size)
    losses = tf.unstack(problem.losses(problem.parameters, inputs), num=problem.batch_size)
    variables = list(problem.parameters.values())
    gradients = [tf.gradients(loss, variables, unconnected_gradients="zero") for loss in losses]
    stacked = {name: tf.stack(rows) for name, rows in zip(problem.parameters, zip(*gradients))}
    session = problem.session(stacked, inputs)

    return lambda batch: session.run(stacked, problem.feed(inputs, batch))
