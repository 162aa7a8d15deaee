# refused by: all
# isolated


from analytic.training.dynamics import gradient_flow
