from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(framework="tf2", source="TensorFlow documentation of tf.map_fn", full_only=True)
def map_fn(problem: Problem) -> Step:
    """`tf.map_fn` of the gradient of one instance, in a `tf.function`: a loop inside the graph.

    Nothing is vectorised: each iteration schedules the small operations of one instance, a few iterations at a
    time. Works for every operation, and memory grows with the rows only.
    """
    import tensorflow as tf

    def gradient(instance: Batch) -> Gradients:
        with tf.GradientTape() as tape:
            loss = problem.loss(problem.parameters, instance)
        found = tape.gradient(loss, problem.parameters, unconnected_gradients="zero")
        return {name: tf.convert_to_tensor(value) for name, value in found.items()}  # that of a lookup is sparse

    signature = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in problem.parameters.items()}

    @tf.function
    def step(batch: Batch) -> Gradients:
        return tf.map_fn(gradient, batch, fn_output_signature=signature)

    return step
