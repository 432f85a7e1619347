// Decoders of other families that rotate queries and keys: their configuration, from config.json of a Hugging Face
// directory or the keys of a GGUF file, and their tensors. Two block layouts are supported (x: the residual stream):
//
//   kLlama    x += attention(rms(x)),  x += down(silu(gate(h)) * up(h)), h = rms(x)      Touvron et al. 2023,
//             grouped keys (Ainslie et al. 2023, arXiv 2305.13245)                       arXiv 2302.13971
//   kGptNeox  x += attention(norm1(x)) + mlp(norm2(x)), mlp(h) = down(gelu(up(h)))       Black et al. 2022,
//             with biases; sequential without parallel_residual                          arXiv 2204.06745
//
// The rotation is described in rotary_report.h, with every scaling. Mixtures of experts, windows, quantised weights of
// Hugging Face and other model types are refused by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rf/io/gguf.h"
#include "rf/model/config.h"
#include "rf/model/rotary_rows.h"

namespace rf {

enum class DecoderLayout { kLlama, kGptNeox };

// How the rows of a fused projection of queries, keys and values are ordered.
enum class FusedRows {
  kParts,  // all queries, all keys, all values
  kHeads,  // query, key and value of a head, head by head
};

struct DecoderConfig {
  std::string path;  // file of the configuration, for messages
  DecoderLayout layout = DecoderLayout::kLlama;
  std::string model_type;    // "llama", "mistral", "qwen2" or "gpt_neox"; general.architecture of a GGUF file
  std::string architecture;  // the class in transformers, "LlamaForCausalLM"
  int64_t vocab_size = 0, hidden_size = 0, layers = 0, heads = 0, key_heads = 0, head_dim = 0, intermediate_size = 0;
  int64_t max_position_embeddings = 0;  // 0: not given
  Activation activation = Activation::kSilu;
  double norm_eps = 0;
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  bool tied_embeddings = false, parallel_residual = false;
  FusedRows fused_rows = FusedRows::kParts;
  RotarySettings rotary;
  std::vector<int32_t> stop_ids;      // tokens that end a text
  std::vector<std::string> problems;  // contradictions between files, one sentence each

  int64_t query_width() const { return heads * head_dim; }
  int64_t key_width() const { return key_heads * head_dim; }
};

// The GGUF file of a path: the file itself, or the only GGUF file of a directory without config.json. nullopt for other
// directories.
std::optional<std::string> gguf_path(const std::string& path);
// Whether read_decoder_config supports the path.
bool is_rotary_decoder(const std::string& path);

// Reads the configuration of a directory with config.json. Throws Error, naming file, key and value, for unsupported
// models.
DecoderConfig read_decoder_config(const std::string& model_dir);
// Reads the configuration of a GGUF file.
DecoderConfig read_decoder_config(const std::string& path, const io::GgufFile& file);

// A tensor of a decoder, [out, in] or [n].
struct DecoderTensor {
  std::string name;                     // as in a GGUF file: "blk.0.attn_q.weight"
  std::vector<std::string> file_names;  // in a Hugging Face directory; the first existing one is used
  std::vector<int64_t> shape;
};
// All tensors, the embedding first; the output matrix is omitted if it equals the embedding.
std::vector<DecoderTensor> decoder_tensors(const DecoderConfig& config);
// Possible names of the output matrix in a Hugging Face directory; a file contains one.
std::vector<std::string> decoder_head_names(DecoderLayout layout);
// Whether a tensor of a Hugging Face directory is not a weight: tables and masks stored by old versions.
bool is_decoder_buffer(const std::string& name);

}  // namespace rf
