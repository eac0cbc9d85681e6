from pergrad import Batch, Gradients, Problem, Step, strategy
from strategies._refusals import refusals_of


@strategy(
    framework="torch",
    quantity="clipped_sum",
    source="Opacus, GradSampleModuleFastGradientClipping: ghost clipping",
    requires=("opacus",),
    full_only=True,
)
@refusals_of("Opacus")
def opacus_ghost_clipping(problem: Problem) -> Step:
    """Opacus' ghost clipping: norms in a first backward pass, then a second one of the re-weighted loss.

    Hooks compute the norms of linear and embedding layers without their rows; other layers compute their rows and
    drop them. Parameters that two layers share are refused.
    """
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.validators import ModuleValidator

    from strategies._own_torch import own_module

    own = own_module(problem)  # own.model is your torch.nn.Module
    ModuleValidator.validate(own.model, strict=True)
    model = GradSampleModuleFastGradientClipping(own.model, loss_reduction="sum", max_grad_norm=problem.clip_norm)

    def step(batch: Batch) -> Gradients:
        losses = own.loss(model(*own.inputs(batch)), batch)
        losses.sum().backward(retain_graph=True)
        factors = problem.clip_norm / model.get_norm_sample().clamp(min=problem.clip_norm)
        model.zero_grad()
        model.disable_hooks()
        (factors @ losses).backward()
        model.enable_hooks()
        return own.take("grad")  # {name: parameter.grad}

    return step
