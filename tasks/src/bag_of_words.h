// Closed-form predictions from the tokens of texts without their order: the baseline for a model's metrics. It reads
// the same rows as the model. Multinomial naive Bayes with one added to every count predicts the class of a text. For
// two texts, the prediction uses the cosine of their tf-idf vectors. Tokens outside the training examples are ignored.
// Equal to scikit-learn's MultinomialNB, TfidfVectorizer and GaussianNB with their defaults.
#pragma once

#include <span>
#include <vector>

#include "rf/tasks/task.h"

namespace rf::tasks {

// For each example, the scores of the classes from the tokens of its first input's text: log p(class) + sum log p(token
// | class). Targets: the class, below `classes`; each class has a training example.
std::vector<Scores> naive_bayes(std::span<const Example> train, std::span<const Example> examples, size_t classes);

// For each example, the cosine of the two texts of every input, in [0, 1]; 0 if a text contains only unknown
// tokens. Weight of a token: its count in the text times 1 + ln((1 + n) / (1 + texts that contain it)). The n texts are
// the first text of each training example's first input, and the second text of each input.
std::vector<Scores> cosines(std::span<const Example> train, std::span<const Example> examples);

// For each number, the scores of the classes, log p(class) + log p(number | class), with normally distributed numbers
// in each class. Targets as above; `numbers`: from the training examples, the first of each.
std::vector<Scores> gaussian_classes(std::span<const Example> train, std::span<const Scores> numbers,
                                     std::span<const Scores> asked, size_t classes);

// For each number, the value on the least squares line through the training examples' numbers and Example::number; the
// mean of the latter if all numbers are equal.
std::vector<Scores> fitted_line(std::span<const Example> train, std::span<const Scores> numbers,
                                std::span<const Scores> asked);

}  // namespace rf::tasks
