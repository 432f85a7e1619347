// What can be had from the tokens of texts without their order, in closed form: the baseline beside which a model's
// metrics stand. It reads the same rows as the model. A text's class comes from multinomial naive Bayes with one added
// to every count; two texts have one number, the cosine of their tf-idf vectors. Tokens that the training examples lack
// count nothing. As scikit-learn's MultinomialNB, TfidfVectorizer and GaussianNB have it with their defaults.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "task.h"

namespace rf::train {

// For each example its classes' scores by the tokens of its first input's text: log p(class) + sum log p(token |
// class). Targets: the class, below `classes`; each has a training example.
std::vector<Scores> naive_bayes(std::span<const Example> train, std::span<const Example> examples, size_t classes);

// For each example the cosine of every input's two texts, in [0, 1]; 0 where one has no known token. Weight of a token:
// its count in the text times 1 + ln((1 + n) / (1 + texts that have it)), of the n texts of the training examples: the
// first of an example's first input, and the second of each.
std::vector<Scores> cosines(std::span<const Example> train, std::span<const Example> examples);

// For each number its classes' scores, log p(class) + log p(number | class), when a class's numbers are normally
// distributed. Targets as above; `numbers`: of the training examples, the first of each.
std::vector<Scores> gaussian_classes(std::span<const Example> train, std::span<const Scores> numbers,
                                     std::span<const Scores> asked, size_t classes);

// For each number the value on the line that fits the training examples' numbers to their Example::number best (least
// squares); their mean where the numbers are all the same.
std::vector<Scores> fitted_line(std::span<const Example> train, std::span<const Scores> numbers,
                                std::span<const Scores> asked);

}  // namespace rf::train
