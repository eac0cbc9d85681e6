from pergrad import Batch, Gradients, Parameters, Problem, Step, strategy


@strategy(
    framework="jax",
    quantity="norms",
    source="I. Goodfellow, arXiv 1510.01799; rows by layer rules, then their norms",
    full_only=True,
    through_ops=True,
)
def layer_rules_norms(problem: Problem) -> Step:
    """Rows by layer rules, and the sum of their squares, in one program.

    The compiler may fuse the squares into the rows, which are then never stored. Every parameter must belong to a layer
    with a rule.
    """
    import jax
    import jax.numpy as jnp

    from strategies._layers_jax import rows_of

    @jax.jit
    def norms(parameters: Parameters, batch: Batch) -> Gradients:
        rows = rows_of(problem, parameters, batch).values()
        return {"norms": jnp.sqrt(sum(jnp.square(row.reshape(len(row), -1)).sum(1) for row in rows))}

    return lambda batch: norms(problem.parameters, batch)
