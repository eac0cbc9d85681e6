from pergrad import Batch, Gradients, Problem, Step, strategy
from strategies._refusals import refusals_of


@strategy(framework="torch", source="Opacus, GradSampleModule: force_functorch", requires=("opacus",), full_only=True)
@refusals_of("Opacus")
def opacus_functorch(problem: Problem) -> Step:
    """Opacus in functorch mode: its hooks, with `vmap(grad)` of each layer instead of hand-written rules.

    Works for layers that Opacus has no rule for, as long as `torch.func` can vectorise them. Every layer's
    forward pass runs a second time.
    """
    from opacus import GradSampleModule
    from opacus.validators import ModuleValidator

    from strategies._own_torch import own_module

    own = own_module(problem)  # own.model is your torch.nn.Module
    ModuleValidator.validate(own.model, strict=True)
    model = GradSampleModule(own.model, batch_first=True, loss_reduction="sum", force_functorch=True)

    def step(batch: Batch) -> Gradients:
        own.loss(model(*own.inputs(batch)), batch).sum().backward()
        return own.take("grad_sample")  # {name: parameter.grad_sample}

    return step
