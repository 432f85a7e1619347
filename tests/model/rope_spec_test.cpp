// RopeSpec: the keys of both versions of Hugging Face, what they default to, and every error a user can trigger. The
// frequencies and attention factors are compared with other people's in tests/oracles/test_rope_scalings.py.
#include "rf/model/rope_spec.h"

#include <nlohmann/json.hpp>

#include "io/support.h"

namespace rf {
namespace {

using nlohmann::json;

constexpr RopeShape kShape = {.head_dim = 24, .max_position_embeddings = 512};

RopeSpec read(const json& options, const RopeShape& shape = kShape) {
  io::StrictObject object(options, "position_encoding", "rope");
  RopeSpec spec = read_rope_spec(object, shape);
  object.finish();
  return spec;
}

// The spec of {"rope_parameters": parameters}.
RopeSpec read_v5(const json& parameters, const RopeShape& shape = kShape) {
  return read({{"rope_parameters", parameters}}, shape);
}

void expect_spec_refused(const json& options, std::initializer_list<std::string_view> words) {
  expect_error([&] { read(options); }, words);
}

void expect_refused_v5(const json& parameters, std::initializer_list<std::string_view> words) {
  expect_spec_refused({{"rope_parameters", parameters}}, words);
}

json with(json parameters, const json& changes) {
  parameters.merge_patch(changes);
  return parameters;
}

const json kYarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 128}};
const json kLlama3 = {{"rope_type", "llama3"},
                      {"factor", 8.0},
                      {"low_freq_factor", 1.0},
                      {"high_freq_factor", 4.0},
                      {"original_max_position_embeddings", 128}};
const json kLongrope = {{"rope_type", "longrope"},
                        {"short_factor", std::vector<double>(12, 1.5)},
                        {"long_factor", std::vector<double>(12, 3.0)},
                        {"original_max_position_embeddings", 128}};

TEST(RopeSpec, NothingGivenIsTheOriginal) {
  const RopeSpec spec = read(json::object());
  EXPECT_EQ(spec.type, RopeType::kDefault);
  EXPECT_EQ(spec.precision, RopePrecision::kExact);
  EXPECT_EQ(spec.theta, 10000);
  EXPECT_EQ(spec.rotary_dim, 24);
  EXPECT_EQ(spec.attention_factor, 1);
  EXPECT_FALSE(spec.changes_with_length());
  EXPECT_EQ(read({{"rope_parameters", nullptr}, {"rope_scaling", nullptr}}), spec);
}

TEST(RopeSpec, BothVersionsOfTheKeysAreRead) {
  const json v5 = {{"rope_parameters",
                    {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 5e5}, {"partial_rotary_factor", 0.5}}}};
  const json v4 = {
      {"rope_theta", 5e5}, {"partial_rotary_factor", 0.5}, {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}};
  const RopeSpec spec = read(v5);
  EXPECT_EQ(spec.type, RopeType::kLinear);
  EXPECT_EQ(spec.theta, 5e5);
  EXPECT_EQ(spec.factor, 2);
  EXPECT_EQ(spec.rotary_dim, 12);
  EXPECT_EQ(read(v4), spec);
}

TEST(RopeSpec, NullIsAbsent) {
  json parameters = kYarn;
  for (const char* key : {"type", "rope_theta", "partial_rotary_factor", "attention_factor", "beta_fast", "beta_slow",
                          "mscale", "mscale_all_dim", "truncate", "mrope_section"}) {
    parameters[key] = nullptr;
  }
  EXPECT_EQ(read_v5(parameters), read_v5(kYarn));
  EXPECT_EQ(read({{"rope_theta", 5e5}, {"rope_scaling", {{"rope_type", nullptr}, {"rope_theta", nullptr}}}}).theta,
            5e5);
  expect_refused_v5({{"rope_type", "linear"}, {"factor", nullptr}}, {"factor must be given for rope_type linear"});
}

TEST(RopeSpec, OneKeyInTwoPlacesMustHaveOneValue) {
  const json parameters = {{"rope_type", "default"}, {"rope_theta", 5e5}};
  EXPECT_EQ(read({{"rope_theta", 5e5}, {"rope_parameters", parameters}}).theta, 5e5);
  expect_spec_refused({{"rope_theta", 1e4}, {"rope_parameters", parameters}},
                      {"rope.rope_theta and rope.rope_parameters.rope_theta must agree", "10000.0 and 500000.0"});
  expect_spec_refused({{"partial_rotary_factor", 1.0}, {"rope_scaling", {{"partial_rotary_factor", 0.5}}}},
                      {"partial_rotary_factor must agree, got 1.0 and 0.5"});
  expect_spec_refused({{"rope_parameters", parameters}, {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}},
                      {"rope.rope_parameters and rope.rope_scaling must not both be given", "linear"});
}

TEST(RopeSpec, TheTypeHasTwoSpellings) {
  EXPECT_EQ(read_v5({{"type", "ntk"}, {"factor", 2}}).type, RopeType::kNtk);
  EXPECT_EQ(read_v5({{"type", "dynamic"}, {"rope_type", "dynamic"}, {"factor", 2}}).type, RopeType::kDynamic);
  expect_refused_v5({{"type", "linear"}, {"rope_type", "dynamic"}, {"factor", 2}},
                    {"type and rope.rope_parameters.rope_type must agree", "\"linear\" and \"dynamic\""});
  expect_refused_v5({{"rope_type", "su"}}, {"rope_type must be one of default, linear, ntk", "got \"su\""});
  expect_refused_v5({{"type", 7}}, {"rope.rope_parameters.type must be one of", "got 7"});
}

TEST(RopeSpec, AKeyThatTheTypeDoesNotUseIsRefused) {
  expect_refused_v5({{"factor", 2.0}}, {"rope.rope_parameters.factor", "rope_type default uses", "got 2.0"});
  expect_refused_v5({{"rope_type", "linear"}, {"factor", 2.0}, {"beta_fast", 32}}, {"beta_fast", "linear", "got 32"});
  expect_refused_v5(with(kLlama3, {{"truncate", true}}), {"truncate", "llama3", "got true"});
  expect_refused_v5(with(kYarn, {{"attn_factor", 1.5}}), {"attn_factor", "yarn", "got 1.5"});
  expect_refused_v5({{"mrope_section", {4, 4, 4}}}, {"mrope_section", "got [4,4,4]"});
  // Beside the dictionary, where only longrope, yarn and llama3 look for it.
  expect_spec_refused({{"original_max_position_embeddings", 128}}, {"original_max_position_embeddings"});
}

TEST(RopeSpec, ARequiredKeyIsMissed) {
  for (const char* type : {"linear", "ntk", "dynamic"})
    expect_refused_v5({{"rope_type", type}}, {"rope.rope_parameters.factor must be given", type});
  for (const json& whole : {kYarn, kLlama3, kLongrope}) {
    for (const auto& item : whole.items()) {
      if (item.key() == "rope_type") continue;
      expect_refused_v5(with(whole, {{item.key(), nullptr}}), {item.key(), "must be given", "got {"});
    }
  }
}

TEST(RopeSpec, ValuesOutOfRangeAreRefused) {
  expect_spec_refused({{"rope_theta", 0}}, {"rope.rope_theta must be a number > 0", "got 0"});
  expect_spec_refused({{"rope_theta", "big"}}, {"rope.rope_theta", "got \"big\""});
  expect_spec_refused({{"precision", "float64"}}, {"rope.precision must be one of exact, float32", "got \"float64\""});
  expect_spec_refused({{"rope_parameters", 3}}, {"rope.rope_parameters must be an object, got 3"});
  expect_refused_v5({{"rope_type", "linear"}, {"factor", 0.5}}, {"factor must be a number >= 1", "got 0.5"});
  expect_refused_v5({{"rope_type", "proportional"}, {"factor", 0.5}}, {"factor must be a number >= 1", "got 0.5"});
  expect_refused_v5(with(kYarn, {{"attention_factor", 0}}), {"attention_factor must be a number > 0", "got 0"});
  expect_refused_v5(with(kYarn, {{"beta_fast", 1}, {"beta_slow", 2}}), {"beta_fast must be at least", "got 1 and 2"});
  expect_refused_v5(with(kYarn, {{"rope_theta", 1}}), {"rope_theta must be > 1 for rope_type yarn, got 1"});
  expect_refused_v5(with(kYarn, {{"truncate", 1}}), {"truncate must be true or false, got 1"});
  expect_refused_v5(with(kYarn, {{"original_max_position_embeddings", 1}}), {"original_max", "got 1"});
  expect_refused_v5(with(kYarn, {{"original_max_position_embeddings", 128.5}}), {"must be an integer, got 128.5"});
  const json hope = {{"rope_type", "hope"}, {"original_max_position_embeddings", 512}};
  expect_refused_v5(with(hope, {{"original_max_position_embeddings", 6}}), {"must be at least 7", "hope", "got 6"});
  expect_refused_v5(with(hope, {{"rope_theta", 1}}), {"rope_theta must be > 1 for rope_type hope, got 1"});
  expect_refused_v5(with(hope, {{"factor", 2}}), {"factor", "hope", "got 2"});
  expect_refused_v5(with(kLlama3, {{"low_freq_factor", 4}}), {"high_freq_factor must be greater", "got 4 and 4"});
}

TEST(RopeSpec, RotatedDimensionsAreEven) {
  EXPECT_EQ(read({{"partial_rotary_factor", 0.25}}).rotary_dim, 6);
  expect_spec_refused({{"partial_rotary_factor", 0.3}}, {"even number of at least 2", "24 * 0.3 = 7"});
  expect_spec_refused({{"partial_rotary_factor", 0.01}}, {"even number of at least 2", "24 * 0.01 = 0"});
  expect_spec_refused({{"partial_rotary_factor", 1.5}}, {"partial_rotary_factor", "got 1.5"});
  expect_error([] { read(json::object(), {.head_dim = 7}); }, {"even number", "7 * 1 = 7"});
  expect_refused_v5({{"rope_type", "ntk"}, {"factor", 2}, {"partial_rotary_factor", 0.1}},
                    {"ntk must have at least 4 rotated dimensions, got 2"});
}

// A stretch up to 1, and of what was trained on more than the model takes, shrinks nothing.
TEST(RopeSpec, AttentionFactorWithoutAStretch) {
  EXPECT_EQ(read_v5(with(kYarn, {{"factor", 1}})).attention_factor, 1);
  EXPECT_EQ(read_v5(with(kLongrope, {{"factor", 1}})).attention_factor, 1);
  EXPECT_EQ(read_v5(with(kLongrope, {{"original_max_position_embeddings", 4096}})).attention_factor, 1);
}

TEST(RopeSpec, KeysThatGoTogether) {
  expect_refused_v5(with(kYarn, {{"mscale", 0.7}}), {"mscale_all_dim must be given together", "mscale 0.7"});
  expect_refused_v5(with(kYarn, {{"mscale", 0.7}, {"mscale_all_dim", 0.7}, {"attention_factor", 1.0}}),
                    {"mscale must be absent where attention_factor is given, got 0.7"});
  expect_refused_v5(with(kLongrope, {{"attention_factor", 1.19}, {"factor", 4}}),
                    {"factor must be absent where attention_factor is given, got 4"});
}

TEST(RopeSpec, DivisorsOfLongrope) {
  EXPECT_TRUE(read_v5(kLongrope).changes_with_length());
  expect_refused_v5(with(kLongrope, {{"long_factor", std::vector<double>(11, 1.0)}}),
                    {"long_factor must be a list of 12 numbers", "got 11 of them"});
  expect_refused_v5(with(kLongrope, {{"short_factor", 2.0}}), {"short_factor must be a list", "got 2.0"});
  expect_refused_v5(with(kLongrope, {{"short_factor", std::vector<double>(12, 0.0)}}),
                    {"short_factor must hold finite numbers > 0, got 0.0"});
  // Phi-3 writes the original length beside the dictionary.
  json beside = {{"rope_scaling", kLongrope}, {"original_max_position_embeddings", 128}};
  EXPECT_EQ(read(beside), read_v5(kLongrope));
  beside["rope_scaling"].erase("original_max_position_embeddings");
  EXPECT_EQ(read(beside), read_v5(kLongrope));
}

TEST(RopeSpec, SectionsOfThreeAxes) {
  const RopeShape shape = {.head_dim = 24, .mrope_section = MropeSection::kRequired};
  const std::vector<int64_t> sections = {4, 5, 3};
  EXPECT_EQ(read_v5({{"mrope_section", sections}}, shape).mrope_section, sections);
  EXPECT_EQ(read({{"rope_scaling", {{"type", "mrope"}, {"mrope_section", sections}}}}, shape).mrope_section, sections);
  EXPECT_EQ(read_v5({{"type", "mrope"}, {"rope_type", "default"}, {"mrope_section", sections}}, shape).type,
            RopeType::kDefault);
  for (const json& wrong : {json::array({4, 4, 5}), json::array({12}), json::array({-1, 8, 5}), json(12)}) {
    const json parameters = {{"mrope_section", wrong}};
    expect_error([&] { read_v5(parameters, shape); },
                 {"mrope_section must be 3 counts of pairs that sum to 12", wrong.dump()});
  }
  expect_error([&] { read(json::object(), shape); }, {"mrope_section", "got none"});
}

}  // namespace
}  // namespace rf
