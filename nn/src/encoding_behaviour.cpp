// Finds the behaviour of each encoding in the table (rf/nn/encoding_info.h) with a small model.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "rf/model/computed_encoding.h"
#include "rf/nn/encoding.h"
#include "rf/nn/encoding_info.h"
#include "rf/nn/model.h"
#include "rf/nn/position_terms.h"
#include "rf/nn/seed_scope.h"

namespace rf::nn {

namespace {

constexpr int64_t kHeadDim = 16, kRows = 16;  // kRows: of tables by position

Model small_model(const EncodingEntry& entry) {
  ModelConfig config;
  config.vocab_size = 2;
  config.num_hidden_layers = config.num_attention_heads = 2;
  config.hidden_size = config.embedding_size = config.intermediate_size = 2 * kHeadDim;
  config.max_position_embeddings = kRows;
  config.is_decoder = entry.info.needs == EncodingInfo::Needs::kCausal;
  config.position_encodings = {entry.example(kHeadDim)};
  const SeedScope seed(1);
  return {config, Head::kNone};
}

// export_onnx writes attention with ONNX operators. There, a vector by distance that multiplies the query would need T
// x S x D numbers (python/roformer_cpp/_onnx/position.py).
bool has_vector_gates(const std::vector<ops::Terms>& layers) {
  return std::any_of(layers.begin(), layers.end(),
                     [](const ops::Terms& terms) { return terms.gate.defined() && terms.gate.rows.size(-1) > 1; });
}

nlohmann::json json_of(const EncodingInfo& info) {
  const EncodingBehaviour behaviour = encoding_behaviour(info.name);
  const bool engine = behaviour.engine_lacks.empty();
  using Lengths = EncodingBehaviour::Lengths;
  const std::map<Lengths, const char*> lengths = {
      {Lengths::kAll, "all"}, {Lengths::kStored, "stored"}, {Lengths::kTable, "table"}};
  return {{"name", info.name},
          {"summary", info.summary},
          {"equation", info.equation},
          {"source", info.source},
          {"terms", info.terms},
          {"parameters", info.parameters},
          {"cost", info.cost},
          {"extrapolates", info.extrapolates},
          {"file", info.file},
          {"test", info.test},
          {"keys", info.keys},
          {"needs_causal", info.needs == EncodingInfo::Needs::kCausal},
          {"shift_invariant", info.invariance == EncodingInfo::Invariance::kShift},
          {"pairwise", info.pairwise == EncodingInfo::Pairwise::kYes},
          {"reads", behaviour.reads},
          {"lengths", lengths.at(behaviour.lengths)},
          {"longest", behaviour.longest > 0 ? nlohmann::json(behaviour.longest) : nlohmann::json()},
          {"position_terms", behaviour.has_file},
          {"engine", engine},
          {"engine_lacks", engine ? nlohmann::json() : nlohmann::json(behaviour.engine_lacks)},
          {"onnx", behaviour.onnx}};
}

}  // namespace

EncodingBehaviour encoding_behaviour(const std::string& name) {
  const c10::NoGradGuard no_grad;
  const Model model = small_model(encoding_entry(name));
  const Encoding& encoding = model.position_encoding();
  EncodingBehaviour behaviour;
  if (encoding.numbers_per_token() > 0) behaviour.reads.emplace_back("tokens");
  if (encoding.reads_vectors()) behaviour.reads.insert(behaviour.reads.end(), {"queries", "keys"});
  const int64_t longest = longest_length(encoding);
  if (longest == kRows) {
    behaviour.lengths = EncodingBehaviour::Lengths::kTable;
  } else if (longest != kAllTokens) {
    behaviour.longest = longest;
  }
  behaviour.has_file = needs_position_terms(model.config());
  if (!behaviour.has_file) return behaviour;
  const ServedTerms served = served_terms(model, std::nullopt);
  behaviour.engine_lacks = served.lacking;
  behaviour.onnx = served.lacking.empty() && !has_vector_gates(served.layers);
  if (served.tokens < served.longest) behaviour.lengths = EncodingBehaviour::Lengths::kStored;
  return behaviour;
}

const nlohmann::json& encodings_json() {
  static const nlohmann::json table = [] {
    nlohmann::json all = nlohmann::json::array();
    for (const EncodingInfo& info : encoding_infos()) all.push_back(json_of(info));
    return all;
  }();
  return table;
}

}  // namespace rf::nn
