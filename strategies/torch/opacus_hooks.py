from pergrad import Batch, Gradients, Problem, Step, strategy
from strategies._refusals import refusals_of


@strategy(framework="torch", source="Opacus, GradSampleModule", requires=("opacus",), full_only=True)
@refusals_of("Opacus")
def opacus_hooks(problem: Problem) -> Step:
    """Opacus: hooks on every layer keep its inputs and, backwards, multiply them with its output's cotangents.

    One forward and one backward pass of the whole batch, and a hand-written rule per kind of layer. Only modules
    have gradients, so every parameter must belong to a layer. The gradient of the batch is computed as well.
    """
    from opacus import GradSampleModule
    from opacus.validators import ModuleValidator

    from strategies._own_torch import own_module

    own = own_module(problem)  # own.model is your torch.nn.Module
    ModuleValidator.validate(own.model, strict=True)
    model = GradSampleModule(own.model, batch_first=True, loss_reduction="sum")

    def step(batch: Batch) -> Gradients:
        own.loss(model(*own.inputs(batch)), batch).sum().backward()
        return own.take("grad_sample")  # {name: parameter.grad_sample}

    return step
