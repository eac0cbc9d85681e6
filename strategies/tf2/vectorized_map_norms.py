from pergrad import Batch, Gradients, Parameters, Problem, Step, strategy


@strategy(
    framework="tf2",
    quantity="norms",
    source="TensorFlow documentation of tf.vectorized_map, then norms",
    full_only=True,
)
def vectorized_map_norms(problem: Problem) -> Step:
    """Rows first, then their norms: `tf.vectorized_map` and a sum of squares.

    Works for every network, though some of its operations become a hidden loop. The rows are stored and read again.
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
        squares = [tf.reduce_sum(tf.square(row), tuple(range(1, row.shape.rank))) for row in rows.values()]
        return {"norms": tf.sqrt(tf.add_n(squares))}

    return step
