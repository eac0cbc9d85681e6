from pergrad import Batch, Gradients, GraphProblem, Step, strategy


@strategy(
    framework="tf1", source="TensorFlow documentation of tf.map_fn: a tf.while_loop over the batch", full_only=True
)
def map_fn(problem: GraphProblem) -> Step:
    """Loop over the instances inside the graph: `tf.map_fn`, which is a `tf.while_loop`, in one `session.run`.

    The graph holds the gradient of one instance, whatever the batch size, and the loop stays in C++. Each
    iteration still schedules every small operation of one instance; a few iterations overlap.
    """
    import tensorflow.compat.v1 as tf

    inputs = problem.placeholders(problem.batch_size)

    def gradient(instance: Batch) -> Gradients:
        loss = problem.loss(problem.parameters, instance)
        variables = list(problem.parameters.values())
        found = tf.gradients(loss, variables, unconnected_gradients="zero")
        return dict(zip(problem.parameters, map(tf.convert_to_tensor, found)))  # that of a lookup is sparse

    dtypes = {name: variable.dtype.base_dtype for name, variable in problem.parameters.items()}
    gradients = tf.map_fn(gradient, inputs, dtypes, back_prop=False)
    session = problem.session()

    return lambda batch: session.run(gradients, problem.feed(inputs, batch))
