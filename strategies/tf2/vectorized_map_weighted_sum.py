from pergrad import Batch, Gradients, Parameters, Problem, Step, strategy


@strategy(
    framework="tf2",
    quantity="weighted_sum",
    source="TensorFlow documentation of tf.vectorized_map, then a sum",
    full_only=True,
)
def vectorized_map_weighted_sum(problem: Problem) -> Step:
    """Rows first, then their weighted sum: `tf.vectorized_map` and a product with the weights.

    Works for weights that depend on the rows. Otherwise all rows are computed only to be added up.
    """
    import tensorflow as tf

    def gradient(instance: Batch) -> Parameters:
        with tf.GradientTape() as tape:
            loss = problem.loss(problem.parameters, instance)
        found = tape.gradient(loss, problem.parameters, unconnected_gradients="zero")
        return {name: tf.convert_to_tensor(value) for name, value in found.items()}  # that of a lookup is sparse

    @tf.function
    def step(batch: Batch) -> Gradients:
        rows = tf.vectorized_map(gradient, batch)
        return {name: tf.tensordot(problem.weights, row, 1) for name, row in rows.items()}

    return step
