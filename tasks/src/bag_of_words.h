// Predictions from the tokens of texts without their order, in closed form: the baseline with which a model's metrics
// are compared. It reads the same rows as the model. A text's class comes from multinomial naive Bayes with one added
// to every count; two texts have one number, the cosine of their tf-idf vectors. Tokens that are not in the training
// examples are ignored. Equal to scikit-learn's MultinomialNB, TfidfVectorizer and GaussianNB with their defaults.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rf/tasks/task.h"

namespace rf::tasks {

// For each example the scores of the classes from the tokens of its first input's text: log p(class) + sum log p(token
// | class). Targets: the class, below `classes`; each has a training example.
std::vector<Scores> naive_bayes(std::span<const Example> train, std::span<const Example> examples, size_t classes);

// For each example the cosine of every input's two texts, in [0, 1]; 0 where one has no known token. Weight of a token:
// its count in the text times 1 + ln((1 + n) / (1 + texts that have it)), of the n texts of the training examples: the
// first of an example's first input, and the second of each.
std::vector<Scores> cosines(std::span<const Example> train, std::span<const Example> examples);

// For each number the scores of the classes, log p(class) + log p(number | class), with normally distributed numbers of
// a class. Targets as above; `numbers`: those of the training examples, the first of each.
std::vector<Scores> gaussian_classes(std::span<const Example> train, std::span<const Scores> numbers,
                                     std::span<const Scores> asked, size_t classes);

// For each number the value on the least squares line through the training examples' numbers and Example::number; the
// mean of the latter if the numbers are all the same.
std::vector<Scores> fitted_line(std::span<const Example> train, std::span<const Scores> numbers,
                                std::span<const Scores> asked);

}  // namespace rf::tasks
