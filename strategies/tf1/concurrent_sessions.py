from pergrad import Batch, Gradients, GraphProblem, Step, strategy


@strategy(framework="tf1", source="first answer to the question: concurrent steps on one session")
def concurrent_sessions(problem: GraphProblem) -> Step:
    """The loop of `session.run`, with several runs in flight at once on one session.

    One thread per available core takes the next instance and runs it; the threads share the session and its
    graph, which must be complete before. What a step costs outside Python can overlap; what it costs inside
    Python cannot, because of the interpreter lock. The number of threads is recorded with the result.
    """
    import os
    from concurrent.futures import ThreadPoolExecutor

    import tensorflow.compat.v1 as tf

    instance = problem.placeholders(batch_size=1)
    loss = problem.losses(problem.parameters, instance)
    variables = list(problem.parameters.values())
    found = tf.gradients(loss, variables, unconnected_gradients="zero")
    gradients = dict(zip(problem.parameters, map(tf.convert_to_tensor, found)))  # that of a lookup is sparse
    session = problem.session()

    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    problem.facts["threads"] = threads
    pool = ThreadPoolExecutor(threads)

    def step(batch: Batch) -> Gradients:
        return list(pool.map(lambda feed: session.run(gradients, feed), problem.feeds(instance, batch)))

    return step
