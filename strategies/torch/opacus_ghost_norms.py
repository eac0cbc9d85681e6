from pergrad import Batch, Gradients, Problem, Step, strategy
from strategies._refusals import refusals_of


@strategy(
    framework="torch",
    quantity="norms",
    source="Opacus, GradSampleModuleFastGradientClipping: get_norm_sample",
    requires=("opacus",),
    full_only=True,
)
@refusals_of("Opacus")
def opacus_ghost_norms(problem: Problem) -> Step:
    """Opacus in ghost mode: hooks compute the norms of linear and embedding layers without their rows.

    Other layers, convolutions among them, compute their rows and drop them. Parameters that two layers share are
    refused. The gradient of the batch is computed as well.
    """
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.validators import ModuleValidator

    from strategies._own_torch import own_module

    own = own_module(problem)  # own.model is your torch.nn.Module
    ModuleValidator.validate(own.model, strict=True)
    model = GradSampleModuleFastGradientClipping(own.model, loss_reduction="sum", max_grad_norm=problem.clip_norm)

    def step(batch: Batch) -> Gradients:
        own.loss(model(*own.inputs(batch)), batch).sum().backward()
        model.zero_grad()
        return {"norms": model.get_norm_sample()}

    return step
