from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(framework="jax", source="JAX documentation: jax.grad, in a Python loop", full_only=True)
def grad_loop_without_jit(problem: Problem) -> Step:
    """One call of `grad` per instance, in a Python loop, nothing compiled.

    The slowest way, and the only one in JAX that follows Python branches on an instance's values: `grad` alone traces
    with values, `jit` and `vmap` without. Each operation is dispatched by itself.
    """
    import jax

    gradient = jax.grad(problem.loss)

    def step(batch: Batch) -> Gradients:
        instances = ({name: value[i] for name, value in batch.items()} for i in range(problem.batch_size))
        return [gradient(problem.parameters, instance) for instance in instances]

    return step
