from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="torch",
    quantity="clipped_sum",
    source="I. Goodfellow, arXiv 1510.01799; rows by layer rules, then clipped and added up",
    full_only=True,
)
def layer_rules_clipped_sum(problem: Problem) -> Step:
    """Rows by layer rules first, then their norms, then the sum of the clipped rows.

    The rows are written once and read twice. Every parameter must belong to a layer with a rule.
    """
    import torch

    from strategies._rows_torch import Rows

    rows = Rows(problem)

    def step(batch: Batch) -> Gradients:
        found = rows.of(batch)
        norms = torch.stack([torch.linalg.vector_norm(row.reshape(len(row), -1), dim=1) for row in found.values()])
        factors = problem.clip_norm / torch.linalg.vector_norm(norms, dim=0).clamp(min=problem.clip_norm)
        return {name: torch.tensordot(factors, row, 1) for name, row in found.items()}

    return step
