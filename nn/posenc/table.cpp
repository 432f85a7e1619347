// The table of position encodings, one line each. The name of an encoding appears only in its file and here.
#include <nlohmann/json.hpp>
#include <utility>

#include "python_encoding.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/nearest_name.h"
#include "rf/io/printable.h"
#include "rf/nn/encoding.h"

// Each is a function that returns the encoding's entry, in nn/posenc/<file>.cpp, and its test: tests/nn/test_<test>.py.
// clang-format off
#define RF_POSITION_ENCODINGS(line) \
  line(none, none, absolute) \
  line(learned, learned, absolute) \
  line(sinusoidal, sinusoidal, absolute) \
  line(complex_words, complex_words, absolute) \
  line(floater, floater, absolute) \
  line(shaw, shaw, distance_vectors) \
  line(shaw_literal, shaw, distance_vectors) \
  line(nezha, nezha, distance_vectors) \
  line(music, music, distance_vectors) \
  line(huang_m1, huang, distance_vectors) \
  line(huang_m2, huang, distance_vectors) \
  line(huang_m3, huang, distance_vectors) \
  line(huang_m4, huang, distance_vectors) \
  line(alibi, alibi, distance_bias) \
  line(kerple_log, kerple, distance_bias) \
  line(kerple_power, kerple, distance_bias) \
  line(bam, bam, distance_bias) \
  line(sandwich, sandwich, distance_bias) \
  line(fire, fire, fire) \
  line(fox, fox, contextual) \
  line(transformer_xl, transformer_xl, transformer_xl) \
  line(transformer_xl_literal, transformer_xl, transformer_xl) \
  line(dai_literal, dai_literal, transformer_xl) \
  line(t5, t5, buckets) \
  line(tupe_a, tupe, buckets) \
  line(tupe_r, tupe, buckets) \
  line(deberta, deberta, buckets) \
  line(deberta_literal, deberta, buckets) \
  line(rope, rope, rope) \
  line(axial, axial, axes) \
  line(axial_nd, axial_nd, axes) \
  line(rope_mixed, rope_mixed, axes) \
  line(fope, fope, rope) \
  line(rerope, rerope, rope) \
  line(cope, cope, contextual) \
  line(dape, dape, contextual) \
  line(path, path, contextual) \
  line(mrope, mrope, axes) \
  line(xpos, xpos, rope) \
  line(log_n, log_n, rope)
// clang-format on

namespace rf::nn {

namespace posenc {
#define RF_DECLARE(name, file, test) EncodingEntry name();
RF_POSITION_ENCODINGS(RF_DECLARE)
}  // namespace posenc

namespace {

// An entry with the names of its files.
EncodingEntry with_files(EncodingEntry entry, const std::string& file, const std::string& test) {
  entry.info.file = "nn/posenc/" + file + ".cpp";
  entry.info.test = "tests/nn/test_" + test + ".py";
  return entry;
}

const std::vector<EncodingEntry>& table() {
#define RF_ENTRY(name, file, test) with_files(posenc::name(), #file, #test),
  static const std::vector<EncodingEntry> entries = {RF_POSITION_ENCODINGS(RF_ENTRY)};
  return entries;
}

}  // namespace

std::vector<EncodingInfo> encoding_infos() {
  std::vector<EncodingInfo> infos;
  for (const EncodingEntry& entry : table()) infos.push_back(entry.info);
  return infos;
}

EncodingConfig EncodingEntry::example(int64_t head_dim) const {
  return {info.name, required_keys == nullptr ? "{}" : required_keys(head_dim)};
}

const EncodingEntry& encoding_entry(const std::string& name) {
  std::vector<std::string_view> names;
  for (const EncodingEntry& entry : table()) {
    if (entry.info.name == name) return entry;
    names.push_back(entry.info.name);
  }
  const std::string_view nearest = io::nearest_name(name, names);
  fail("position_encoding", "type must be a known encoding, got {}{}", io::printable(name),
       nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
}

std::shared_ptr<Encoding> make_encoding(const EncodingConfig& config, const EncodingShape& shape) {
  if (std::shared_ptr<Encoding> encoding = make_python_encoding(config, shape)) return encoding;
  const EncodingEntry& entry = encoding_entry(config.type);
  if (entry.info.needs == EncodingInfo::Needs::kCausal && !shape.causal) {
    fail("position_encoding", "{} needs causal attention (is_decoder), got a bidirectional model", config.type);
  }
  const std::pair<const char*, int64_t> sizes[] = {
      {"num_hidden_layers", shape.layers},  {"num_attention_heads", shape.heads},
      {"head_dim", shape.head_dim},         {"hidden_size", shape.hidden_size},
      {"embedding_size", shape.input_size}, {"max_position_embeddings", shape.max_position_embeddings}};
  for (const auto& [key, size] : sizes) {
    if (size < 1) fail("position_encoding", "{} must be at least 1, got {}", key, size);
  }
  const nlohmann::json json = io::parse_json(config.options, "position_encoding");
  io::StrictObject options(json, "position_encoding", config.type);
  std::shared_ptr<Encoding> encoding = entry.make(options, shape);
  if (entry.info.needs == EncodingInfo::Needs::kCausal) encoding->set_made_for(MadeFor::kCausal);
  options.finish();
  return encoding;
}

}  // namespace rf::nn
