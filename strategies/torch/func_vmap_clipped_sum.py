from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="torch",
    quantity="clipped_sum",
    source="M. Abadi et al., arXiv 1607.00133: DP-SGD, with vmap",
    full_only=True,
)
def func_vmap_clipped_sum(problem: Problem) -> Step:
    """Rows first, then their norms, then the sum of the clipped rows.

    Works for whatever `torch.func` can vectorise. The rows are stored and read twice.
    """
    import torch
    from torch.func import grad, vmap

    gradients = vmap(grad(problem.loss), in_dims=(None, 0))

    def step(batch: Batch) -> Gradients:
        rows = gradients(problem.parameters, batch)
        norms = torch.stack([torch.linalg.vector_norm(row.reshape(len(row), -1), dim=1) for row in rows.values()])
        factors = problem.clip_norm / torch.linalg.vector_norm(norms, dim=0).clamp(min=problem.clip_norm)
        return {name: torch.tensordot(factors, row, 1) for name, row in rows.items()}

    return step
