// Names of the pipelines.
#include <algorithm>
#include <iterator>
#include <utility>

#include "rf/io/error.h"
#include "rf/text/tokenizer.h"

namespace rf::text {
namespace {

constexpr std::pair<Pipeline, std::string_view> kNames[] = {{Pipeline::kBert, "bert"},
                                                            {Pipeline::kBertLegacy, "bert-legacy"},
                                                            {Pipeline::kRoformer, "roformer"},
                                                            {Pipeline::kWobert, "wobert"},
                                                            {Pipeline::kByteLevelBpe, "byte-level-bpe"}};

}  // namespace

std::string_view name(Pipeline pipeline) {
  return std::ranges::find(kNames, pipeline, &std::pair<Pipeline, std::string_view>::first)->second;
}

Pipeline pipeline_of_name(std::string_view name) {
  const auto* found = std::ranges::find(kNames, name, &std::pair<Pipeline, std::string_view>::second);
  if (found == std::end(kNames)) {
    fail("tokenizer", "pipeline must be bert, bert-legacy, roformer, wobert or byte-level-bpe, got \"{}\"", name);
  }
  return found->first;
}

}  // namespace rf::text
