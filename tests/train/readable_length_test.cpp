// The length that a model can read, against what a forward pass over that many tokens says, for every encoding; and
// that the answer for a great length runs nothing.
#include "readable_length.h"

#include <ATen/ops/ones.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "rf/nn/encoding_info.h"
#include "support.h"

namespace rf::train {
namespace {

constexpr int64_t kRows = 16;  // of tables by position

nn::Model model_with(const nn::EncodingInfo& info) {
  ModelConfig config;
  config.vocab_size = 7;
  config.hidden_size = config.embedding_size = config.intermediate_size = 8;
  config.num_hidden_layers = config.num_attention_heads = 1;
  config.max_position_embeddings = kRows;
  config.is_decoder = info.needs == nn::EncodingInfo::Needs::kCausal;
  const std::string name = info.name;
  const std::map<std::string, std::string> options = {
      {"axial", R"({"grid_width": 4})"},
      {"axial-nd", R"({"grid_shape": [9, 2, 2], "axes_dims_rope": [4, 2, 2]})"},
      {"mrope", R"({"rope_parameters": {"mrope_section": [2, 1, 1]}})"},
      {"rope-mixed", R"({"grid_width": 4})"},
      {"xpos", R"({"scale_base": 1})"}};  // short enough for a pass over it
  config.position_encodings = {{name, options.contains(name) ? options.at(name) : "{}"}};
  nn::Model model(config, Head::kNone);
  model.eval();
  return model;
}

// "" where a forward pass succeeds.
std::string message_of_encode(nn::Model& model, int64_t tokens) {
  const at::NoGradGuard no_grad;
  nn::Input input;
  input.ids_BT = at::ones({1, tokens}, at::kLong);
  try {
    model.encode(input);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ReadableLength, IsThatOfAForwardPass) {
  int refused = 0;
  for (const nn::EncodingInfo& info : nn::encoding_infos()) {
    nn::Model model = model_with(info);
    for (const int64_t tokens : {int64_t{1}, kRows, kRows + 1, int64_t{200}}) {
      const std::string message = message_of_encode(model, tokens);
      EXPECT_EQ(why_too_long(model, tokens), message) << info.name << " " << tokens;
      refused += message.empty() ? 0 : 1;
    }
  }
  EXPECT_GE(refused, 2 * 4) << "learned, both forms of tupe, and music end at their tables";
}

TEST(ReadableLength, OfAStoredTableIsItsRows) {
  const nn::EncodingInfo rope = [] {
    for (const nn::EncodingInfo& info : nn::encoding_infos()) {
      if (info.name == std::string("rope")) return info;
    }
    throw std::logic_error("no rope");
  }();
  nn::Model model = model_with(rope);
  model.set_position_table(at::ones({kRows, 8}));
  EXPECT_EQ(why_too_long(model, kRows), "");
  EXPECT_EQ(why_too_long(model, kRows + 1), message_of_encode(model, kRows + 1));
}

std::atomic<int> operators;

TEST(ReadableLength, OfAGreatLengthRunsNoForwardPass) {
  for (const nn::EncodingInfo& info : nn::encoding_infos()) {
    nn::Model model = model_with(info);
    operators = 0;
    const auto handle = at::addGlobalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
          if (std::string_view(function.name()) == "aten::embedding") ++operators;
          return nullptr;
        }).scopes({at::RecordScope::FUNCTION}));
    const std::string reason = why_too_long(model, int64_t{1} << 24);
    EXPECT_EQ(operators, 0) << info.name;
    message_of_encode(model, 2);
    EXPECT_GT(operators, 0) << info.name << ": a forward pass would be seen";
    at::removeCallback(handle);
    const std::string name = info.name;
    if (name == "rope" || name == "none" || name == "t5") {
      EXPECT_EQ(reason, "") << name;
    }
    if (name == "learned") {
      EXPECT_NE(reason.find("positions must be in 0..15"), std::string::npos) << reason;
    }
  }
}

}  // namespace
}  // namespace rf::train
