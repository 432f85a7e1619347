// The length that a model can read, against what a forward pass over that many tokens says, for every encoding; and
// that the answer for a great length runs nothing.
#include <ATen/ops/ones.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "rf/nn/encoding.h"
#include "rf/nn/model.h"
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
  // Those that end, after few tokens.
  const std::map<std::string, std::string> shorter = {
      {"axial-nd", R"({"grid_shape": [9, 2, 2], "axes_dims_rope": [4, 2, 2]})"}, {"xpos", R"({"scale_base": 1})"}};
  EncodingConfig encoding = nn::encoding_entry(info.name).example(config.head_dim());
  if (shorter.contains(info.name)) encoding.options = shorter.at(info.name);
  config.position_encodings = {encoding};
  nn::Model model(config, Head::kNone);
  model.eval();
  return model;
}

// "" where the call succeeds.
template <typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string error_of_encode(nn::Model& model, int64_t tokens) {
  const at::NoGradGuard no_grad;
  nn::Input input;
  input.ids_BT = at::ones({1, tokens}, at::kLong);
  return error_of([&] { model.encode(input); });
}

TEST(ReadableLength, IsThatOfAForwardPass) {
  for (const nn::EncodingInfo& info : nn::encoding_infos()) {
    nn::Model model = model_with(info);
    const bool ends = nn::encoding_behaviour(info.name).lengths == nn::EncodingBehaviour::Lengths::kTable;
    for (const int64_t tokens : {int64_t{1}, kRows, kRows + 1, int64_t{200}}) {
      const std::string message = error_of_encode(model, tokens);
      EXPECT_EQ(error_of([&] { model.check_length(tokens); }), message) << info.name << " " << tokens;
      if (tokens <= kRows + 1) {
        EXPECT_EQ(message.empty(), !ends || tokens <= kRows) << info.name << " " << tokens;
      }
    }
  }
}

TEST(ReadableLength, OfAStoredTableIsItsRows) {
  const auto infos = nn::encoding_infos();
  const auto is_rope = [](const nn::EncodingInfo& info) { return info.name == std::string("rope"); };
  nn::Model model = model_with(*std::find_if(infos.begin(), infos.end(), is_rope));
  model.set_position_table(at::ones({kRows, 8}));
  model.check_length(kRows);
  EXPECT_EQ(error_of([&] { model.check_length(kRows + 1); }), error_of_encode(model, kRows + 1));
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
    const std::string reason = error_of([&] { model.check_length(int64_t{1} << 24); });
    EXPECT_EQ(operators, 0) << info.name;
    error_of_encode(model, 2);
    EXPECT_GT(operators, 0) << info.name << ": a forward pass would be seen";
    at::removeCallback(handle);
    const std::string name = info.name;
    if (name == "rope" || name == "none" || name == "t5") {
      EXPECT_EQ(reason, "") << name;
    }
    if (name == "learned") {
      expect_has(reason, "positions must be in 0..15");
    }
  }
}

}  // namespace
}  // namespace rf::train
