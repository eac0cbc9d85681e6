from pergrad import Problem, Step, strategy


@strategy(
    framework="jax",
    quantity="clipped_sum",
    source="Z. Bu et al., arXiv 2210.00038: book-keeping, read off the program of `vmap(grad)`",
    full_only=True,
)
def factored_clipped_sum(problem: Problem) -> Step:
    """Norms from the factors of the rows, then one product for the batch: any loss, one backward pass.

    The factors are read off the program of `vmap(grad)`; those that gave the norms, scaled, give the sum.
    """
    import jax

    from pergrad.jax import per_instance

    clipped_sum = jax.jit(per_instance(problem.loss, "clipped_sum", clip_norm=problem.clip_norm))
    return lambda batch: clipped_sum(problem.parameters, batch)
