from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(framework="tf2", source="TensorFlow documentation of tf.vectorized_map: per-example gradients")
def vectorized_map(problem: Problem) -> Step:
    """`tf.vectorized_map` of the gradient of one instance, in a `tf.function`.

    The graph of one instance's gradient is rewritten, operation by operation, into one that works on the whole
    batch. An operation without a rewriting rule becomes a hidden loop over the batch.
    """
    import tensorflow as tf

    def gradient(instance: Batch) -> Gradients:
        with tf.GradientTape() as tape:
            loss = problem.loss(problem.parameters, instance)
        found = tape.gradient(loss, problem.parameters, unconnected_gradients="zero")
        return {name: tf.convert_to_tensor(value) for name, value in found.items()}  # that of a lookup is sparse

    @tf.function
    def step(batch: Batch) -> Gradients:
        return tf.vectorized_map(gradient, batch)

    return step
