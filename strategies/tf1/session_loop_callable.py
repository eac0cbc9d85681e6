from pergrad import Batch, Gradients, GraphProblem, Step, strategy


@strategy(framework="tf1", source="TensorFlow documentation of tf.compat.v1.Session.make_callable", full_only=True)
def session_loop_callable(problem: GraphProblem) -> Step:
    """One run per instance through `Session.make_callable`, which prepares feeds and fetches once.

    `session.run` looks up its feeds and fetches anew in every run; a callable does that when it is made. What
    remains per instance is the scheduling of the graph and the conversion of the results to NumPy.
    """
    import tensorflow.compat.v1 as tf

    instance = problem.placeholders(batch_size=1)
    loss = problem.losses(problem.parameters, instance)
    found = tf.gradients(loss, list(problem.parameters.values()), unconnected_gradients="zero")
    gradients = [tf.convert_to_tensor(gradient) for gradient in found]  # that of a lookup is sparse
    run = problem.session().make_callable(gradients, feed_list=list(instance.values()))

    def step(batch: Batch) -> Gradients:
        instances = ([batch[name][i : i + 1] for name in instance] for i in range(problem.batch_size))
        return [dict(zip(problem.parameters, run(*inputs))) for inputs in instances]

    return step
