"""Distributions, each made by the same expression of torch.distributions and of gt.distributions.

`d` is the module, `t` makes a leaf that requires a gradient. Several parameter shapes stand in one
row where they broadcast.
"""

COVARIANCE = [[2.0, 0.5, 0.1], [0.5, 1.0, 0.3], [0.1, 0.3, 1.5]]
TRIANGLE = [[1.2, 0.0, 0.0], [0.3, 0.8, 0.0], [-0.4, 0.2, 1.1]]
ROWS = [[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]]

CONTINUOUS = {
    "normal": lambda d, t: d.Normal(t([[0.3], [-1.0]]), t([1.5, 0.2, 3.0])),
    "normal of numbers": lambda d, t: d.Normal(0.5, 2),
    "laplace": lambda d, t: d.Laplace(t([0.3, -1.0]), t([1.5, 0.2])),
    "uniform": lambda d, t: d.Uniform(t([-1.0, 0.5]), t([2.0])),
    "exponential": lambda d, t: d.Exponential(t([0.5, 2.0, 7.0])),
    "gamma": lambda d, t: d.Gamma(t([0.4, 1.0, 3.0, 40.0]), t([2.0])),
    "gamma of numbers": lambda d, t: d.Gamma(0.7, 2.0),
    "beta": lambda d, t: d.Beta(t([[0.5, 2.0]]), t([[3.0], [0.7]])),
    "beta of numbers": lambda d, t: d.Beta(2, 3.0),
}
VECTORS = {
    "dirichlet": lambda d, t: d.Dirichlet(t([[0.5, 2.0, 3.0], [0.3, 0.2, 0.9]])),
    "multivariate normal": lambda d, t: d.MultivariateNormal(t([0.1, 0.2, -1.0]), t(COVARIANCE)),
    "multivariate normal of a factor": lambda d, t: d.MultivariateNormal(
        t([[0.1, 0.2, -1.0], [0.0, 0.5, 1.0]]), scale_tril=t(TRIANGLE)
    ),
    "multivariate normal of a precision": lambda d, t: d.MultivariateNormal(
        t([0.1, 0.2, -1.0]), precision_matrix=t([COVARIANCE, COVARIANCE])
    ),
    "independent": lambda d, t: d.Independent(
        d.Normal(t([[0.3, 1.0], [-1.0, 0.0]]), t([1.5, 0.2])), 1
    ),
}
DISCRETE = {
    "bernoulli": lambda d, t: d.Bernoulli(t([0.2, 0.5, 0.9])),
    "bernoulli of logits": lambda d, t: d.Bernoulli(logits=t([[0.2], [-1.0]])),
    "bernoulli of a number": lambda d, t: d.Bernoulli(0.3),
    "categorical": lambda d, t: d.Categorical(t(ROWS)),
    "categorical of logits": lambda d, t: d.Categorical(logits=t([[0.3, -1.0, 2.0]])),
    "one hot": lambda d, t: d.OneHotCategorical(t(ROWS)),
    "one hot straight through": lambda d, t: d.OneHotCategoricalStraightThrough(logits=t(ROWS)),
    "poisson": lambda d, t: d.Poisson(t([0.5, 4.0, 30.0])),
    "binomial": lambda d, t: d.Binomial(5, t([[0.2], [0.7]])),
    "binomial of logits": lambda d, t: d.Binomial(t([3.0, 40.0]).detach(), logits=t([0.2, -0.7])),
}
EVERY = {**CONTINUOUS, **VECTORS, **DISCRETE}

# A wrong argument of each: the same class and text.
WRONG = {
    "scale": lambda d, t: d.Normal(t([0.0, 1.0]), t([1.0, -1.0])),
    "a parameter that is NaN": lambda d, t: d.Normal(t([float("nan")]), t([1.0])),
    "ends": lambda d, t: d.Uniform(t([2.0]), t([1.0])),
    "rate": lambda d, t: d.Exponential(t([0.0])),
    "concentration": lambda d, t: d.Dirichlet(t([1.0, -1.0])),
    "a concentration without dimensions": lambda d, t: d.Dirichlet(t(1.0)),
    "probability": lambda d, t: d.Bernoulli(t([1.5])),
    "both": lambda d, t: d.Bernoulli(0.5, 0.5),
    "none": lambda d, t: d.Categorical(),
    "a logit without dimensions": lambda d, t: d.Categorical(logits=t(1.0)),
    "a negative probability": lambda d, t: d.Categorical(t([-1.0, 1.5])),
    "count": lambda d, t: d.Binomial(t([-1.0]), t([0.5])),
    "a covariance that is none": lambda d, t: d.MultivariateNormal(
        t([0.0, 0.0]), t([[1.0, 2.0], [2.0, 1.0]])
    ),
    "a covariance that is not symmetric": lambda d, t: d.MultivariateNormal(
        t([0.0, 0.0]), t([[1.0, 0.5], [0.0, 1.0]])
    ),
    "two matrices": lambda d, t: d.MultivariateNormal(
        t([0.0]), t([[1.0]]), precision_matrix=t([[1.0]])
    ),
    "a vector for a matrix": lambda d, t: d.MultivariateNormal(t([0.0]), scale_tril=t([1.0])),
    "mean without dimensions": lambda d, t: d.MultivariateNormal(t(0.0), t([[1.0]])),
    "too many dimensions": lambda d, t: d.Independent(d.Normal(0.0, 1.0), 1),
    "a word": lambda d, t: d.Normal("a", 1.0),
    "a value outside": lambda d, t: d.Uniform(0.0, 1.0).log_prob(t(3.0)),
    "a value that does not broadcast": lambda d, t: d.Normal(t([0.0, 1.0]), 1.0).log_prob(
        t([1.0, 2.0, 3.0])
    ),
    "an event of another shape": lambda d, t: d.Dirichlet(t([1.0, 1.0])).log_prob(t([0.2] * 5)),
    "no tensor": lambda d, t: d.Normal(0.0, 1.0).log_prob(1.0),
    "counts that differ": lambda d, t: d.Binomial(t([1.0, 2.0]), t([0.5])).entropy(),
    "no formula": lambda d, t: d.kl_divergence(d.Normal(0.0, 1.0), d.Poisson(1.0)),
    "other lengths": lambda d, t: d.kl_divergence(
        d.MultivariateNormal(t([0.0]), t([[1.0]])),
        d.MultivariateNormal(t([0.0, 0.0]), t([[1.0, 0.0], [0.0, 1.0]])),
    ),
    "other counts": lambda d, t: d.kl_divergence(d.Binomial(2, t([0.5])), d.Binomial(3, t([0.5]))),
    "other families": lambda d, t: d.kl_divergence(d.Normal(0.0, 1.0), d.Dirichlet(t([1.0, 1.0]))),
    "cartesian": lambda d, t: d.Independent(d.Bernoulli(t([0.5])), 1).enumerate_support(),
}

# Divergences: pairs of classes that are registered -> what stands for them.
PAIRS = {
    "Normal": lambda d, t: d.Normal(t([0.3, -1.0]), t([1.5, 0.2])),
    "Laplace": lambda d, t: d.Laplace(t([0.1, 2.0]), t([0.5, 1.2])),
    "Uniform": lambda d, t: d.Uniform(t([0.1, 0.25]), t([0.9, 0.8])),
    "Exponential": lambda d, t: d.Exponential(t([0.5, 2.0])),
    "Gamma": lambda d, t: d.Gamma(t([0.4, 3.0]), t([2.0, 0.7])),
    "Beta": lambda d, t: d.Beta(t([0.5, 2.0]), t([3.0, 0.7])),
    "Dirichlet": lambda d, t: d.Dirichlet(t([[0.5, 2.0, 3.0], [0.3, 0.2, 0.9]])),
    "Bernoulli": lambda d, t: d.Bernoulli(t([0.2, 0.9])),
    "Categorical": lambda d, t: d.Categorical(t(ROWS)),
    "OneHotCategorical": lambda d, t: d.OneHotCategorical(t(ROWS)),
    "Binomial": lambda d, t: d.Binomial(5, t([0.2, 0.7])),
    "Poisson": lambda d, t: d.Poisson(t([0.5, 4.0])),
    "MultivariateNormal": lambda d, t: d.MultivariateNormal(
        t([[0.1, 0.2, -1.0], [0.0, 0.5, 1.0]]), t(COVARIANCE)
    ),
    "Independent": lambda d, t: d.Independent(d.Normal(t([[0.3, -1.0]]), t([1.5, 0.2])), 1),
}
# A second one, so that no divergence is zero: what is subtracted from each parameter's share.
OTHER = {
    "Normal": lambda d, t: d.Normal(t([0.0, 0.5]), t([0.7, 1.2])),
    "Laplace": lambda d, t: d.Laplace(t([1.1, 1.0]), t([0.9, 0.2])),
    "Uniform": lambda d, t: d.Uniform(t([-0.1, 0.5]), t([1.3, 0.7])),
    "Exponential": lambda d, t: d.Exponential(t([1.5, 0.4])),
    "Gamma": lambda d, t: d.Gamma(t([1.4, 2.0]), t([0.5, 1.7])),
    "Beta": lambda d, t: d.Beta(t([1.5, 0.6]), t([2.0, 1.7])),
    "Dirichlet": lambda d, t: d.Dirichlet(t([1.5, 0.4, 2.0])),
    "Bernoulli": lambda d, t: d.Bernoulli(t([0.6, 1.0])),
    "Categorical": lambda d, t: d.Categorical(t([[0.3, 0.3, 0.4], [0.0, 0.5, 0.5]])),
    "OneHotCategorical": lambda d, t: d.OneHotCategorical(t([0.3, 0.3, 0.4])),
    "Binomial": lambda d, t: d.Binomial(t([5.0, 4.0]).detach(), t([0.5, 0.5])),
    "Poisson": lambda d, t: d.Poisson(t([1.5, 0.4])),
    "MultivariateNormal": lambda d, t: d.MultivariateNormal(
        t([0.5, 0.0, 0.0]), scale_tril=t(TRIANGLE)
    ),
    "Independent": lambda d, t: d.Independent(d.Normal(t([[0.0, 0.5]]), t([0.7, 1.2])), 1),
}
