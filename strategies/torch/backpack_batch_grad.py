from pergrad import Batch, Gradients, Problem, Step, Unsupported, strategy
from strategies._refusals import refusals_of


@strategy(
    framework="torch", source="F. Dangel et al., BackPACK: extension BatchGrad", requires=("backpack",), full_only=True
)
@refusals_of("BackPACK")
def backpack_batch_grad(problem: Problem) -> Step:
    """BackPACK's `BatchGrad`: an extension of the backward pass that computes each layer's rows on the way.

    One forward and one backward pass of the whole batch, and a rule per kind of layer. Only modules have
    gradients, and not all of them: there is no rule for layer normalisation, nor for weights used twice.
    """
    from backpack import backpack, extend
    from backpack.extensions import BatchGrad

    from strategies._own_torch import own_module

    own = own_module(problem)  # own.model is your torch.nn.Module
    if twice := own.used_twice(problem.example):  # of shared weights BackPACK would return the rows of one use
        raise Unsupported(f"{', '.join(twice)} is used twice, and BatchGrad keeps the rows of one use")
    model = extend(own.model)

    def step(batch: Batch) -> Gradients:
        with backpack(BatchGrad()):
            own.loss(model(*own.inputs(batch)), batch).sum().backward()
        return own.take("grad_batch")  # {name: parameter.grad_batch}

    return step
