// config.json: defaults, strictness, and every error a user can trigger (spec R-HF-02).
#include "rf/model/config.h"

#include <nlohmann/json.hpp>

#include "io/support.h"
#include "rf/io/files.h"
#include "rf/model/foreign_models.h"

namespace rf {
namespace {

using nlohmann::json;

void expect_refused(const json& config, std::initializer_list<std::string_view> words) {
  expect_error([&] { parse_config(config); }, words);
}

TEST(Config, MissingKeysTakeTheirDefaults) {
  EXPECT_EQ(parse_config(json::object()), ModelConfig{});
  EXPECT_EQ(parse_config({{"hidden_size", 384}}).embedding_size, 384);
  EXPECT_EQ(parse_config({{"hidden_size", 384}, {"embedding_size", nullptr}}).embedding_size, 384);
  EXPECT_EQ(parse_config({{"hidden_size", 384}, {"embedding_size", 128}}).embedding_size, 128);
}

// tests/oracles/test_model_config.py has the keys of transformers.
TEST(Config, WritesWhatItReads) {
  ModelConfig c;
  c.hidden_act = Activation::kGeluTanh;
  c.classifier_activation = "gelu_new";
  c.classifier_dropout = 0.25;
  c.architectures = {"RoFormerForCausalLM"};
  c.kept = {{"transformers_version", "\"4.30.0\""}, {"task_specific_params", "{\"a\":[1,null]}"}};
  EXPECT_EQ(c.head(), Head::kCausalLm);
  std::vector<ModelConfig> all(6, ModelConfig{});
  all[0] = c;
  all[1].training_positions = {TrainingPositions::Kind::kRandomized, 300};
  all[2].training_positions = {TrainingPositions::Kind::kShifted, 300};
  all[3].position_encodings = {{.type = "sinusoidal", .options = "{}"}};
  all[3].training_positions = {TrainingPositions::Kind::kAugmented, 0, 5, 0.5, 1.03};
  all[4].hidden_act = Activation::kSilu, all[5].hidden_act = Activation::kTanh;
  for (const ModelConfig& each : all) EXPECT_EQ(parse_config(to_json(each)), each);
  EXPECT_EQ(model_type(all[1]), "rf_encoder");
}

TEST(Config, SavesAndLoadsADirectory) {
  const TempDir dir;
  ModelConfig c;
  c.num_hidden_layers = 3;
  save_config(c, dir.path());
  EXPECT_EQ(load_config(dir.path()), c);
  io::write_file(dir / "config.json", R"({"hidden_size": "x"})");
  expect_error([&] { load_config(dir.path()); }, {dir / "config.json", "hidden_size", "\"x\""});
  expect_error([&] { load_config(dir / "absent"); }, {"must be a directory", "absent", "does not exist"});
  expect_error([&] { load_config(dir / "config.json"); }, {"must be a directory", "config.json", "is not a directory"});
  c.hidden_size = 7;
  expect_error([&] { save_config(c, dir.path()); }, {"hidden_size"});
}

// GlmConfig and FalconConfig of transformers.
TEST(Config, EndsOfTextsThatAClassHas) {
  const TempDir dir;
  json keys = {{"model_type", "glm"},    {"vocab_size", 151552},     {"hidden_size", 64},
               {"num_hidden_layers", 1}, {"num_attention_heads", 2}, {"intermediate_size", 64},
               {"eos_token_id", nullptr}};
  const auto ends = [&] {
    io::write_file(dir / "config.json", keys.dump());
    return load_any_config(dir.path()).stop_ids;
  };
  EXPECT_EQ(ends(), (std::vector<int32_t>{151329, 151336, 151338}));
  keys.erase("eos_token_id");
  EXPECT_EQ(ends(), (std::vector<int32_t>{151329, 151336, 151338}));
  keys["vocab_size"] = 151330;  // some of them are no tokens
  EXPECT_EQ(ends(), std::vector<int32_t>{});
  keys["model_type"] = "falcon";
  EXPECT_EQ(ends(), std::vector<int32_t>{11});
  keys["eos_token_id"] = nullptr;
  EXPECT_EQ(ends(), std::vector<int32_t>{});
}

TEST(Config, HarmlessKeysAreKeptAndDtypesDropped) {
  const json out = to_json(parse_config({{"use_cache", false}, {"torch_dtype", "float16"}, {"_name_or_path", "x"}}));
  EXPECT_EQ(out["use_cache"], false);
  EXPECT_FALSE(out.contains("_name_or_path") || out.contains("torch_dtype"));
  EXPECT_EQ(out["dtype"], "float32");
  EXPECT_FALSE(to_json(ModelConfig{}).contains("transformers_version")) << "not ours to invent";
}

TEST(Config, UnknownKeysAreErrorsWithAHint) {
  expect_refused({{"window_size", 4}}, {"window_size must be", "4"});
  expect_refused({{"sliding_window", 8}}, {"sliding_window must be", "8"});
  expect_refused({{"is_causal", true}}, {"is_causal must be", "true"});
  expect_refused({{"scale_attn_weights", false}}, {"scale_attn_weights must be", "false"});
  expect_refused({{"layer_types", {"full_attention", "sliding_attention"}}}, {"layer_types must be", "sliding"});
  expect_refused({{"use_bidirectional_attention", false}}, {"use_bidirectional_attention must be", "false"});
  EXPECT_NO_THROW(parse_config({{"num_experts", 1},
                                {"alibi", 0},
                                {"no_rope_layers", {1, 1}},
                                {"sliding_window", 1536},
                                {"is_causal", false},
                                {"scale_attn_weights", true},
                                {"use_bidirectional_attention", true}}));
  expect_refused({{"rotary_values", true}}, {"did you mean rotary_value?"});
  expect_refused({{"model_type", "roformer"}, {"rope_theta", 500000.0}}, {"rope_theta", "500000", "rf_encoder"});
  expect_refused({{"model_type", "roformer"}, {"position_embedding_type", "relative_key"}},
                 {"position_embedding_type must be absent, null or \"absolute\"", "\"relative_key\""});
}

TEST(Config, RoFormerV2) {
  const json of_port = {{"model_type", "roformer"}, {"use_bias", false}, {"norm_type", "rms_norm"}};
  const json by_name = {{"model_type", "roformer_v2"}, {"hidden_act", "gelu"}};
  const json by_family = {{"family", "roformer_v2"}, {"hidden_act", "gelu"}};
  for (const json& config : {of_port, by_name, by_family}) {
    const ModelConfig c = parse_config(config);
    EXPECT_EQ(c.family, Family::kRoFormerV2) << config;
    EXPECT_EQ(c, parse_config(of_port)) << config;
    EXPECT_FALSE(c.block.qkv_bias);
    EXPECT_EQ(c.block.norm, NormKind::kRms);
    EXPECT_EQ(model_type(c), "roformer_v2");
    EXPECT_EQ(architecture_of(c, Head::kMaskedLm), "RoFormerForMaskedLM");
    const json written = to_json(c);
    EXPECT_EQ(written["use_bias"], false);
    EXPECT_EQ(written["norm_type"], "rms_norm");
    EXPECT_EQ(parse_config(written), c);
  }
  EXPECT_EQ(parse_config({{"model_type", "roformer_v2"}}).hidden_act, Activation::kRelu);
  ModelConfig other = parse_config(by_name);
  other.position_encodings[0].type = "none";
  EXPECT_EQ(model_type(other), "rf_encoder");
  EXPECT_EQ(to_json(other)["family"], "roformer_v2");
  EXPECT_EQ(parse_config(to_json(other)), other);

  expect_refused({{"use_bias", false}}, {"use_bias and norm_type", "false", "layer_norm"});
  expect_refused({{"norm_type", "rms_norm"}}, {"use_bias and norm_type", "true", "rms_norm"});
  expect_refused({{"norm_type", "batch_norm"}}, {"norm_type", "batch_norm"});
  expect_refused({{"use_bias", 0}}, {"use_bias", "true or false"});
  expect_refused({{"model_type", "roformer_v2"}, {"use_bias", true}}, {"use_bias", "roformer_v2"});
  expect_refused({{"model_type", "bert"}, {"use_bias", false}, {"norm_type", "rms_norm"}}, {"use_bias", "bert"});
  expect_refused({{"family", "roformer"}, {"use_bias", false}, {"norm_type", "rms_norm"}}, {"family roformer"});
  expect_refused({{"family", "roformer_v3"}}, {"family", "roformer_v2", "roformer_v3"});
  expect_refused({{"model_type", "roformer_v2"}, {"rope_theta", 500.0}}, {"model_type roformer_v2", "rope_theta"});
}

TEST(Config, WrongTypes) {
  expect_refused(json::array(), {"JSON object"});
  expect_refused({{"vocab_size", "many"}}, {"vocab_size", "an integer", "\"many\""});
  expect_refused({{"vocab_size", 10.0}}, {"vocab_size", "an integer", "10.0"});
  expect_refused({{"vocab_size", nullptr}}, {"vocab_size", "an integer", "null"});
  EXPECT_EQ(parse_config({{"pad_token_id", nullptr}}).pad_token_id, 0);
  expect_refused({{"vocab_size", 18446744073709551615u}}, {"vocab_size", "2^63", "18446744073709551615"});
  expect_refused({{"layer_norm_eps", "1e-12"}}, {"layer_norm_eps", "a number"});
  expect_refused({{"rotary_value", 1}}, {"rotary_value", "true or false", "1"});
  expect_refused({{"hidden_act", "gelu_10"}}, {"hidden_act", "silu", "gelu_10"});
  expect_refused({{"architectures", {1}}}, {"architectures", "a list", "[1]"});
  expect_refused({{"problem_type", 1}}, {"problem_type", "a string or null"});
}

TEST(Config, Ranges) {
  const int64_t too_large = (int64_t{1} << 31) + 1;
  for (const char* key : {"vocab_size", "hidden_size", "embedding_size", "num_hidden_layers", "num_attention_heads",
                          "intermediate_size", "max_position_embeddings", "type_vocab_size", "num_labels"}) {
    for (const int64_t value : {int64_t{0}, int64_t{-1}, too_large})
      expect_refused({{key, value}}, {key, "must be in [1, ", std::to_string(value)});
  }
  for (const char* key : {"hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"}) {
    for (const double value : {-0.1, 0.999995, 1.0, 1.5})
      expect_refused({{key, value}}, {key, "[0, 1 - 2^-17)", fmt::format("{}", value)});
    EXPECT_NO_THROW(parse_config({{key, 0}}));
  }
  expect_refused({{"layer_norm_eps", 0}}, {"layer_norm_eps", "above 0"});
  expect_refused({{"layer_norm_eps", -1e-5}}, {"layer_norm_eps", "above 0", "-1e-05"});
  expect_refused({{"initializer_range", -1}}, {"initializer_range", "-1"});
  expect_refused({{"pad_token_id", 50000}}, {"pad_token_id", "[0, 49999]", "50000"});
  expect_refused({{"pad_token_id", -1}}, {"pad_token_id", "-1"});
}

TEST(Config, KeysThatContradict) {
  expect_refused({{"hidden_size", 10}, {"num_attention_heads", 4}}, {"multiple", "10 and 4"});
  const json odd = {{"hidden_size", 9}, {"num_attention_heads", 3}};
  expect_refused(odd, {"head size", "even", "9 / 3 = 3"});
  json without_rotation = odd;
  without_rotation["position_encoding"] = "shaw";
  EXPECT_EQ(parse_config(without_rotation).head_dim(), 3);
  expect_refused({{"add_cross_attention", true}}, {"add_cross_attention", "is_decoder"});
  expect_refused({{"problem_type", "ranking"}}, {"problem_type", "ranking"});
  expect_refused({{"problem_type", "single_label_classification"}, {"num_labels", 1}}, {"at least 2 labels"});
  expect_refused({{"summary_type", "mean"}}, {"summary_type", "mean"});
  expect_refused({{"classifier_activation", "tanh"}}, {"classifier_activation", "tanh"});
  EXPECT_NO_THROW(parse_config({{"classifier_activation", "gelu"}, {"classifier_dropout", nullptr}}));
}

TEST(Config, LabelsMustAgree) {
  const json id2label = {{"0", "a"}, {"1", "b"}, {"2", "c"}}, label2id = {{"a", 0}, {"b", 1}, {"c", 2}};
  const ModelConfig c = parse_config({{"id2label", id2label}, {"label2id", label2id}, {"num_labels", 3}});
  EXPECT_EQ(c.id2label.size(), 3u);
  EXPECT_EQ(parse_config({{"num_labels", 5}}).num_labels, 5);
  EXPECT_TRUE(parse_config({{"id2label", {{"0", "LABEL_0"}, {"1", "LABEL_1"}}}}).id2label.empty());
  EXPECT_NO_THROW(parse_config({{"id2label", {{"0", "a"}, {"1", "a"}}}, {"label2id", {{"a", 1}}}}));
  EXPECT_EQ(to_json(parse_config({{"id2label", id2label}, {"label2id", {{"a", 0}}}}))["label2id"], label2id);
  // What transformers saves after `config.id2label = ...`: label2id kept its default.
  const json defaults = {{"LABEL_0", 0}, {"LABEL_1", 1}, {"LABEL_2", 2}};
  EXPECT_EQ(to_json(parse_config({{"id2label", id2label}, {"label2id", defaults}}))["label2id"], label2id);
  expect_refused({{"id2label", id2label}, {"num_labels", 2}}, {"num_labels", "3, got 2"});
  expect_refused({{"id2label", {{"0", "a"}, {"2", "b"}}}}, {"id2label", "\"0\" to \"n-1\""});
  expect_refused({{"id2label", {{"0", 1}}}}, {"id2label"});
  expect_refused({{"id2label", json::object()}}, {"id2label"});
  expect_refused({{"id2label", id2label}, {"label2id", {{"a", 0}, {"b", 2}, {"c", 1}}}}, {"label2id", "\"b\": 2"});
  expect_refused({{"label2id", {{"yes", 1}}}}, {"label2id", "\"yes\": 1"});
  expect_refused({{"label2id", 3}}, {"label2id", "an object"});
}

// What transformers computes alike has its model_type, everything else is rf_encoder; both read back as they were.
TEST(Config, ModelTypeFollowsFromWhatIsComputed) {
  const auto type_of = [](const json& keys) {
    const ModelConfig config = parse_config(keys);
    const json written = to_json(config);
    EXPECT_EQ(parse_config(written), config) << written;
    return written["model_type"].get<std::string>();
  };
  EXPECT_EQ(type_of(json::object()), "roformer");
  EXPECT_EQ(type_of({{"position_encoding", "rope"}, {"attention", "softmax"}, {"rope_scaling", nullptr}}), "roformer");
  EXPECT_EQ(type_of({{"position_encoding", {{"type", "rope"}, {"rope_theta", nullptr}}}}), "roformer");
  EXPECT_EQ(type_of({{"rotary_value", true}, {"embedding_size", 64}}), "roformer");
  EXPECT_EQ(type_of({{"model_type", "bert"}}), "bert");
  EXPECT_EQ(type_of({{"family", "bert"}, {"position_encoding", {{"type", "learned"}}}}), "bert");
  const json others[] = {{{"position_encoding", "learned"}},
                         {{"family", "bert"}},
                         {{"family", "bert"}, {"position_encoding", "rope"}, {"rotary_value", true}},
                         {{"position_encoding", {{"type", "shaw"}, {"max_relative_position", 4}}}},
                         {{"position_encoding", {"sinusoidal", {{"type", "rope"}, {"layout", "halves"}}}}},
                         {{"attention", "linear"}},
                         {{"attention", {{"type", "linear"}, {"feature_map", "favor"}}}},
                         {{"rope_theta", 500000.0}},
                         {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 4}}}, {"rope_theta", 1e6}},
                         {{"partial_rotary_factor", 0.5}},
                         {{"original_max_position_embeddings", 64}},
                         {{"position_encoding", {{"type", "rope"}, {"rope_theta", 5.0}, {"rope_scaling", nullptr}}}},
                         {{"model_type", "nezha"}, {"max_relative_position", 8}}};
  for (const json& keys : others) EXPECT_EQ(type_of(keys), "rf_encoder") << keys;
}

TEST(Config, PositionKeys) {
  ModelConfig c = parse_config({{"position_encoding", {{"type", "shaw"}, {"per_head", true}, {"clip", 4}}}});
  EXPECT_EQ(c.position_encodings, (std::vector<EncodingConfig>{{"shaw", R"({"clip":4,"per_head":true})"}}));
  // The keys of Hugging Face are options of the one encoding, and written where they were.
  c = parse_config({{"rope_theta", 500.0}, {"rope_scaling", {{"type", "linear"}, {"factor", 2}}}});
  EXPECT_EQ(c.position_encodings[0].options, R"({"rope_scaling":{"factor":2,"type":"linear"},"rope_theta":500.0})");
  EXPECT_EQ(to_json(c)["rope_theta"], 500.0);
  EXPECT_EQ(to_json(c)["position_encoding"], "rope");
  c = parse_config({{"model_type", "nezha"}});
  EXPECT_EQ(c.position_encodings[0].type, "nezha");
  EXPECT_EQ(c.vocab_size, 21128);
  EXPECT_EQ(c.classifier_dropout, 0.1);
  EXPECT_EQ(parse_config({{"family", "bert"}}).vocab_size, 30522);

  const json two = {"sinusoidal", "rope"};
  expect_refused({{"position_encoding", two}, {"rope_theta", 5.0}}, {"rope_theta", "inside the entry", "5.0", "2"});
  expect_refused({{"position_encoding", {{"type", "rope"}, {"rope_theta", 5}}}, {"rope_theta", 7}},
                 {"rope_theta", "once", "7"});
  expect_refused({{"position_encoding", json::array()}}, {"position_encoding", "none"});
  expect_refused({{"position_encoding", 3}}, {"position_encoding", "a name", "3"});
  expect_refused({{"position_encoding", {{"clip", 3}}}}, {"position_encoding", "type", "{\"clip\":3}"});
  expect_refused({{"attention", "flash"}}, {"attention", "linear", "\"flash\""});
  expect_refused({{"attention", {{"type", "softmax"}, {"eps", 1}}}}, {"softmax", "{\"eps\":1}"});
  expect_refused({{"family", "gpt"}}, {"family", "\"gpt\""});
}

// A file that says it is transformers' own must hold nothing that transformers would not honour.
TEST(Config, DeviationsFromTransformersAreNamed) {
  const std::pair<const char*, json> deviations[] = {{"position_encoding", "alibi"},
                                                     {"position_encoding", {{"type", "rope"}, {"layout", "halves"}}},
                                                     {"attention", "linear"},
                                                     {"training_positions", {{"type", "shifted"}, {"max_shift", 5}}},
                                                     {"rope_theta", 5.0},
                                                     {"rope_parameters", {{"rope_type", "linear"}, {"factor", 2}}},
                                                     {"partial_rotary_factor", 0.5}};
  for (const char* type : {"roformer", "bert"}) {
    for (const auto& [key, value] : deviations)
      expect_refused({{"model_type", type}, {key, value}}, {"model_type", type, key, "rf_encoder"});
  }
  for (const auto& [key, value] : {std::pair("position_encoding", "shaw"), std::pair("attention", "linear")})
    expect_refused({{"model_type", "nezha"}, {key, value}}, {"model_type nezha", key, value, "rf_encoder"});
}

TEST(Config, Architectures) {
  const ModelConfig bert = parse_config({{"model_type", "bert"}});
  EXPECT_EQ(architecture_of(bert, Head::kCausalLm), "BertLMHeadModel");
  EXPECT_EQ(architecture_of(parse_config({{"model_type", "nezha"}}), Head::kMaskedLm), "RfEncoderForMaskedLM");
  // What is read of a model that was pretrained with pairs is the language model; what is written is its class.
  for (const char* name : {"BertForPreTraining", "RoFormerForPreTraining", "RfEncoderForPreTraining"})
    EXPECT_EQ(head_of_architecture(name), Head::kMaskedLm);
  EXPECT_EQ(architecture_of(bert, Head::kPreTraining), "BertForPreTraining");
  EXPECT_EQ(architecture_of({}, Head::kPreTraining), "RoFormerForPreTraining");
  EXPECT_EQ(head_of_architecture("RfEncoderForTokenClassification"), Head::kTokenClassification);
  const json of_bert = {{"architectures", {"BertModel"}}};
  expect_error([&] { (void)parse_config(of_bert).head(); }, {"family", "RoFormerModel", "BertModel"});
  expect_error([] { head_of_architecture("BartModel"); }, {"RoFormerForMaskedLM", "\"BartModel\""});
  expect_error([] { head_of_architecture("a\x1b[31m\n"); }, {"\"a\\x1b[31m\\x0a\""});
  const json of_two = {{"architectures", {"RoFormerModel", "RoFormerForMaskedLM"}}};
  expect_error([&] { (void)parse_config(of_two).head(); }, {"one class", "RoFormerModel, RoFormerForMaskedLM"});
}

}  // namespace
}  // namespace rf
