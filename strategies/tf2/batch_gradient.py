from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="tf2",
    quantity="weighted_sum",
    source="the chain rule: sum of a_i g_i = gradient of sum of a_i L_i",
    full_only=True,
)
def batch_gradient(problem: Problem) -> Step:
    """One plain gradient of the weighted loss of the whole batch, in a `tf.function`.

    What a policy-gradient learner needs: each instance's gradient times its advantage, added up. The weights must
    be known before the gradients are; then no row is ever computed.
    """
    import tensorflow as tf

    @tf.function
    def step(batch: Batch) -> Gradients:
        with tf.GradientTape() as tape:
            weighted_loss = tf.reduce_sum(problem.weights * problem.losses(problem.parameters, batch))
        found = tape.gradient(weighted_loss, problem.parameters, unconnected_gradients="zero")
        return {name: tf.convert_to_tensor(value) for name, value in found.items()}  # that of a lookup is sparse

    return step
