// transformers' BertTokenizerLegacy, with Python's Unicode rules (spec R-TOK-04).
#include <memory>

#include "pipelines/pipeline.h"
#include "splitters/legacy_splitter.h"

namespace rf::text::pipelines {

const PipelineEntry& bert_legacy() {
  static const PipelineEntry entry = {
      .name = "bert-legacy",
      .classes = {{.name = "BertTokenizerLegacy"}},
      .saved_class = "BertTokenizerLegacy",
      .in_tokenizer_json = InTokenizerJson::kNone,
      .basic_tokenizer = true,
      .make_splitter = [](const TokenizerOptions& options, const Vocabulary& vocabulary, const PieceTrie&) {
        return SplitterPtr(std::make_unique<LegacySplitter>(options.letter_case, vocabulary.special_names()));
      }};
  return entry;
}

}  // namespace rf::text::pipelines
