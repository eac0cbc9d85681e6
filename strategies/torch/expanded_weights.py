from pergrad import Batch, Gradients, Problem, Step, strategy
from strategies._refusals import refusals_of


@strategy(framework="torch", source="PyTorch, torch.nn.utils._per_sample_grad: ExpandedWeights", full_only=True)
@refusals_of("ExpandedWeights")
def expanded_weights(problem: Problem) -> Step:
    """PyTorch's ExpandedWeights: weights that compute per-instance gradients when a layer meets them.

    A tensor subclass stands in for every parameter and has a backward rule for each kind of layer it knows:
    linear, convolution, embedding and normalisation. A private part of PyTorch.
    """
    from torch.nn.utils._per_sample_grad import call_for_per_sample_grads

    from strategies._own_torch import own_module

    own = own_module(problem)  # own.model is your torch.nn.Module
    model = call_for_per_sample_grads(own.model, batch_size=problem.batch_size, loss_reduction="sum")

    def step(batch: Batch) -> Gradients:
        own.loss(model(*own.inputs(batch)), batch).sum().backward()
        return own.take("grad_sample")  # {name: parameter.grad_sample}

    return step
