// A family of models of other libraries: how its configuration fills a ModelConfig, and the names of
// its tensors. Each has a file in this folder and is listed in families.cpp; the table of rotary_report/families.cpp
// has its rotation.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "rf/model/config.h"

namespace rf {

class Keys;  // rotary_report/parts.h

// A module of weight_specs(), without the encoder's prefix, and its name in files; {} stands for the layer's number. A
// module with several rows may have any of the names in a file; the first is written.
struct ModuleName {
  std::string_view module;
  std::string_view in_file;  // of safetensors; modules of the encoder follow the family's prefix
  std::string_view in_gguf;  // "": not in GGUF files
};

enum class Windows {
  kNone,      // the class has no windows
  kAll,       // all layers have sliding_window
  kSwitched,  // with use_sliding_window: those that layer_types names, or from max_window_layers on
};

struct ModelFamily {
  std::string_view model_type;  // of config.json
  std::string_view gguf = "";   // general.architecture; "": no GGUF files
  std::string_view classes;     // how transformers' class names begin
  std::string_view prefix;      // of the encoder's tensors in a model with a head
  bool berts_names = false;     // modules without a row are named as in BERT
  std::span<const ModuleName> modules;
  Family heads = Family::kDecoder;  // kBert: an encoder with BERT's embeddings
  BlockSpec block = {};
  HeadSpec layers_of_heads = {};
  bool has_module = false;  // for training, and an ONNX graph; else the engine alone computes it
  bool token_types = true;  // type_vocab_size counts
  bool rotates = true;      // else positions are as follows
  PositionSpec positions = {};
  Activation activation = Activation::kSilu;
  bool any_activation = false;  // hidden_act may name another
  std::string_view eps_key = "rms_norm_eps";
  double eps = 1e-6;
  Windows windows = Windows::kNone;
  // What the configuration class has for absent keys, where that is not none; keys that are null are none. The table of
  // the report has max_position_embeddings.
  std::string_view defaults = "{}";
  std::vector<std::string_view> keys = {};  // that the class reads besides those of all families
  std::vector<std::pair<std::string_view, std::string_view>> renamed_keys = {};  // the family's, and the usual one
  // Reads these keys.
  void (*read)(const Keys& keys, ModelConfig& config) = nullptr;
};

std::span<const ModelFamily> model_families();

// Of causal models: one matrix after the hidden states.
inline constexpr HeadSpec kDecoderHeads = {.sequence = HeadSpec::Before::kNothing,
                                           .choice = HeadSpec::Before::kNothing,
                                           .bare_pooler = false,
                                           .last_bias = false,
                                           .transform = HeadSpec::Transform::kNone,
                                           .vocabulary_bias = HeadSpec::VocabularyBias::kNone};

// Blocks and modules of Llama, which other families share.
BlockSpec llama_block();
std::span<const ModuleName> llama_modules();
// Heads of RoBERTa, and their modules.
HeadSpec roberta_heads();
std::span<const ModuleName> roberta_modules();

}  // namespace rf
