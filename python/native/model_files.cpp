// ModelFiles: a model directory as data, for what writes it in another form (python/roformer_cpp/onnx_export.py,
// convert.py): its configuration, its tensors by the names of rf/model/weights.h, and what its position encodings
// give a token. The directory is opened by the engine first, so that every rule of a model holds for what is read here.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <variant>

#include "bindings.h"
#include "rf/engine/model.h"
#include "rf/io/warning.h"
#include "rf/model/checkpoint_files.h"
#include "rf/model/computed_encoding.h"
#include "rf/model/config.h"
#include "rf/model/foreign_models.h"
#include "rf/model/linear_attention_config.h"
#include "rf/model/position_terms.h"
#include "rf/model/weights.h"

namespace rf::python {

namespace nb = nanobind;
using nlohmann::json;

namespace {

constexpr const char* kFilesWhere = "model";

json described(const NoPosition&) { return {{"kind", "none"}}; }
json described(const LearnedInput& learned) { return {{"kind", "learned"}, {"rows", learned.positions}}; }
json described(const SinusoidalInput&) { return {{"kind", "sinusoidal"}}; }
json described(const NezhaTable& nezha) { return {{"kind", "nezha"}, {"clip", nezha.clip}}; }
json described(const RotarySettings& settings) {
  return {{"kind", "rotary"},
          {"layout", name(settings.layout)},
          {"trained", parameter_name(settings.trained)},
          {"float32", settings.spec.precision == RopePrecision::kFloat32},
          {"rotary_dim", 2 * RotaryRows(settings).pairs()},
          {"rotates_values", settings.rotates_values}};
}

// How layers are built. Describe a new member of ModelConfig's structures here and teach it to the exporters, which
// otherwise leave it out of a graph. Names of weights tell which matrices are joined and which biases exist.
json described_blocks(const ModelConfig& config) {
  const auto& [norm, norm_weight, norm_bias, pre_norm, parallel, gated, query_key_norm, head_norm, value_norm,
               whole_query_key_norm, norm_plus_one, post_norm, attention_twice, first_attention_norm, input_norm,
               shared_norm, residual_scale, attention_scale, score_cap, qkv_bias, output_bias, mlp_bias, up_bias,
               query_value_bias, fused_qkv, fused_gate, transposed, shared, experts, experts_per_token, expert_interval,
               expert_offset, expert_width, expert_shares_one, expert_bias, expert_files, expert_limit, expert_slope,
               layer_input_width, conv_kernel, conv_groups, conv_act, embedding_norm_last, layer_scale, sinks] =
      config.block;
  json layers = json::array();
  for (const auto& [window, rotation, head_dim, key_heads] : config.layers) {
    layers.push_back({{"window", window},
                      {"rotation", rotation},
                      {"head_dim", head_dim > 0 ? head_dim : config.head_dim()},
                      {"key_heads", key_heads > 0 ? key_heads : config.key_heads()}});
  }
  return {{"rms_norm", norm == NormKind::kRms},
          {"pre_norm", pre_norm},
          {"parallel", parallel},
          {"norm_plus_one", norm_plus_one},
          {"first_attention_norm", first_attention_norm},
          {"attention_scale", attention_scale},
          {"by_head", fused_qkv == BlockSpec::Fused::kHeads},
          {"up_first", fused_gate == BlockSpec::FusedGate::kUpGate},
          {"shared", shared},
          {"whole_query_key_norm", whole_query_key_norm},
          {"norms_of_heads", query_key_norm && head_norm != BlockSpec::HeadNorm::kShared},
          {"linear_positions", config.positions.relative == PositionSpec::Relative::kLinear && config.is_decoder},
          {"attention_twice", attention_twice},
          {"norms_of_results_alone", !input_norm},
          {"shared_norm", shared_norm},
          {"residual_scale", residual_scale != 1},
          {"score_cap", score_cap > 0},
          {"transposed_matrices", transposed},
          {"joined_groups", fused_qkv != BlockSpec::Fused::kNone && config.key_heads() != config.num_attention_heads},
          {"scaled_logits", config.heads.logit_scale != 1 || config.heads.logit_cap > 0},
          {"layers_without_rotation",
           std::ranges::any_of(config.layers, [](const LayerSpec& each) { return each.rotation < 0; })},
          {"experts", experts > 0},
          {"convolution", conv_kernel > 0},
          {"embedding_norm_last", embedding_norm_last},
          {"sinks", sinks},
          {"value_norm", value_norm},
          {"adapters", config.adapters.has_value()},
          {"embedding_norm", config.embedding_norm},
          {"final_norm", config.final_norm},
          {"projects_embeddings", config.projects_embeddings()},
          {"key_heads", config.key_heads()},
          {"first_row", config.positions.first_row},
          {"padding_id", config.positions.padding_id},
          {"dropped_id", config.dropped_id},
          {"layers", layers}};
}

// The computation of the head; activations by name.
json described_head(const ModelConfig& config, Head head) {
  constexpr const char* kReads[] = {"tokens", "first", "last", "mean", "mean_logits"};
  json stages = json::array(), outputs = json::array();
  for (const HeadStage& stage : head_stages(config, head)) {
    stages.push_back(
        {{"linear", stage.linear},
         {"activation", stage.activation ? json(std::string(name_of_activation(*stage.activation))) : json()},
         {"norm", stage.norm}});
  }
  for (const auto& [name, extents] : head_outputs(config, head)) outputs.push_back({name, extents});
  return {{"reads", kReads[static_cast<int>(head_reads(config, head))]},
          {"chooses", row_of(head).reads == HeadRow::Reads::kChoice},
          {"stages", stages},
          {"outputs", outputs}};
}

// The configuration of linear attention, with what config.json leaves out; null: softmax attention.
json described_linear_attention(const ModelConfig& config) {
  if (!has_linear_attention(config)) return nullptr;
  check_no_log_n(config);
  const LinearAttentionConfig linear = parse_linear_attention(config.attention);
  return {{"feature_map", name(linear.feature_map)},
          {"rope_site", name(linear.rope_site)},
          {"rotate_denominator", linear.rotate_denominator},
          {"eps", linear.eps},
          {"feature_eps", linear.feature_eps}};
}

class ModelFiles {
 public:
  ModelFiles(const std::string& model_dir, bool bare) : model_dir_(model_dir) {
    const nb::gil_scoped_release release;
    const engine::ModelOptions options{
        .head = bare ? engine::ModelOptions::Head::kBare : engine::ModelOptions::Head::kConfigured,
        .warn = [this](const std::string& text) { warnings_.push_back(text); }};
    const io::WarningScope scope([](const std::string&) {});  // the engine has said them
    const engine::Model model(model_dir, options);
    info_ = model.info();
    terms_ = model.position_terms();
    config_ = load_any_config(model_dir);
    if (!config_.rotations.empty() && is_decoder()) config_.position_encodings.clear();  // the rotations replace them
    head_ = bare ? Head::kNone : config_.head();
    files_ = std::make_unique<const CheckpointFiles>(model_dir, kFilesWhere);
    std::vector<NamedShape> shapes = files_->shapes();
    std::erase_if(shapes, [](const NamedShape& each) { return is_added_name(each.name); });
    // The engine found the head in the file; a bare BERT may lack its pooler.
    WeightMatch match = match_weights(config_, head_, shapes, FreshHead::kAllowed);
    add_untied(*files_, config_, match);  // the engine has warned about them
    names_ = std::move(match.names);
  }

  // As JSON: the configuration; the prefix of the encoder's names; {name in the model: name in the file} of the tensors
  // that the head uses; the encodings, and what they multiply word embeddings by; linear attention.
  std::string description() const {
    json encodings = json::array();
    for (const EncodingConfig& encoding : config_.position_encodings) {
      const std::optional<ComputedEncoding> computed = computed_encoding(encoding, config_);
      json entry =
          computed ? std::visit([](const auto& each) { return described(each); }, *computed) : json{{"kind", "terms"}};
      entry["type"] = encoding.type;
      encodings.push_back(std::move(entry));
    }
    for (const RotarySettings& each : config_.rotations) {
      encodings.push_back(described(each));
      encodings.back()["type"] = "rope";
    }
    const json sizes = {{"vocab_size", config_.vocab_size},
                        {"hidden_size", config_.output_width()},
                        {"num_hidden_layers", config_.num_hidden_layers},
                        {"num_attention_heads", config_.num_attention_heads},
                        {"classifier_pooling", config_.classifier_pooling},
                        {"embedding_size", config_.embedding_size},
                        {"type_vocab_size", config_.type_vocab_size},
                        {"pad_token_id", config_.pad_token_id},
                        {"rotary_value", config_.rotary_value},
                        {"num_labels", config_.num_labels},
                        {"is_decoder", config_.is_decoder},
                        {"head_dim", config_.head_dim()},
                        {"max_position_embeddings", config_.max_position_embeddings},
                        {"hidden_act", std::string(name_of_activation(config_.hidden_act))},
                        {"layer_norm_eps", config_.layer_norm_eps}};
    return text_of({{"config", is_decoder() ? json{{"model_type", config_.foreign_type}} : to_json(config_)},
                    {"sizes", sizes},  // that transformers' configurations may lack
                    {"architecture", info_.architecture},
                    {"family", family_name(config_.family)},
                    {"position_table", has_position_table(config_)},
                    {"prefix", encoder_prefix(config_, head_)},
                    {"names", names_},
                    {"linear_attention", described_linear_attention(config_)},
                    {"encodings", encodings},
                    {"blocks", described_blocks(config_)},
                    {"head", described_head(config_, head_)},
                    {"word_scale", word_scale(config_) * config_.embedding_scale}});
  }

  std::vector<std::string> file_names() const {
    std::vector<std::string> names;
    for (const auto& [name, view] : files_->tensors()) names.push_back(name);
    return names;
  }

  // (dtype as safetensors names it, shape, bytes) of a tensor of the file.
  nb::tuple tensor(const std::string& name) const {
    const auto found = files_->tensors().find(name);
    if (found == files_->tensors().end()) fail<ArgumentError>(kFilesWhere, "there must be a tensor {}, got none", name);
    const io::TensorView& view = *found->second;
    return nb::make_tuple(std::string(io::safetensors_name(view.dtype)), view.shape,
                          nb::bytes(reinterpret_cast<const char*>(view.data.data()), view.data.size()));
  }

  // (cos, sin) of queries and of keys, [tokens, pairs], at the positions 0 .. tokens - 1 of an encoding of the kind
  // rotary. frequencies: where they are trained or of precision float32.
  nb::tuple rotation(size_t encoding, int64_t tokens, std::vector<float> frequencies) const {
    const auto settings = std::get<RotarySettings>(computed(encoding));
    GivenFrequencies given;
    if (!frequencies.empty()) given = [&](int64_t) { return frequencies; };
    const RotaryRows rows(settings, given);
    const bool xpos = settings.form == RotaryForm::kXpos;
    if (!xpos && rows.depends_on_sequence(tokens)) {
      fail<ArgumentError>(kFilesWhere,
                          "a rotation that changes with the length of a sequence (rope_type {}) must stay within {} "
                          "tokens here, got {}",
                          name(settings.spec.type), settings.spec.trained_length, tokens);
    }
    on_open_model([&] { rows.check_span(tokens, io::DType::kF32); });
    const std::vector<int64_t> positions = positions_to(tokens);
    const std::vector<int64_t> first(positions.size(), 0), end(positions.size(), tokens);
    const RotaryTokens all{.count = tokens, .ids = positions.data(), .first = first.data(), .end = end.data()};
    nb::list result;
    for (const RotarySide side : {RotarySide::kQuery, RotarySide::kKey}) {
      const auto pairs = static_cast<size_t>(rows.pairs());
      std::vector<float> cos(positions.size() * pairs), sin(cos.size());
      rows.fill(side, all, cos.data(), sin.data());
      result.append(array_of(std::move(cos), {positions.size(), pairs}));
      result.append(array_of(std::move(sin), {positions.size(), pairs}));
    }
    return nb::tuple(result);
  }

  // [tokens, embedding_size], of an encoding of the kind sinusoidal.
  nb::object sinusoids(size_t encoding, int64_t tokens) const {
    const auto settings = std::get<SinusoidalInput>(computed(encoding));
    const std::vector<int64_t> positions = positions_to(tokens);
    const auto width = static_cast<size_t>(config_.embedding_size);
    std::vector<float> rows(positions.size() * width);
    sinusoid(positions.data(), tokens, config_.embedding_size, settings.layout, rows.data());
    return array_of(std::move(rows), {positions.size(), width});
  }

  // The constant terms of the encodings, or None: (scale or None, longest sequence or None, [terms of a layer]), where
  // terms are {name: (array, lo, hi)} and the last entry holds the terms shared by all layers.
  nb::object terms() const {
    if (terms_ == nullptr) return nb::none();
    const PositionTerms& terms = *terms_;
    nb::list layers;
    for (const PositionTerms::Terms& layer : terms.layers) layers.append(dictionary(layer));
    layers.append(dictionary(terms.shared));
    const int64_t longest = std::min(terms.tokens, terms.longest);
    return nb::make_tuple(terms.scale, longest == kAllTokens ? std::nullopt : std::optional(longest), layers);
  }

  // Whether the engine takes a RoFormer's rotations from the table of its checkpoint, float64 [rows * head_dim].
  bool uses_stored_table(const std::vector<double>& table) const {
    return stored_table_warning(model_dir_, table, config_.head_dim()).has_value();
  }

  // That table as transformers stores it, [max_position_embeddings, head_dim].
  nb::object computed_table() const {
    const int64_t rows = config_.max_position_embeddings, dim = config_.head_dim();
    return array_of(position_table(rows, dim), {static_cast<size_t>(rows), static_cast<size_t>(dim)});
  }

  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  bool is_decoder() const { return config_.family == Family::kDecoder; }

  ComputedEncoding computed(size_t encoding) const {
    const size_t own = config_.position_encodings.size();
    if (encoding >= own) return config_.rotations.at(encoding - own);
    return *computed_encoding(config_.position_encodings.at(encoding), config_);
  }

  static std::vector<int64_t> positions_to(int64_t tokens) {
    std::vector<int64_t> positions(static_cast<size_t>(tokens));
    std::iota(positions.begin(), positions.end(), int64_t{0});
    return positions;
  }

  static nb::dict dictionary(const PositionTerms::Terms& terms) {
    nb::dict result;
    for (const auto& [name, term] : terms) {
      const nb::object flat = array_of(std::vector<float>(term.values.begin(), term.values.end()));
      result[name.c_str()] = nb::make_tuple(flat.attr("reshape")(nb::cast(term.shape)), term.lo, term.hi);
    }
    return result;
  }

  std::string model_dir_;
  std::vector<std::string> warnings_;
  engine::ModelInfo info_;
  ModelConfig config_;
  Head head_ = Head::kNone;
  std::unique_ptr<const CheckpointFiles> files_;
  std::shared_ptr<const PositionTerms> terms_;
  std::map<std::string, std::string> names_;
};

}  // namespace

void bind_model_files(nb::module_& module) {
  nb::class_<ModelFiles>(module, "ModelFiles")
      .def(nb::init<const std::string&, bool>(), nb::arg("model_dir"), nb::arg("bare"))
      .def("description", &ModelFiles::description)
      .def("file_names", &ModelFiles::file_names)
      .def("tensor", &ModelFiles::tensor, nb::arg("name"))
      .def("rotation", &ModelFiles::rotation, nb::arg("encoding"), nb::arg("tokens"), nb::arg("frequencies"))
      .def("sinusoids", &ModelFiles::sinusoids, nb::arg("encoding"), nb::arg("tokens"))
      .def("terms", &ModelFiles::terms)
      .def("uses_stored_table", &ModelFiles::uses_stored_table, nb::arg("table"))
      .def("computed_table", &ModelFiles::computed_table)
      .def("warnings", &ModelFiles::warnings);
}

}  // namespace rf::python
