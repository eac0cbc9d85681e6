import numpy as np

from harness import Batch, Gradients, Parameters, Problem, Step, strategy
from tests.planted.base import instance


@strategy(framework="numpy")
def broadcast(problem: Problem) -> Step:
    """(N, 1) logits against (N,) labels: every instance is paired with every label."""
    from autograd import grad

    def paired_with_every_label(parameters: Parameters, one: Batch, batch: Batch) -> float:
        size = problem.batch_size
        repeated = {"observation": np.repeat(one["observation"][None], size, axis=0), "uniform": batch["uniform"]}
        return problem.losses(parameters, repeated).mean()

    row = grad(paired_with_every_label)

    def step(batch: Batch) -> Gradients:
        return [row(problem.parameters, instance(batch, i), batch) for i in range(problem.batch_size)]

    return step
