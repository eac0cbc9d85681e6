from pergrad import Batch, Gradients, GraphProblem, Step, strategy


@strategy(framework="tf1", source="the question: one session.run per observation", loop=True)
def session_loop(problem: GraphProblem) -> Step:
    """One `session.run` per instance: how the question computed its gradients.

    The graph holds the gradient of one instance. It is built once and run B times; each run pays TensorFlow's
    fixed cost of feeding, scheduling and fetching, some hundreds of microseconds, however small the network.
    """
    import tensorflow.compat.v1 as tf

    instance = problem.placeholders(batch_size=1)
    loss = problem.losses(problem.parameters, instance)
    variables = list(problem.parameters.values())
    found = tf.gradients(loss, variables, unconnected_gradients="zero")
    gradients = dict(zip(problem.parameters, map(tf.convert_to_tensor, found)))  # that of a lookup is sparse
    session = problem.session()

    def step(batch: Batch) -> Gradients:
        return [session.run(gradients, feed) for feed in problem.feeds(instance, batch)]

    return step
