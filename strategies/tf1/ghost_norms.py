from pergrad import GraphProblem, Step, strategy


@strategy(
    framework="tf1",
    quantity="norms",
    source="I. Goodfellow, arXiv 1510.01799; X. Li et al., arXiv 2110.05679",
    full_only=True,
    through_ops=True,
)
def ghost_norms(problem: GraphProblem) -> Step:
    """Norms from products of each layer's inputs and cotangents, in one `session.run`, without the rows.

    Where a layer has many positions and few weights its rows cost less than those products and are computed after
    all; so are those of a parameter that two layers share. The rules are in `_norms_tensorflow.py`.
    """
    from strategies._layers_tensorflow import uses
    from strategies._norms_tensorflow import norms

    inputs = problem.placeholders(problem.batch_size)
    result = {"norms": norms(uses(problem, inputs), problem.parameters)}
    session = problem.session()

    return lambda batch: session.run(result, problem.feed(inputs, batch))
