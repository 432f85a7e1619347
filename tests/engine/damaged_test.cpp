// Damaged model directories: each is refused with a message that names the place; tests/io damages safetensors files.
// Run under the address and undefined-behaviour sanitizers too, which look for leaks at the end.
#include <cmath>
#include <limits>

#include "engine/model_directory.h"
#include "rf/io/files.h"

namespace rf::tests {
namespace {

using nlohmann::json;

json roformer() { return small_config("roformer", "RoFormerForMaskedLM", {{"embedding_size", 16}}); }

json bert() { return small_config("bert", "BertModel"); }

// The table of positions may be left out, and a pooler too.
bool may_be_absent(const std::string& name) {
  return name.find("embed_positions") != std::string::npos || name.starts_with("pooler.");
}

void expect_refusal(const ModelDirectory& model, const std::string& word, const std::string& what) {
  const std::string message = refusal(model.path());
  EXPECT_TRUE(message.starts_with("[") && message.find(word) != std::string::npos)
      << what << (message.empty() ? ": no error" : ": " + message);
  EXPECT_LT(message.size(), 1500u) << what;
}

class Damaged : public ::testing::TestWithParam<json (*)()> {
 protected:
  ModelDirectory model{GetParam()()};
};
INSTANTIATE_TEST_SUITE_P(Families, Damaged, ::testing::Values(&roformer, &bert),
                         [](const auto& info) { return info.index == 0 ? "RoFormer" : "Bert"; });

TEST_P(Damaged, WholeModelsOpen) { EXPECT_EQ(refusal(model.path()), ""); }

TEST_P(Damaged, NamesOfTensors) {
  for (size_t i = 0; i < model.tensors().size(); ++i) {
    const std::string name = model.tensors()[i].name;
    if (may_be_absent(name)) continue;
    std::vector<ModelTensor> bad = model.tensors();
    bad[i].name = "x" + name;
    model.write_weights(bad);
    expect_refusal(model, name, "renamed");
  }
}

TEST_P(Damaged, ValuesThatAreNotFinite) {
  for (size_t i = 0; i < model.tensors().size(); ++i) {
    std::vector<ModelTensor> first = model.tensors(), last = first;
    first[i].values.front() = std::nanf("");
    last[i].values.back() = std::numeric_limits<float>::infinity();
    for (const std::vector<ModelTensor>& bad : {first, last}) {
      model.write_weights(bad);
      expect_refusal(model, bad[i].name, "not finite");
    }
  }
}

TEST_P(Damaged, TypesAndRangesOfTheConfiguration) {
  const json values[] = {nullptr, true,           -1,         0,         7,          1.5,       1e300,
                         "x",     json::array(),  INT64_MAX,  INT64_MIN, UINT64_MAX, INT32_MAX, json::object(),
                         "",      json{{"a", 1}}, json{1, 2}, "\xc3\xa9"};
  for (const auto& [key, old] : model.config().items()) {
    for (const json& value : values) {
      if (value == old) continue;
      json bad = model.config();
      bad[key] = value;
      model.write_config(bad);
      const std::string message = refusal(model.path());  // it may open where the value means the same
      EXPECT_TRUE(message.empty() || message.starts_with("[")) << message;
      const bool wrong_type = value.is_structured() && key != "architectures";
      EXPECT_TRUE(!wrong_type || message.find(key) != std::string::npos) << key << " " << value << ": " << message;
    }
  }
}

TEST_P(Damaged, ConfigurationsThatAreNone) {
  const std::string good = model.config().dump();
  for (const std::string& bad :
       {std::string(), std::string("null"), std::string("[]"), std::string("{"), std::string(100'000, '['),
        good.substr(0, good.size() / 2), good + "}", std::string("{\"model_type\": \"\xff\"}"), std::string(1, '\0')}) {
    io::write_file(model.path() + "/config.json", bad);
    expect_refusal(model, "config.json", bad.substr(0, 20));
  }
}

TEST_P(Damaged, OtherArchitectures) {
  for (const char* type : {"bart", "squeezebert", "roformer_v3", "gpt2"}) {
    json bad = model.config();
    bad["model_type"] = type;
    model.write_config(bad);
    expect_refusal(model, type, type);
    expect_refusal(model, "rf_encoder", type);  // what can be opened
  }
  for (const char* name : {"LlamaForCausalLM", "BertForNextSentencePrediction", "RoFormerFor"}) {
    json bad = model.config();
    bad["architectures"] = {name};
    model.write_config(bad);
    expect_refusal(model, name, name);
  }
  json bad = model.config();
  bad["norm_type"] = "rms_norm";
  model.write_config(bad);
  expect_refusal(model, "use_bias and norm_type", "RMS norms with biases");
}

TEST_P(Damaged, FilesThatAreNone) {
  EXPECT_NE(refusal(model.path() + "/nowhere").find("nowhere"), std::string::npos);
  EXPECT_NE(refusal("").find("config.json"), std::string::npos);
  const std::filesystem::path weights = model.path() + "/model.safetensors";
  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) - 1);
  expect_refusal(model, "model.safetensors", "truncated weights");
  std::filesystem::remove(weights);
  expect_refusal(model, "model.safetensors", "no weights");
  std::filesystem::create_directory(weights);
  expect_refusal(model, "model.safetensors", "a directory");
}

}  // namespace
}  // namespace rf::tests
