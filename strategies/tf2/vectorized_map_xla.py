from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(framework="tf2", source="TensorFlow documentation of tf.vectorized_map, with tf.function(jit_compile=True)")
def vectorized_map_xla(problem: Problem) -> Step:
    """`tf.vectorized_map` of the gradient of one instance, compiled by XLA.

    The rewritten graph becomes one fused program. Operations that were rewritten into a hidden loop stay a loop,
    now a compiled one. The first call compiles; every new batch size compiles again.
    """
    import tensorflow as tf

    def gradient(instance: Batch) -> Gradients:
        with tf.GradientTape() as tape:
            loss = problem.loss(problem.parameters, instance)
        found = tape.gradient(loss, problem.parameters, unconnected_gradients="zero")
        return {name: tf.convert_to_tensor(value) for name, value in found.items()}  # that of a lookup is sparse

    @tf.function(jit_compile=True)
    def step(batch: Batch) -> Gradients:
        return tf.vectorized_map(gradient, batch)

    return step
