"""Train any model (one network or an ensemble) in discrete steps or in continuous time.

Reading order:

    losses              losses L(f, y) and their cotangents dL/df
    schedules           the learning rate of each step, and the time t
    optimizers          one step on theta with SGD, Nesterov or Adam
    batches             the examples of each step, with random shifts of images
    train               the training loop, a generator of snapshots
    kernel_descent      gradient descent with a frozen kernel
    history             a table of losses and accuracies
    checkpoints         files with the state of a run and a text that identifies the run
    fit                 `train` with evaluation, history, checkpoints and progress
    flow_state          the state of a flow: parameters, or outputs under a frozen kernel
    integrators         the time steps of flows
    flows               gradient, momentum and stochastic flow
"""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach(__name__, ["checkpoints"])  # also available as minintk.checkpoints
