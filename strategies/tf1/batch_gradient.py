from pergrad import GraphProblem, Step, strategy


@strategy(
    framework="tf1", quantity="weighted_sum", source="the chain rule: sum of a_i g_i = gradient of sum of a_i L_i"
)
def batch_gradient(problem: GraphProblem) -> Step:
    """One plain gradient of the weighted loss of the whole batch, in one `session.run`.

    What the question's learner needs: each instance's gradient times its advantage, added up. The weights must be
    known before the gradients are; then no row is ever computed.
    """
    import tensorflow.compat.v1 as tf

    inputs = problem.placeholders(problem.batch_size)
    weighted_loss = tf.reduce_sum(problem.weights * problem.losses(problem.parameters, inputs))
    variables = list(problem.parameters.values())
    found = tf.gradients(weighted_loss, variables, unconnected_gradients="zero")
    gradients = [tf.convert_to_tensor(gradient) for gradient in found]  # that of a lookup is sparse
    run = problem.session().make_callable(gradients, feed_list=list(inputs.values()))

    return lambda batch: dict(zip(problem.parameters, run(*(batch[name] for name in inputs))))
