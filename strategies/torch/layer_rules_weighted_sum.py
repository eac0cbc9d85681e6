from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="torch",
    quantity="weighted_sum",
    source="I. Goodfellow, arXiv 1510.01799; rows by layer rules, then a sum",
    full_only=True,
)
def layer_rules_weighted_sum(problem: Problem) -> Step:
    """Rows by layer rules first, then their weighted sum: for weights that depend on the rows.

    If the weights are known before, one backward pass of the weighted loss gives the same. Every parameter must
    belong to a layer with a rule.
    """
    import torch

    from strategies._rows_torch import Rows

    rows = Rows(problem)

    def step(batch: Batch) -> Gradients:
        return {name: torch.tensordot(problem.weights, row, 1) for name, row in rows.of(batch).items()}

    return step
