from pergrad import GraphProblem, Step, strategy


@strategy(framework="tf1", source="where the idea comes from")
def my_idea(problem: GraphProblem) -> Step:
    """One `session.run` per instance: start here, and say what your idea is."""
    import tensorflow.compat.v1 as tf

    instance, parameters = problem.placeholders(batch_size=1), dict(problem.parameters)
    rows = tf.gradients(problem.losses(parameters, instance), [*parameters.values()], unconnected_gradients="zero")
    gradients, session = dict(zip(parameters, rows)), problem.session()
    return lambda batch: [session.run(gradients, feed) for feed in problem.feeds(instance, batch)]
