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
    "cauchy": lambda d, t: d.Cauchy(t([0.3, -1.0]), t([1.5, 0.2])),
    "chi2": lambda d, t: d.Chi2(t([0.7, 3.0, 9.0])),
    "continuous bernoulli": lambda d, t: d.ContinuousBernoulli(t([0.1, 0.5, 0.4999, 0.9])),
    "continuous bernoulli of logits": lambda d, t: d.ContinuousBernoulli(logits=t([-2.0, 1.0])),
    "fisher snedecor": lambda d, t: d.FisherSnedecor(t([1.5, 5.0, 9.0]), t([7.0, 3.0, 12.0])),
    "generalized pareto": lambda d, t: d.GeneralizedPareto(
        t([0.5, -1.0, 0.0]), t([1.0, 2.0, 0.5]), t([0.3, -0.4, 0.0])
    ),
    "gumbel": lambda d, t: d.Gumbel(t([0.3, -1.0]), t([1.5, 0.2])),
    "half cauchy": lambda d, t: d.HalfCauchy(t([1.5, 0.2])),
    "half normal": lambda d, t: d.HalfNormal(t([1.5, 0.2])),
    "inverse gamma": lambda d, t: d.InverseGamma(t([0.8, 3.0, 5.5]), t([2.0, 0.5, 1.0])),
    "kumaraswamy": lambda d, t: d.Kumaraswamy(t([0.5, 2.0]), t([3.0, 1.7])),
    "log normal": lambda d, t: d.LogNormal(t([0.3, -1.0]), t([0.5, 0.2])),
    "pareto": lambda d, t: d.Pareto(t([0.5, 2.0]), t([1.5, 4.0])),
    "student": lambda d, t: d.StudentT(t([0.9, 1.5, 5.0]), t([0.3]), t([1.5, 0.2, 1.0])),
    "weibull": lambda d, t: d.Weibull(t([0.5, 2.0]), t([1.5, 4.0])),
    "relaxed bernoulli": lambda d, t: d.RelaxedBernoulli(t([0.7]), t([0.2, 0.6])),
    "relaxed bernoulli of logits": lambda d, t: d.RelaxedBernoulli(t([0.7]), logits=t([0.2])),
    "transformed": lambda d, t: d.TransformedDistribution(
        d.Normal(t([0.3, -1.0]), t([1.5, 0.2])),
        [d.AffineTransform(t([[0.5], [1.0]]), -2.0), d.ExpTransform()],
    ),
    "logistic": lambda d, t: d.TransformedDistribution(
        d.Uniform(t([0.0, 0.0]), t([1.0, 1.0])), [d.SigmoidTransform().inv]
    ),
    "mixture": lambda d, t: d.MixtureSameFamily(
        d.Categorical(t(ROWS)),
        d.Normal(t([[0.3, -1.0, 2.0], [0.0, 1.0, 4.0]]), t([1.5, 0.2, 1.0])),
    ),
    "von mises": lambda d, t: d.VonMises(t([0.3, -1.0, 3.0]), t([0.5, 3.0, 40.0])),
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
    "low rank": lambda d, t: d.LowRankMultivariateNormal(
        t([[0.1, 0.2, -1.0], [0.0, 0.5, 1.0]]),
        t([[1.2, 0.5], [0.3, 0.8], [-0.4, 0.2]]),
        t([0.5, 1.0, 0.3]),
    ),
    "logistic normal": lambda d, t: d.LogisticNormal(t([[0.3, 1.0], [-1.0, 0.0]]), t([1.5, 0.2])),
    "relaxed one hot": lambda d, t: d.RelaxedOneHotCategorical(t([0.7]), t(ROWS)),
    "lkj": lambda d, t: d.LKJCholesky(4, t([0.5, 2.0])),
    "lkj of a number": lambda d, t: d.LKJCholesky(3, 1.5),
    "wishart": lambda d, t: d.Wishart(t([4.5, 7.0]), t(COVARIANCE)),
    "wishart of a factor": lambda d, t: d.Wishart(4.0, scale_tril=t(TRIANGLE)),
    "wishart of a precision": lambda d, t: d.Wishart(t(5.0), precision_matrix=t(COVARIANCE)),
    "mixture of vectors": lambda d, t: d.MixtureSameFamily(
        d.Categorical(t([0.3, 0.7])), d.Independent(d.Normal(t([[0.0, 1.0], [3.0, 4.0]]), 1.0), 1)
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
    "geometric": lambda d, t: d.Geometric(t([0.2, 0.5, 0.9])),
    "geometric of logits": lambda d, t: d.Geometric(logits=t([0.2, -1.0])),
    "negative binomial": lambda d, t: d.NegativeBinomial(t([3.5, 6.0]), t([0.2, 0.7])),
    "negative binomial of logits": lambda d, t: d.NegativeBinomial(2, logits=t([0.2, 0.7])),
    "multinomial": lambda d, t: d.Multinomial(5, t(ROWS)),
    "multinomial of logits": lambda d, t: d.Multinomial(3, logits=t([0.3, -1.0, 2.0])),
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
    "probability of zero": lambda d, t: d.Geometric(t([0.5, 0.0])),
    "probability of one": lambda d, t: d.NegativeBinomial(2, t([1.0])),
    "size": lambda d, t: d.LKJCholesky(1),
    "total": lambda d, t: d.Multinomial(t(3.0), t([0.5, 0.5])),
    "rank": lambda d, t: d.LowRankMultivariateNormal(t([0.0]), t([1.0]), t([1.0])),
    "rows": lambda d, t: d.LowRankMultivariateNormal(t([0.0]), t([[1.0], [1.0]]), t([1.0])),
    "diagonal": lambda d, t: d.LowRankMultivariateNormal(t([0.0]), t([[1.0]]), t([1.0, 1.0])),
    "batches": lambda d, t: d.LowRankMultivariateNormal(
        t([[0.0], [0.0]]), t([[[1.0]]] * 3), t([1.0])
    ),
    "no weights": lambda d, t: d.MixtureSameFamily(d.Normal(0.0, 1.0), d.Normal(t([0.0]), 1.0)),
    "no components": lambda d, t: d.MixtureSameFamily(d.Categorical(t([0.5, 0.5])), 1),
    "components": lambda d, t: d.MixtureSameFamily(
        d.Categorical(t([0.5, 0.5])), d.Normal(t([0.0, 1.0, 2.0]), 1.0)
    ),
    "batch of components": lambda d, t: d.MixtureSameFamily(
        d.Categorical(t(ROWS)), d.Normal(t([[0.0, 1.0, 2.0]] * 3), 1.0)
    ),
    "degrees": lambda d, t: d.Wishart(t(1.0), t(COVARIANCE)),
    "no matrix": lambda d, t: d.Wishart(t(4.0)),
    "a matrix without dimensions": lambda d, t: d.Wishart(t(4.0), t([1.0])),
    "no transform": lambda d, t: d.TransformedDistribution(d.Normal(0.0, 1.0), [1]),
    "no list": lambda d, t: d.TransformedDistribution(d.Normal(0.0, 1.0), 1),
    "too few for a transform": lambda d, t: d.TransformedDistribution(
        d.Normal(0.0, 1.0), d.StickBreakingTransform()
    ),
    "cache": lambda d, t: d.ExpTransform(cache_size=2),
    "elements": lambda d, t: d.ReshapeTransform((2,), (3,)),
    "shape": lambda d, t: d.ReshapeTransform((2,), (1, 2)).forward_shape((3,)),
    "triangle": lambda d, t: d.CorrCholeskyTransform().forward_shape((4,)),
    "square": lambda d, t: d.CorrCholeskyTransform().inverse_shape((4, 3)),
    "few": lambda d, t: d.IndependentTransform(d.ExpTransform(), 1)(t(1.0)),
    "slices": lambda d, t: d.StackTransform([d.ExpTransform()], 0)(t([1.0, 2.0])),
    "slice": lambda d, t: d.CatTransform([d.ExpTransform()], 1)(t([1.0])),
    "lengths": lambda d, t: d.CatTransform([d.ExpTransform()], 0, [1, 2]),
    "no way": lambda d, t: d.biject_to(d.constraints.symmetric),
    "no constraint": lambda d, t: d.transform_to.register(1, None)(lambda c: c),
    "a bound of a dependent": lambda d, t: d.constraints.dependent.check(t([1.0])),
    "a cat of other lengths": lambda d, t: d.constraints.cat([d.constraints.real], 0, [1, 2]),
    "an independent of few": lambda d, t: d.constraints.real_vector.check(t(1.0)),
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
    "Cauchy": lambda d, t: d.Cauchy(t([0.3, -1.0]), t([1.5, 0.2])),
    "ContinuousBernoulli": lambda d, t: d.ContinuousBernoulli(t([0.1, 0.7])),
    "Geometric": lambda d, t: d.Geometric(t([0.2, 0.6])),
    "Gumbel": lambda d, t: d.Gumbel(t([0.3, -1.0]), t([1.5, 0.4])),
    "HalfNormal": lambda d, t: d.HalfNormal(t([1.5, 0.2])),
    "LowRankMultivariateNormal": lambda d, t: d.LowRankMultivariateNormal(
        t([[0.1, 0.2, -1.0], [0.0, 0.5, 1.0]]),
        t([[1.2, 0.5], [0.3, 0.8], [-0.4, 0.2]]),
        t([0.5, 1.0, 0.3]),
    ),
    "Pareto": lambda d, t: d.Pareto(t([0.5, 2.0]), t([3.5, 4.0])),
    "TransformedDistribution": lambda d, t: d.LogNormal(t([0.3, -1.0]), t([1.5, 0.2])),
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
    "Cauchy": lambda d, t: d.Cauchy(t([0.0, 0.5]), t([0.7, 1.2])),
    "ContinuousBernoulli": lambda d, t: d.ContinuousBernoulli(t([0.3, 0.9])),
    "Geometric": lambda d, t: d.Geometric(t([0.5, 0.3])),
    "Gumbel": lambda d, t: d.Gumbel(t([0.0, 0.5]), t([0.7, 1.2])),
    "HalfNormal": lambda d, t: d.HalfNormal(t([0.5, 0.4])),
    "LowRankMultivariateNormal": lambda d, t: d.LowRankMultivariateNormal(
        t([0.5, 0.0, 0.0]), t([[0.2], [0.4], [-0.1]]), t([[1.5, 0.7, 0.3], [0.2, 0.9, 1.1]])
    ),
    "Pareto": lambda d, t: d.Pareto(t([0.05, 0.5]), t([1.5, 2.0])),
    "TransformedDistribution": lambda d, t: d.LogNormal(t([0.0, 0.5]), t([0.7, 1.2])),
}

# Transforms, and an argument of each.
NUMBERS = [[0.3, -1.0, 2.0], [0.01, 5.0, -3.0]]
SHARES = [[0.3, 0.1, 0.9], [0.01, 0.5, 0.7]]
TRANSFORMS = {
    "exp": (lambda d, t: d.ExpTransform(), NUMBERS),
    "power": (lambda d, t: d.PowerTransform(t([2.0, -1.0, 0.5])), SHARES),
    "sigmoid": (lambda d, t: d.SigmoidTransform(), NUMBERS),
    "softplus": (lambda d, t: d.SoftplusTransform(), NUMBERS),
    "tanh": (lambda d, t: d.TanhTransform(), NUMBERS),
    "affine": (lambda d, t: d.AffineTransform(t([1.0, 2.0, 3.0]), t([2.0, -1.0, 0.5])), NUMBERS),
    "affine of numbers": (lambda d, t: d.AffineTransform(1.0, -2, event_dim=1), NUMBERS),
    "affine of events": (lambda d, t: d.AffineTransform(0, t([2.0, 3.0, 4.0]), 1), NUMBERS),
    "share": (
        lambda d, t: d.CumulativeDistributionTransform(d.Normal(t([0.5]), t([2.0]))),
        NUMBERS,
    ),
    "softmax": (lambda d, t: d.SoftmaxTransform(), NUMBERS),
    "stick": (lambda d, t: d.StickBreakingTransform(), NUMBERS),
    "correlations": (lambda d, t: d.CorrCholeskyTransform(), NUMBERS),
    "triangle": (lambda d, t: d.LowerCholeskyTransform(), COVARIANCE),
    "definite": (lambda d, t: d.PositiveDefiniteTransform(), COVARIANCE),
    "absolute": (lambda d, t: d.AbsTransform(), SHARES),
    "reshape": (lambda d, t: d.ReshapeTransform((3,), (3, 1)), NUMBERS),
    "independent": (lambda d, t: d.IndependentTransform(d.ExpTransform(), 1), NUMBERS),
    "inverse": (lambda d, t: d.ExpTransform().inv, SHARES),
    "identity": (lambda d, t: d.identity_transform, NUMBERS),
    "composition": (
        lambda d, t: d.ComposeTransform(
            [d.AffineTransform(t([0.5]), -2.0), d.StickBreakingTransform(), d.ExpTransform()]
        ),
        NUMBERS,
    ),
    "cat": (
        lambda d, t: d.CatTransform([d.ExpTransform(), d.AffineTransform(1.0, 2.0)], 1, [1, 2]),
        NUMBERS,
    ),
    "cat of events": (
        lambda d, t: d.CatTransform(
            [d.IndependentTransform(d.ExpTransform(), 1), d.TanhTransform()], -1, [1, 2]
        ),
        NUMBERS,
    ),
    "stack": (lambda d, t: d.StackTransform([d.ExpTransform(), d.TanhTransform()], 0), NUMBERS),
}

# Constraints, and values inside and outside.
LIMITS = {
    "boolean": (lambda c, t: c.boolean, [0.0, 1.0, 0.5]),
    "one hot": (lambda c, t: c.one_hot, [[0.0, 1.0], [1.0, 1.0]]),
    "whole": (lambda c, t: c.nonnegative_integer, [0.0, -1.0, 0.5, 3.0]),
    "whole and positive": (lambda c, t: c.positive_integer, [0.0, 1.0]),
    "interval of integers": (lambda c, t: c.integer_interval(1, 3), [0.0, 1.0, 1.5, 3.0, 4.0]),
    "real": (lambda c, t: c.real, [0.0, float("nan"), float("inf")]),
    "real vector": (lambda c, t: c.real_vector, [[0.0, float("nan")], [1.0, 2.0]]),
    "positive": (lambda c, t: c.positive, [0.0, 1.0]),
    "nonnegative": (lambda c, t: c.nonnegative, [0.0, -1.0]),
    "below": (lambda c, t: c.less_than(2.0), [1.0, 2.0]),
    "unit": (lambda c, t: c.unit_interval, [0.0, 1.0, 1.1]),
    "half open": (lambda c, t: c.half_open_interval(-1.0, 1.0), [-1.0, 1.0]),
    "between": (lambda c, t: c.interval(-1.0, 3.0), [-2.0, 1.0]),
    "above": (lambda c, t: c.greater_than(-1.0), [-2.0, 1.0]),
    "not below": (lambda c, t: c.greater_than_eq(-1.0), [-2.0, -1.0]),
    "simplex": (lambda c, t: c.simplex, [[0.5, 0.5], [0.5, 0.6], [-0.5, 1.5]]),
    "multinomial": (lambda c, t: c.multinomial(3), [[1.0, 2.0], [2.0, 2.0]]),
    "triangle": (lambda c, t: c.lower_triangular, [TRIANGLE, COVARIANCE]),
    "factor": (lambda c, t: c.lower_cholesky, [TRIANGLE, COVARIANCE]),
    "correlations": (lambda c, t: c.corr_cholesky, [[[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.0]] * 2]),
    "square": (lambda c, t: c.square, [TRIANGLE]),
    "symmetric": (lambda c, t: c.symmetric, [TRIANGLE, COVARIANCE]),
    "definite": (lambda c, t: c.positive_definite, [COVARIANCE, [[0.0] * 3] * 3]),
    "semidefinite": (lambda c, t: c.positive_semidefinite, [COVARIANCE, [[0.0] * 3] * 3]),
    "independent": (lambda c, t: c.independent(c.positive, 1), [[0.0, 1.0], [1.0, 1.0]]),
    "cat": (lambda c, t: c.cat([c.positive, c.real], 0, [1, 2]), [-1.0, 0.0, -1.0]),
    "stack": (lambda c, t: c.stack([c.positive, c.real], 0), [[-1.0, 1.0], [0.0, -1.0]]),
    "mixture": (lambda c, t: c.MixtureSameFamilyConstraint(c.positive), [-1.0, 1.0]),
}
