// The run file: values, defaults, the way back, and every error a user can make.
#include "rf/train/run_config.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "rf/train/translation.h"
#include "support.h"

namespace rf::train {
namespace {

using nlohmann::json;

json minimal() { return {{"stages", {{{"max_length", 64}, {"batch", 8}, {"steps", 10}}}}}; }

json with(const json& patch) {
  json run = minimal();
  run.merge_patch(patch);
  return run;
}

void expect_error(const json& run, const std::string& part) {
  expect_has(error_of([&] { parse_run_config(run); }), part);
}

TEST(RunConfig, ReadsEveryKey) {
  const RunConfig run = parse_run_config(with(json::parse(R"({
    "model": {"hidden_size": 64, "num_attention_heads": 4},
    "stages": [{"max_length": 32, "batch": 12, "steps": 5, "accumulate": 3}, {"max_length": 64, "batch": 4, "steps": 7}],
    "schedule": {"kind": "cosine", "learning_rate": 0.002, "warmup_steps": 3, "initial_rate": 1e-6, "final_rate": 1e-5},
    "weight_decay": 0.1, "beta1": 0.8, "beta2": 0.98, "epsilon": 1e-6, "clip_norm": 0,
    "mask": {"probability": 0.2, "mask_fraction": 0.7, "random_fraction": 0.2, "unit": "whole-word"},
    "packing": "padded", "precision": "float32", "seed": 9, "log_every_steps": 2, "evaluate_every_steps": 4,
    "evaluate_batches": 6, "checkpoint_every_steps": 8, "keep_checkpoints": 1, "reduce_overlap": false,
    "groups": [{"parameters": "*.bias", "learning_rate": 0, "weight_decay": 0.5},
               {"parameters": "?", "initializer_range": 0.1}]})")));
  EXPECT_EQ(run.model.hidden_size, 64);
  ASSERT_EQ(run.stages.size(), 2u);
  EXPECT_EQ(run.stages[0].accumulate, 3);
  EXPECT_EQ(run.stages[1].steps, 7);
  EXPECT_EQ(run.schedule.kind, Schedule::kCosine);
  EXPECT_EQ(run.schedule.final_rate, 1e-5);
  EXPECT_EQ(run.optimizer.beta2, 0.98);
  EXPECT_EQ(run.mask.unit, data::MaskUnit::kWholeWord);
  EXPECT_EQ(run.packing, data::Packing::kPadded);
  EXPECT_EQ(run.precision, Precision::kFloat32);
  EXPECT_EQ(run.seed, 9u);
  EXPECT_EQ(run.keep_checkpoints, 1);
  EXPECT_FALSE(run.reduce_overlap);
  EXPECT_EQ(run.optimizer.groups[0].weight_decay, 0.5);
  EXPECT_EQ(run.optimizer.groups[1].learning_rate, 1);
  EXPECT_EQ(run.optimizer.groups[1].initializer_range, 0.1);
  EXPECT_FALSE(run.optimizer.groups[0].initializer_range);
  EXPECT_EQ(to_json(parse_run_config(to_json(run))), to_json(run));
}

TEST(RunConfig, PairsOfSentences) {
  EXPECT_EQ(parse_run_config(minimal()).pairs, data::Pairs::kNone);
  EXPECT_EQ(to_json(parse_run_config(minimal()))["pairs"], "none");
  const RunConfig run = parse_run_config(with({{"pairs", "sentence_order"}}));
  EXPECT_EQ(run.pairs, data::Pairs::kSentenceOrder);
  EXPECT_EQ(to_json(run)["pairs"], "sentence_order");
  EXPECT_EQ(parse_run_config(to_json(run)).pairs, data::Pairs::kSentenceOrder);
  expect_error(with({{"pairs", "sop"}}), "pairs must be one of none, next_sentence, sentence_order, got");
  expect_error(with({{"pairs", "next_sentence"}, {"objective", "causal"}}),
               "pairs must be absent or none with objective causal");
  expect_error(with({{"pairs", "next_sentence"}, {"evaluate_lengths", {8, 4}}}),
               "each of evaluate_lengths must be at least 5 with pairs next_sentence, got 4");
  json run_file = with({{"pairs", "sentence_order"}});
  run_file["stages"][0]["max_length"] = 4;
  expect_error(run_file, "stages[0].max_length must be at least 5 with pairs sentence_order, got 4");
}

TEST(RunConfig, CausalIsADecoderWithoutMasks) {
  const RunConfig run = parse_run_config(with({{"objective", "causal"}, {"evaluate_lengths", {16, 32}}}));
  EXPECT_EQ(run.objective, data::Objective::kCausal);
  EXPECT_TRUE(run.model.is_decoder);
  EXPECT_EQ(run.evaluate_lengths, (std::vector<int64_t>{16, 32}));
  EXPECT_FALSE(to_json(run).contains("mask"));
  EXPECT_EQ(to_json(parse_run_config(to_json(run))), to_json(run));
  EXPECT_TRUE(parse_run_config(with({{"objective", "causal"}, {"model", {{"is_decoder", true}}}})).model.is_decoder);
  EXPECT_FALSE(parse_run_config(minimal()).model.is_decoder);
}

TEST(RunConfig, ObjectivesThatContradict) {
  expect_error(with({{"objective", "prefix"}}), "objective must be one of masked, causal, got \"prefix\"");
  expect_error(with({{"objective", "causal"}, {"mask", json::object()}}), "mask must be absent with objective causal");
  expect_error(with({{"objective", "causal"}, {"model", {{"is_decoder", false}}}}),
               "model.is_decoder must be true with objective causal, got false");
  expect_error(with({{"model", {{"is_decoder", true}}}}),
               "model.is_decoder must be false with objective masked, got true; causal attention goes with");
  expect_error(with({{"evaluate_lengths", 64}}), "evaluate_lengths must be a list of lengths, got 64");
  expect_error(with({{"evaluate_lengths", {64, 2}}}), "each of evaluate_lengths must be an integer from 3 to");
  expect_error(with({{"evaluate_lengths", {64.5}}}), "got 64.5");
}

TEST(RunConfig, PiecewiseGoesThereAndBack) {
  const RunConfig run =
      parse_run_config(with({{"schedule", {{"kind", "piecewise"}, {"points", {{100, 1.0}, {200, 0.0}}}}}}));
  EXPECT_EQ(run.schedule.points, (std::vector<std::pair<int64_t, double>>{{100, 1.0}, {200, 0.0}}));
  EXPECT_EQ(to_json(parse_run_config(to_json(run))), to_json(run));
}

TEST(RunConfig, UnknownKeysAreNamedWithTheirPath) {
  expect_error(with({{"learning_rate", 1}}), "got \"learning_rate\"");
  expect_error(with({{"mask", {{"probabilty", 0.1}}}}), "got \"mask.probabilty\"");
  expect_error(with({{"stages", {{{"max_lenght", 8}}}}}), "got \"stages[0].max_lenght\"");
  // Keys that another kind of schedule reads.
  expect_error(with({{"schedule", {{"kind", "constant"}, {"final_rate", 0.1}}}}), "got \"schedule.final_rate\"");
  expect_error(with({{"schedule", {{"kind", "linear"}, {"points", json::array()}}}}), "got \"schedule.points\"");
  expect_error(with({{"model", {{"hiden_size", 8}}}}), "hiden_size");
  expect_error({{"stage", {{{"steps", 10}}}}}, "got \"stage\"");
}

TEST(RunConfig, ValuesAreReplaced) {
  json run = with({{"seed", 3}});
  const json got = load_run_file("", {"stages.0.steps=7", "mask.unit=token", "seed=1e3", "init_from=a=b"}, run);
  run["stages"][0]["steps"] = 7;
  run.update({{"mask", {{"unit", "token"}}}, {"seed", 1000.0}, {"init_from", "a=b"}});
  EXPECT_EQ(got, run);
  const std::string elements = "must name a key, or an element of a list by its number from 0, got";
  for (const auto& [text, message] :
       std::map<std::string, std::string>{{"stages.1.steps=3", "\"stages.1.steps\" " + elements + " \"1\" of [{"},
                                          {"stages.x=3", elements + " \"x\" of [{"},
                                          {"seed.x=3", elements + " \"x\" of 3"},
                                          {"seed", "a replaced value must be written as key=value, got \"seed\""},
                                          {"=3", "as key=value, got \"=3\""}}) {
    expect_has(error_of([&] { load_run_file("", {text}, with({{"seed", 3}})); }), message);
  }
}

TEST(RunConfig, TypesAndRanges) {
  expect_error(with({{"groups", 3}}), "groups must be a list of groups of parameters, got 3");
  expect_error(with({{"groups", {json::object()}}}), "groups[0].parameters");
  expect_error(with({{"groups", {{{"parameters", "*"}, {"rate", 1}}}}}), "got \"groups[0].rate\"");
  expect_error(with({{"groups", {{{"parameters", "*"}, {"learning_rate", -1}}}}}),
               "groups[0].learning_rate must be a number >= 0, got -1");
  expect_error(with({{"groups", {{{"parameters", "*"}, {"weight_decay", -1}}}}}),
               "groups[0].weight_decay must be a number >= 0, got -1");
  const json drawn = json::array({{{"parameters", "*"}, {"initializer_range", 0.5}}});
  expect_error(with({{"groups", {{{"parameters", "*"}, {"initializer_range", -1}}}}}),
               "groups[0].initializer_range must be a number >= 0, got -1");
  expect_error(with({{"groups", drawn}, {"init_from", "x"}}),
               "groups[0].initializer_range must be absent with init_from, whose weights are used, got 0.5");
  expect_has(error_of([&] {
               parse_translation_run({{"groups", drawn}});
             }),
             "must be absent in a run of train-translation");
  expect_error(json::array(), "the file must be an object");
  expect_error(json::object(), "stages must be a list of at least one stage");
  expect_error(with({{"stages", {{{"max_length", 2}}}}}), "stages[0].max_length must be an integer from 3");
  expect_error(with({{"stages", {{{"steps", 1.5}}}}}), "stages[0].steps must be an integer from 1 to");
  expect_error(with({{"stages", {{{"batch", 10}, {"accumulate", 4}}}}}), "got batch 10 and accumulate 4");
  expect_error(with({{"seed", -1}}), "seed must be an integer from 0");
  expect_error(with({{"seed", 18446744073709551615ull}}), "got 18446744073709551615");
  expect_error(with({{"beta1", 1.0}}), "beta1 must be a number >= 0 and < 1, got 1.0");
  expect_error(with({{"epsilon", 0}}), "epsilon must be a number > 0, got 0");
  expect_error(with({{"clip_norm", "no"}}), "clip_norm must be a number >= 0, got \"no\"");
  expect_error(with({{"packing", "loose"}}), "packing must be one of packed, padded, got \"loose\"");
  expect_error(with({{"precision", "float16"}}), "got \"float16\"");
  expect_error(with({{"schedule", {{"kind", "step"}}}}),
               "one of constant, linear, cosine, inverse_sqrt, piecewise, got \"step\"");
  expect_error(with({{"mask", {{"probability", 0}}}}), "mask.probability must be a number > 0 and <= 1");
  expect_error(with({{"mask", {{"mask_fraction", 0.9}, {"random_fraction", 0.2}}}}), "got 0.9 + 0.2");
  expect_error(with({{"schedule", {{"kind", "piecewise"}}}}), "schedule.points must be a list");
  expect_error(with({{"schedule", {{"kind", "piecewise"}, {"points", {{5, 1}, {5, 2}}}}}}), "must rise, got 5 after 5");
  expect_error(with({{"init_from", "dir"}, {"model", json::object()}}), "model must be absent with init_from");
  expect_error(with({{"model", {{"hidden_size", 36}, {"num_attention_heads", 4}}}}), "9");  // an odd head
}

}  // namespace
}  // namespace rf::train
