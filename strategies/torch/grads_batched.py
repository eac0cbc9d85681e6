from pergrad import Array, Batch, Gradients, Problem, Step, strategy


@strategy(framework="torch", source="PyTorch documentation of torch.autograd.grad: is_grads_batched", full_only=True)
def grads_batched(problem: Problem) -> Step:
    """One forward pass, then `autograd.grad` with `is_grads_batched` for all B losses at once.

    A vectorised Jacobian of code that is not written for `torch.func`. The B rows of an identity matrix go
    backwards through the whole batch, so the work grows with the square of B.
    """
    import torch

    parameters = {name: value.detach().requires_grad_() for name, value in problem.parameters.items()}

    def rows_or_zeros(rows: Array, value: Array) -> Array:  # materialize_grads would forget the axis of the instances
        return value.new_zeros((problem.batch_size, *value.shape)) if rows is None else rows

    def step(batch: Batch) -> Gradients:
        losses = problem.losses(parameters, batch)
        one_each = torch.eye(problem.batch_size, dtype=losses.dtype, device=losses.device)
        values = list(parameters.values())
        found = torch.autograd.grad(losses, values, one_each, is_grads_batched=True, allow_unused=True)
        return {name: rows_or_zeros(rows, parameters[name]) for name, rows in zip(parameters, found)}

    return step
