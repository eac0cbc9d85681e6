from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(framework="tf2", source="TensorFlow guide: Jacobians, with tf.function(jit_compile=True)", full_only=True)
def jacobian_xla(problem: Problem) -> Step:
    """The Jacobian of the vector of losses, compiled by XLA.

    XLA fuses the many operations of `jacobian` and drops some of the zeros that are propagated, but each loss
    still goes backwards through the whole batch. The first call compiles; every new batch size compiles again.
    """
    import tensorflow as tf

    @tf.function(jit_compile=True)
    def step(batch: Batch) -> Gradients:
        with tf.GradientTape() as tape:
            losses = problem.losses(problem.parameters, batch)
        return tape.jacobian(losses, problem.parameters, unconnected_gradients="zero")

    return step
