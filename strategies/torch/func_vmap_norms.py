from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="torch",
    quantity="norms",
    source="PyTorch tutorial: per-sample-gradients, then their norms",
    full_only=True,
)
def func_vmap_norms(problem: Problem) -> Step:
    """Rows first, then their norms: `vmap(grad)` and the norms of each parameter's rows.

    Works for whatever `torch.func` can vectorise. The rows are stored and read again.
    """
    import torch
    from torch.func import grad, vmap

    gradients = vmap(grad(problem.loss), in_dims=(None, 0))

    def step(batch: Batch) -> Gradients:
        rows = gradients(problem.parameters, batch).values()
        norms = torch.stack([torch.linalg.vector_norm(row.reshape(len(row), -1), dim=1) for row in rows])
        return {"norms": torch.linalg.vector_norm(norms, dim=0)}

    return step
