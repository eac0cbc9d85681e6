from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="torch",
    quantity="weighted_sum",
    source="PyTorch tutorial: per-sample-gradients, then a sum",
    full_only=True,
)
def func_vmap_weighted_sum(problem: Problem) -> Step:
    """Rows first, then their weighted sum: `vmap(grad)` and a product with the weights.

    Works for weights that depend on the rows. Otherwise all rows are computed only to be added up.
    """
    import torch
    from torch.func import grad, vmap

    gradients = vmap(grad(problem.loss), in_dims=(None, 0))

    def step(batch: Batch) -> Gradients:
        rows = gradients(problem.parameters, batch)
        return {name: torch.tensordot(problem.weights, row, 1) for name, row in rows.items()}

    return step
