from harness import Batch, Gradients, Problem, Step, strategy


@strategy(framework="tf2")
def retraces_in_tensorflow(problem: Problem) -> Step:
    """Traces again at every call, because the `tf.function` is made inside the loop."""
    import tensorflow as tf

    def step(batch: Batch) -> Gradients:
        @tf.function
        def once(batch: Batch) -> Gradients:
            with tf.GradientTape() as tape:
                losses = problem.losses(problem.parameters, batch)
            return tape.jacobian(losses, problem.parameters)

        found: Gradients = once(batch)
        return found

    return step
