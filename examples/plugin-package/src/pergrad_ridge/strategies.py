"""Two ways to get the rows of a linear model: a formula in NumPy, and what PyTorch has for every model."""

from harness import Batch, Gradients, Problem, Step, Unsupported, strategy


@strategy(framework="numpy", source="the normal equations, one term per instance", interface=1)
def residuals(problem: Problem) -> Step:
    """Each row is twice the residual times the input: no differentiation at all.

    Works for a linear model with squared loss only, and says so for everything else.
    """
    if set(problem.parameters) != {"weight", "bias"} or set(problem.example) != {"x", "y"}:
        raise Unsupported("only a linear model with squared loss: parameters weight and bias, inputs x and y")
    weight, bias = problem.parameters["weight"], problem.parameters["bias"]

    def step(batch: Batch) -> Gradients:
        residual = 2 * ((batch["x"] @ weight)[:, 0] + bias - batch["y"])
        return {"weight": (batch["x"] * residual[:, None])[:, :, None], "bias": residual[:, None]}

    return step


@strategy(framework="torch", source="PyTorch tutorial: per-sample-gradients", interface=1)
def vmap_of_losses(problem: Problem) -> Step:
    """`vmap(grad)` as in `torch/func-vmap`: a framework is imported inside the function, never at the top."""
    from torch.func import grad, vmap

    gradients = vmap(grad(problem.loss), in_dims=(None, 0))
    return lambda batch: gradients(problem.parameters, batch)
