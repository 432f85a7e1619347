// The report of a model directory with config.json (parts.h): which model it is, its sizes, and the dictionaries of
// its rotations as transformers 5 finds them.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "parts.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/model/computed_encoding.h"
#include "rf/model/config.h"

namespace rf {
namespace {

using nlohmann::json;

constexpr int kConfigVersion4 = 4, kConfigVersion5 = 5;

bool is_in_table(const json& object) {
  const json* const type = given(object, "model_type");
  return type != nullptr && type->is_string() && find_rotary_family(type->get<std::string>()) != nullptr;
}

// The object that describes the text model: that of a model of several media is inside. path: "text_config.", or "".
const json& text_model(const json& top, std::string& path) {
  const bool has_width = given(top, "hidden_size") != nullptr || given(top, "n_embd") != nullptr;
  if (is_in_table(top)) return top;
  for (const char* key : {"text_config", "llm_config", "language_config", "thinker_config", "vlm_config"}) {
    const json* const inner = given(top, key);
    if (inner == nullptr || !inner->is_object() || (has_width && !is_in_table(*inner))) continue;
    path += fmt::format("{}.", key);
    return text_model(*inner, path);
  }
  return top;
}

class ConfigReader {
 public:
  ConfigReader(const json& top, RotaryReport& report)
      : config_(text_model(top, prefix_)),
        top_(top),
        report_(report),
        findings_(report.findings),
        keys_(config_, report.path, prefix_) {}

  void read() {
    report_.model_type = keys_.text("model_type");
    report_.part = prefix_.substr(0, prefix_.empty() ? 0 : prefix_.size() - 1);
    if (prefix_.empty() && report_.model_type == "rf_encoder") return;  // read_own() reads the rest
    family_ = find_rotary_family(report_.model_type);
    // Files of version 4 have the text model's keys at the top of qwen2_vl.
    if (family_ == nullptr && refused_rotation(report_.model_type).empty())
      family_ = find_rotary_family(report_.model_type + "_text");
    check_that_it_rotates();
    read_sizes();
    read_version();
    if (family_ == nullptr) {
      findings_.note(
          "unknown-model-type",
          "{} is not in the table of model types (roformer doctor --families), so that its pairing is not known "
          "and keys are read as Llama's",
          report_.model_type.empty() ? "a file without model_type" : report_.model_type);
    }
    note_unread_keys(config_, prefix_, report_.model_type, family_, findings_);
    read_rotations();
    read_unrotated();
  }

  const RotaryFamily* family() const { return family_; }
  const json& config() const { return config_; }

 private:
  [[noreturn]] void refuse(std::string_view encoding) const {
    fail(report_.path, "the model must rotate queries and keys, got {} with {}", report_.model_type, encoding);
  }

  void check_that_it_rotates() {
    const std::string& type = report_.model_type;
    if (const std::string_view other = other_encoding(type); !other.empty()) refuse(other);
    if (type == "falcon" && keys_.boolean("alibi", false)) refuse("ALiBi (alibi is true)");
    if (family_ != nullptr) return check_needed_key();
    if (const std::string_view other = refused_rotation(type); !type.empty() && !other.empty()) {
      fail(report_.path, "the model type must be in the table (roformer doctor --families), got {}, which has {}", type,
           other);
    }
    for (const std::string_view key : rotary_keys()) {
      if (given(config_, std::string(key)) != nullptr) return;
    }
    fail(report_.path, "the model type must be one that rotates, or a key of rotary embedding must be there, got {}",
         type.empty() ? "neither" : io::printable(type));
  }

  void check_needed_key() const {
    if (family_->needed_key.empty()) return;
    const json* const value = given(config_, std::string(family_->needed_key));
    const bool is_text = value != nullptr && value->is_string();
    if (value == nullptr || (is_text ? value->get<std::string>() : value->dump()) != family_->needed_value)
      refuse(fmt::format("{} other than {}", family_->needed_key, family_->needed_value));
  }

  // The key of the text model, otherwise that of the whole model.
  std::string text_anywhere(const char* name) const {
    const std::string inside = keys_.text(name);
    return inside.empty() ? Keys(top_, report_.path, "").text(name) : inside;
  }

  void read_version() {
    if (given(config_, "rope_parameters") != nullptr) {
      report_.version = kConfigVersion5;
      return;
    }
    const std::string written = text_anywhere("transformers_version");
    // Version 5 moves these into rope_parameters.
    constexpr const char* kOldKeys[] = {"rope_scaling",      "rope_theta",       "rope_local_base_freq",
                                        "global_rope_theta", "local_rope_theta", "rotary_emb_base"};
    const bool has_old_keys =
        std::ranges::any_of(kOldKeys, [&](const char* key) { return given(config_, key) != nullptr; });
    if (has_old_keys || written.starts_with("4.")) report_.version = kConfigVersion4;
    if (written.starts_with("5.")) report_.version = kConfigVersion5;
  }

  void read_sizes() {
    report_.layers = keys_.integer({"num_hidden_layers", "n_layer", "n_layers"}, 0, kMaxReportedLayers);
    report_.heads = keys_.integer({"num_attention_heads", "n_head", "n_heads", "num_heads"}, 1, kMaxHeads);
    report_.length = keys_.integer({"max_position_embeddings", "n_positions", "max_seq_len"}, 1, kMaxReportedLength);
    const bool says_length = config_.contains("max_position_embeddings") || config_.contains("n_positions") ||
                             config_.contains("max_seq_len");
    if (!says_length && family_ != nullptr && family_->length != 0) {
      report_.length = family_->length;
      findings_.note("length", "max_position_embeddings is absent, so that transformers takes {}, that of its class",
                     report_.length);
    }
    report_.kv_heads = keys_.integer({"num_key_value_heads"}, 1, kMaxHeads);
    report_.dtype = text_anywhere("dtype");
    if (report_.dtype.empty()) report_.dtype = text_anywhere("torch_dtype");
    const int64_t width = keys_.integer({"hidden_size", "n_embd", "d_model"}, 1, kMaxWidth);
    if (report_.model_type == "falcon") {
      const int64_t grouped = keys_.integer({"num_kv_heads"}, 1, kMaxHeads);
      const bool new_layout = keys_.boolean("new_decoder_architecture", false);
      report_.kv_heads = new_layout ? grouped : keys_.boolean("multi_query", true) ? 1 : report_.heads;
    }
    const std::string head_key(family_ == nullptr ? "head_dim" : family_->head_key);
    if (!head_key.empty()) report_.head_size = keys_.integer({head_key.c_str()}, 1, kMaxHeadSize);
    if (report_.head_size == 0 && family_ != nullptr) report_.head_size = family_->head_dim;
    if (report_.head_size == 0) {
      if (width == 0 || report_.heads == 0) {
        fail(report_.path, "{}hidden_size and {}num_attention_heads must be given where head_dim is not, got {}",
             prefix_, prefix_, width == 0 ? "no hidden_size" : "no num_attention_heads");
      }
      report_.head_size = width / report_.heads;
      if (report_.head_size == 0 || report_.head_size > kMaxHeadSize) {
        fail(report_.path, "hidden_size / num_attention_heads must be from 1 to {}, got {} / {}", kMaxHeadSize, width,
             report_.heads);
      }
      if (width % report_.heads != 0) {
        findings_.problem("heads", "hidden_size, {}, is not a multiple of num_attention_heads, {}", width,
                          report_.heads);
      }
    }
    if (report_.kv_heads > 0 && report_.heads % report_.kv_heads != 0) {
      findings_.problem("kv-heads", "num_attention_heads, {}, is not a multiple of num_key_value_heads, {}",
                        report_.heads, report_.kv_heads);
    }
    if (report_.length == 0)
      findings_.note("length", "max_position_embeddings is absent or null, so that errors of angles are not known");
  }

  // Where layers of a type have heads of another size, per_layer_config gives it.
  int64_t head_size_in(const std::string& layers) const {
    const json* const own = keys_.object("per_layer_config");
    const json* const types = keys_.list("layer_types");
    int64_t found = 0;
    for (size_t i = 0; own != nullptr && types != nullptr && i < types->size(); ++i) {
      if ((*types)[i] != layers) continue;
      int64_t here = report_.head_size;
      if (const json* const layer = given_to_layer(*own, i); layer != nullptr && layer->is_object()) {
        const Keys inside(*layer, report_.path, fmt::format("{}per_layer_config.{}.", prefix_, i));
        if (const int64_t size = inside.integer({"head_dim"}, 1, kMaxHeadSize); size != 0) here = size;
      }
      if (found != 0 && here != found) {
        fail(report_.path, "layers of one type must have heads of one size, got {} and {} in {}", found, here,
             io::printable(layers));
      }
      found = here;
    }
    return found == 0 ? report_.head_size : found;
  }

  // The facts outside a dictionary of rope_parameters that its rotation depends on.
  RotationShape shape_of(const json& dictionary, const std::string& path, const std::string& layers) {
    const bool local = layers == "sliding_attention";
    RotationShape shape;
    shape.file = report_.path;
    shape.model_type = report_.model_type;
    shape.family = family_;
    shape.head_size = head_size_in(layers);
    shape.length = report_.length;
    const std::string_view top_key = family_ == nullptr                          ? "rope_theta"
                                     : local && !family_->local_base_key.empty() ? family_->local_base_key
                                                                                 : family_->base_key;
    const double fallback = family_ == nullptr                             ? RopeSpec().theta
                            : local && family_->layers != LayerTypes::kOne ? family_->local_base
                                                                           : family_->base;
    shape.base = base_of(dictionary, path, keys_, top_key, fallback, findings_);
    constexpr const char* kOriginal = "original_max_position_embeddings";
    const bool takes_default = family_ != nullptr && !config_.contains(kOriginal);
    const int64_t original =
        takes_default ? family_->original_length : keys_.integer({kOriginal}, 1, kMaxReportedLength);
    if (original != 0) shape.original_length = original;
    set_part(dictionary, path, shape);
    return shape;
  }

  void set_part(const json& dictionary, const std::string& path, RotationShape& shape) {
    constexpr const char* kShareKey = "partial_rotary_factor";
    const RotarySize size = family_ == nullptr ? RotarySize::kShare : family_->size;
    if (size == RotarySize::kDim) {
      shape.rotary_dim = keys_.integer({std::string(family_->part_key).c_str()}, 1, kMaxHeadSize);
      if (shape.rotary_dim == 0) shape.rotary_dim = static_cast<int64_t>(family_->part);
      return;
    }
    const Keys inside(dictionary, report_.path, path + ".");
    double share = inside.number(kShareKey, 0, {0, 1, io::NumberRange::Ends::kOpenLow});
    const std::string top_key(family_ == nullptr ? kShareKey : family_->part_key);
    const double at_top = keys_.number(top_key.c_str(), 0, {0, 1, io::NumberRange::Ends::kOpenLow});
    if (share != 0 && at_top != 0 && share != at_top) {
      findings_.problem("share-differs", "{} is {} and {}.{} is {}; transformers 5 follows the second", top_key, at_top,
                        path, kShareKey, share);
    }
    if (share == 0) share = at_top;
    if (size == RotarySize::kWhole) {
      // For classes that rotate whole heads, transformers reads the share only with a scaling.
      const json* const new_type = given(dictionary, "rope_type");
      const json* const type = new_type != nullptr ? new_type : given(dictionary, "type");
      const bool scaled = type != nullptr && *type != "default" && *type != "mrope";
      if (share != 0 && share != 1 && !scaled) {
        findings_.problem("ignored-share", "{} is {}, and {} rotates whole heads in transformers; vLLM follows the key",
                          kShareKey, share, report_.model_type);
      }
      shape.share = scaled && share != 0 ? share : 1;
      return;
    }
    shape.share = share != 0 ? share : family_ == nullptr ? 1 : family_->part;
  }

  void add(const json& dictionary, const std::string& path, const std::string& layers) {
    Rotation rotation = read_rotation(dictionary, path, shape_of(dictionary, path, layers), findings_);
    rotation.layers = layers;
    if (family_ != nullptr && !family_->pairs_key.empty()) {
      const bool pairs = keys_.boolean(std::string(family_->pairs_key).c_str(), true);
      rotation.layout = pairs ? RotaryLayout::kPairs : RotaryLayout::kHalves;
    }
    report_.rotations.push_back(std::move(rotation));
  }

  void read_rotations() {
    if (family_ != nullptr && !family_->reads_scaling) return add(json::object(), prefix_ + "rope_parameters", "all");
    const LayerTypes layers = family_ == nullptr ? LayerTypes::kOne : family_->layers;
    for (const GivenRotation& each : given_rotations(keys_, report_.model_type, family_, layers, findings_))
      add(each.dictionary, each.path, each.layers);
  }

  void read_unrotated() {
    if (family_ == nullptr || report_.layers == 0) return;
    report_.unrotated_layers = unrotated_layers(keys_, *family_, report_.layers, findings_);
  }

  std::string prefix_;
  const json& config_;
  const json& top_;
  RotaryReport& report_;
  Findings findings_;
  Keys keys_;
  const RotaryFamily* family_ = nullptr;
};

// A model of this program: its own reader knows the keys.
void read_own(const std::string& directory, RotaryReport& report) {
  const ModelConfig config = load_config(directory);
  report.layers = config.num_hidden_layers;
  report.heads = report.kv_heads = config.num_attention_heads;
  report.head_size = config.head_dim();
  report.length = config.max_position_embeddings;
  for (const EncodingConfig& encoding : config.position_encodings) {
    const std::optional<ComputedEncoding> computed = computed_encoding(encoding, config);
    const auto* const rotary = computed ? std::get_if<RotarySettings>(&*computed) : nullptr;
    if (rotary == nullptr || rotary->form == RotaryForm::kAxial || rotary->form == RotaryForm::kAxialNd ||
        rotary->form == RotaryForm::kLogN) {
      continue;
    }
    Rotation rotation;
    rotation.layout = rotary->layout;
    rotation.base = rotary->spec.theta;
    rotation.scaling = name(rotary->spec.type);
    rotation.spec = rotary->spec;
    report.rotations.push_back(std::move(rotation));
  }
  if (report.rotations.empty()) {
    fail(report.path, "the model must rotate queries and keys by one position, got position_encoding {}",
         config.position_encodings.empty() ? "none" : io::printable(config.position_encodings[0].type));
  }
}

bool has_weights(const std::filesystem::path& directory) {
  return io::has_file(directory / "model.safetensors") || io::has_file(directory / "model.safetensors.index.json");
}

}  // namespace

RotaryReport report_of_object(const json& object, const std::string& path) {
  RotaryReport report;
  report.path = path;
  report.format = "config.json";
  ConfigReader(object, report).read();
  for (Rotation& rotation : report.rotations) complete(rotation, report.length);
  return report;
}

RotaryReport report_of_config(const std::string& directory) {
  RotaryReport report;
  report.path = (std::filesystem::path(directory) / "config.json").string();
  report.format = "config.json";
  const json top = io::read_json(report.path);
  if (!top.is_object()) fail(report.path, "the file must be an object, got {}", shown(top));
  ConfigReader reader(top, report);
  reader.read();
  if (report.model_type == "rf_encoder") read_own(directory, report);
  for (Rotation& rotation : report.rotations) complete(rotation, report.length);
  Findings findings(report.findings);
  if (has_weights(directory)) {
    const CheckpointFiles files(directory, report.path);
    report.tensors = std::ssize(files.tensors());
    check_weights(files, {.family = reader.family(), .config = &reader.config(), .file = report.path}, report,
                  findings);
  }
  note_angles(report, findings);
  return report;
}

}  // namespace rf
