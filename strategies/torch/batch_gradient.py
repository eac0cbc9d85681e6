from pergrad import Batch, Gradients, Problem, Step, strategy


@strategy(
    framework="torch", quantity="weighted_sum", source="the chain rule: sum of a_i g_i = gradient of sum of a_i L_i"
)
def batch_gradient(problem: Problem) -> Step:
    """One plain gradient of the weighted loss of the whole batch: `torch.autograd.grad`.

    What a policy-gradient learner needs: each instance's gradient times its advantage, added up. The weights must
    be known before the gradients are; then no row is ever computed.
    """
    import torch

    parameters = {name: value.detach().requires_grad_() for name, value in problem.parameters.items()}

    def step(batch: Batch) -> Gradients:
        weighted_loss = problem.weights @ problem.losses(parameters, batch)
        found = torch.autograd.grad(weighted_loss, list(parameters.values()), materialize_grads=True)
        return dict(zip(parameters, found))

    return step
