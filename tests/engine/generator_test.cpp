// Steps of several generators together (rf/engine/generator.h): each has the result that it has alone. What that is,
// tests/engine/test_generate.py compares with transformers.
#include "rf/engine/generator.h"

#include <stdexcept>
#include <vector>

#include "engine/model_directory.h"

namespace rf::tests {
namespace {

using engine::Generated;
using engine::GenerationOptions;
using engine::Generator;
using engine::Model;
using engine::Search;

struct Generation {
  std::vector<std::vector<int32_t>> prompts;
  GenerationOptions options;
  std::vector<std::vector<Generated>> alone{};
};

std::vector<Generation> runs_of(const Model& model) {
  const auto prompt = [](int length) { return batch_of({length}).ids; };
  std::vector<Generation> runs;
  runs.push_back({{prompt(1)}, {.max_new_tokens = 9}});
  runs.push_back({{prompt(13), prompt(4), prompt(2)}, {.max_new_tokens = 3, .batch = 2}});
  runs.push_back({{prompt(7)}, {.search = Search::kSample, .max_new_tokens = 8, .temperature = 2, .seed = 5}});
  runs.push_back({{prompt(7), prompt(5)}, {.search = Search::kBeams, .max_new_tokens = 5, .beams = 3}});
  for (Generation& each : runs) each.alone = Generator(model).generate(each.prompts, each.options);
  return runs;
}

void expect_equal(const std::vector<std::vector<Generated>>& found,
                  const std::vector<std::vector<Generated>>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].size(), expected[i].size());
    for (size_t j = 0; j < found[i].size(); ++j) {
      EXPECT_EQ(found[i][j].ids, expected[i][j].ids);
      EXPECT_EQ(found[i][j].log_probability, expected[i][j].log_probability);
    }
  }
}

// Steps all that go on, until none does; returns their errors.
std::vector<std::exception_ptr> go(std::vector<Generator>& generators) {
  std::vector<std::exception_ptr> errors(generators.size());
  std::vector<size_t> active;
  for (size_t i = 0; i < generators.size(); ++i) active.push_back(i);
  while (!active.empty()) {
    std::vector<Generator::Step> steps;
    for (const size_t i : active) steps.push_back({.generator = &generators[i]});
    Generator::step_together(steps);
    std::vector<size_t> next;
    for (size_t i = 0; i < active.size(); ++i) {
      errors[active[i]] = steps[i].error;
      if (steps[i].goes_on && !steps[i].error) next.push_back(active[i]);
    }
    active = next;
  }
  return errors;
}

class Together : public ::testing::TestWithParam<nlohmann::json> {};

TEST_P(Together, EachHasTheResultThatItHasAlone) {
  const ModelDirectory directory(GetParam());
  const Model model(directory.path());
  const std::vector<Generation> runs = runs_of(model);
  std::vector<Generator> generators;
  for (const Generation& each : runs) generators.emplace_back(model).begin(each.prompts, each.options);
  for (const std::exception_ptr& error : go(generators)) EXPECT_EQ(error, nullptr);
  for (size_t i = 0; i < runs.size(); ++i) expect_equal(generators[i].take(), runs[i].alone);
}

INSTANTIATE_TEST_SUITE_P(Models, Together,
                         ::testing::Values(small_config("roformer", "RoFormerForCausalLM", {{"is_decoder", true}}),
                                           small_config("bert", "BertLMHeadModel", {{"is_decoder", true}}),
                                           linear_config("RfEncoderForCausalLM", "elu", nlohmann::json::object(),
                                                         {{"is_decoder", true}})));

TEST(StepsTogether, AnErrorConcernsItsGeneratorAlone) {
  const ModelDirectory directory(small_config("roformer", "RoFormerForCausalLM", {{"is_decoder", true}}));
  const Model model(directory.path());
  std::vector<Generation> runs = runs_of(model);
  runs[1].options.is_end = [](std::span<const int32_t>, std::span<const int32_t> added) {
    if (added.size() == 2) throw std::runtime_error("no further");
    return false;
  };
  std::vector<Generator> generators;
  for (const Generation& each : runs) generators.emplace_back(model).begin(each.prompts, each.options);
  const std::vector<std::exception_ptr> errors = go(generators);
  ASSERT_NE(errors[1], nullptr);
  EXPECT_THROW(std::rethrow_exception(errors[1]), std::runtime_error);
  for (const size_t i : {0, 2, 3}) {
    EXPECT_EQ(errors[i], nullptr);
    expect_equal(generators[i].take(), runs[i].alone);
  }
}

}  // namespace
}  // namespace rf::tests
