from pergrad import Batch, Gradients, Parameters, Problem, Step, strategy


@strategy(framework="jax", source="JAX documentation of jax.lax.scan", full_only=True)
def scan(problem: Problem) -> Step:
    """`lax.scan` over the instances, two per iteration: a compiled loop, written out.

    The same loop as `lax.map`, partly unrolled, and with a carry at hand: whoever needs the sum of clipped
    gradients can accumulate it here and never hold all rows.
    """
    import jax

    @jax.jit
    def gradients(parameters: Parameters, batch: Batch) -> Gradients:
        def body(carry: None, instance: Batch) -> tuple[None, Gradients]:
            return carry, jax.grad(problem.loss)(parameters, instance)

        return jax.lax.scan(body, None, batch, unroll=2)[1]

    return lambda batch: gradients(problem.parameters, batch)
