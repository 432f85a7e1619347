// Damaged model directories: each is refused with a message that names the place; tests/io damages safetensors files.
// Run under the address and undefined-behaviour sanitizers too, which look for leaks at the end.
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "engine/model_directory.h"
#include "rf/io/files.h"

namespace rf::tests {
namespace {

using nlohmann::json;

// Families of other libraries: how their classes begin, and keys of each reader, some of them by two names. null: a key
// that it does not read.
constexpr std::pair<const char*, const char*> kFamilies[] = {
    {"NomicBert", R"({"model_type": "nomic_bert", "rope_parameters": {"rope_theta": 1e4}, "head_dim": 12,
                      "hidden_act": "silu", "layer_norm_epsilon": 1e-12})"},
    {"ModernBert", R"({"model_type": "modernbert", "layer_norm_eps": null, "type_vocab_size": null, "norm_eps": 1e-6,
                       "local_attention": 8, "global_attn_every_n_layers": 3, "classifier_pooling": "mean",
                       "classifier_bias": true,
                       "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4},
                                           "sliding_attention": {"rope_type": "default", "rope_theta": 1e5}},
                       "norm_bias": true, "attention_bias": true, "classifier_activation": "gelu"})"},
    {"Gte", R"({"model_type": "gte", "rope_theta": 1e4, "id2label": {"0": "no", "1": "yes"}, "hidden_act": "gelu"})"},
    {"New", R"({"model_type": "new", "rope_scaling": {"type": "ntk", "factor": 2}, "layer_norm_type": "layer_norm"})"},
    {"EuroBert", R"({"model_type": "eurobert", "layer_norm_eps": null, "type_vocab_size": null, "rms_norm_eps": 1e-6,
                     "num_key_value_heads": 1, "head_dim": 12, "mlp_bias": false, "clf_pooling": "late",
                     "classifier_pooling": "late"})"},
    {"Ultrabert", R"({"model_type": "ultrabert", "layer_norm_eps": null, "type_vocab_size": null,
                      "attention_windows": [4, null], "rope_theta": [1e4, 1e6], "prediction_head_size": 8,
                      "layer_types": ["sliding_attention", "full_attention"], "num_key_value_heads": 2})"},
    {"Roberta", R"({"model_type": "roberta", "hidden_dropout_prob": 0.1, "initializer_range": 0.1})"},
    {"DistilBert", R"({"model_type": "distilbert", "layer_norm_eps": null, "type_vocab_size": null, "dim": 24,
                       "n_layers": 2, "activation": "gelu", "hidden_act": "gelu"})"},
    {"Electra", R"({"model_type": "electra", "embedding_size": 8, "summary_type": "first"})"},
    {"MPNet", R"({"model_type": "mpnet", "type_vocab_size": null, "relative_attention_num_buckets": 32})"},
    {"DebertaV2", R"({"model_type": "deberta-v2", "relative_attention": true, "pos_att_type": ["c2p", "p2c"],
                      "position_buckets": 4, "max_relative_positions": 9, "share_att_key": true, "legacy": true,
                      "norm_rel_ebd": "layer_norm", "position_biased_input": false, "pooler_hidden_size": 24,
                      "conv_kernel_size": 3, "conv_act": "gelu", "conv_groups": 2, "embedding_size": 8})"},
    {"Deberta", R"({"model_type": "deberta", "relative_attention": true, "pos_att_type": "c2p|p2c"})"},
    {"Ernie", R"({"model_type": "ernie", "use_task_id": true, "task_type_vocab_size": 3})"},
    {"Albert", R"({"model_type": "albert", "embedding_size": 8, "num_hidden_groups": 1})"},
    {"T5Encoder", R"({"model_type": "t5", "architectures": ["T5EncoderModel"], "layer_norm_eps": null, "d_kv": 6,
                      "head_dim": 6, "feed_forward_proj": "gated-gelu", "layer_norm_epsilon": 1e-6})"},
};

std::vector<json> models() {
  std::vector<json> all = {small_config("roformer", "RoFormerForMaskedLM", {{"embedding_size", 16}}),
                           small_config("bert", "BertModel")};
  for (const auto& [classes, keys] : kFamilies) {
    json more = json::parse(keys);
    more["pad_token_id"] = 0;
    all.push_back(small_config("", fmt::format("{}ForSequenceClassification", classes), more));
  }
  return all;
}

// The table of positions may be left out, and a pooler too.
bool may_be_absent(const std::string& name) {
  return name.find("embed_positions") != std::string::npos || name.starts_with("pooler.");
}

bool are_of_a_kind(const json& a, const json& b) {
  return a.is_null() || b.is_null() || a.type() == b.type() || (a.is_number() && b.is_number());
}

void expect_refusal(const ModelDirectory& model, const std::string& word, const std::string& what) {
  const std::string message = refusal(model.path());
  EXPECT_TRUE(message.starts_with("[") && message.find(word) != std::string::npos)
      << what << (message.empty() ? ": no error" : ": " + message);
  EXPECT_LT(message.size(), 1500u) << what;
}

class Damaged : public ::testing::TestWithParam<json> {
 protected:
  ModelDirectory model{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Families, Damaged, ::testing::ValuesIn(models()), [](const auto& info) {
  std::string name = info.param["model_type"];
  std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return name;
});

TEST_P(Damaged, WholeModelsOpen) { EXPECT_EQ(refusal(model.path()), ""); }

TEST_P(Damaged, NamesOfTensors) {
  for (size_t i = 0; i < model.tensors().size(); ++i) {
    const std::string name = model.tensors()[i].name;
    if (may_be_absent(name)) continue;
    std::vector<ModelTensor> bad = model.tensors();
    bad[i].name = "x" + name;
    model.write_weights(bad);
    expect_refusal(model, name, "renamed");
    bad[i] = model.tensors()[i];
    bad[i].shape.insert(bad[i].shape.begin(), 1);
    model.write_weights(bad);
    expect_refusal(model, name, "another shape");
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
  const std::set<std::string> kOfSeveralKinds = {"architectures", "pos_att_type", "norm_rel_ebd", "num_hidden_groups"};
  for (const auto& [key, old] : model.config().items()) {
    for (const json& value : values) {
      if (value == old) continue;
      json bad = model.config();
      bad[key] = value;
      model.write_config(bad);
      const std::string message = refusal(model.path());  // it may open where the value means the same
      EXPECT_TRUE(message.empty() || message.starts_with("[")) << message;
      const bool wrong_type = !are_of_a_kind(value, old) && !kOfSeveralKinds.contains(key);
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
  for (const char* type : {"bart", "squeezebert", "roformer_v3", "xlnet"}) {
    json bad = model.config();
    bad["model_type"] = type;
    model.write_config(bad);
    expect_refusal(model, type, type);
  }
  for (const char* name : {"LlamaForCausalLM", "Wav2Vec2ForAudioFrameClassification", "RoFormerFor"}) {
    json bad = model.config();
    bad["architectures"] = {name};
    model.write_config(bad);
    expect_refusal(model, name, name);
  }
  json bad = model.config();
  if (bad["model_type"] != "roformer" && bad["model_type"] != "bert") return;
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
