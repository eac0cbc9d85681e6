from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="tf2",
    source="TensorFlow documentation: tf.config.threading.set_inter_op_parallelism_threads",
    environment={"TF_NUM_INTEROP_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"},
    full_only=True,
)
def vectorized_map_one_thread(problem: Problem) -> Step:
    """`vectorized-map` with one thread between operations and within them.

    TensorFlow runs the operations of a graph in a pool of threads. A small network's operations are shorter than
    handing them over. Large ones lose the other cores. The two numbers have to be set before anything is computed:
    `tf.config.threading`, or the variables `TF_NUM_INTEROP_THREADS` and `TF_NUM_INTRAOP_THREADS`.
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
