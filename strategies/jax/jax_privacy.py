from pergrad import Problem, Step, strategy


@strategy(
    framework="jax",
    quantity="clipped_sum",
    source="Google DeepMind, JAX Privacy: jax_privacy.clipped_grad",
    requires=("jax_privacy",),
    full_only=True,
)
def jax_privacy(problem: Problem) -> Step:
    """JAX Privacy's `clipped_grad`: `vmap` of the gradient and of its clipping, then the sum, compiled by `jit`.

    What is not finite becomes 0 before it is clipped, which its guarantee needs and which is a part of the time.
    Nothing is taken in microbatches.
    """
    import jax
    from jax_privacy import clipped_grad

    total = jax.jit(clipped_grad(problem.loss, batch_argnums=1, keep_batch_dim=False, l2_clip_norm=problem.clip_norm))
    return lambda batch: total(problem.parameters, batch)
