from harness import Batch, Gradients, Problem, Step, strategy


@strategy(framework="tf2")
def loops_in_the_graph(problem: Problem) -> Step:
    """Claims to be vectorised and hides a loop in the graph."""
    import tensorflow as tf

    def gradient(instance: Batch) -> Gradients:
        with tf.GradientTape() as tape:
            loss = problem.loss(problem.parameters, instance)
        return tape.gradient(loss, problem.parameters)

    signature = {name: tf.TensorSpec(p.shape, p.dtype) for name, p in problem.parameters.items()}

    @tf.function
    def step(batch: Batch) -> Gradients:
        return tf.map_fn(gradient, batch, fn_output_signature=signature)

    return step
