from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(framework="tf2", source="TensorFlow guide, advanced automatic differentiation: Jacobians")
def jacobian(problem: Problem) -> Step:
    """The Jacobian of the vector of losses with respect to the parameters, in a `tf.function`.

    Each of the B losses is propagated backwards through the whole batch, although it depends on one instance
    only, so the work grows with the square of B.
    """
    import tensorflow as tf

    @tf.function
    def step(batch: Batch) -> Gradients:
        with tf.GradientTape() as tape:
            losses = problem.losses(problem.parameters, batch)
        return tape.jacobian(losses, problem.parameters, unconnected_gradients="zero")

    return step
