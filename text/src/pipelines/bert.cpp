// transformers' BertTokenizer, on the library `tokenizers` (spec R-TOK-04).
#include <memory>

#include "added_tokens/sections.h"
#include "pipelines/pipeline.h"
#include "splitters/bert_normalized_text.h"
#include "splitters/bert_splitter.h"

namespace rf::text {
namespace {

BertSplitterOptions bert_options(const TokenizerOptions& options) {
  return {options.letter_case == Case::kLower, strips_accents(options), options.tokenize_chinese_chars,
          options.max_word_chars};
}

std::string normalize(const TokenizerOptions& options, std::string_view text) {
  BertNormalizedText normalized(bert_options(options));
  normalized.normalize(text, 0, 0);
  return normalized.text();
}

void encode_normalized(const AddedTokens& added, const TokenizerOptions& options, std::string_view text,
                       PieceWriter& writer, Encoding& out) {
  BertNormalizedText normalized(bert_options(options));
  for_each_section(
      added.raw(), text,
      [&](std::string_view part, int32_t byte, int32_t character) {
        out.replaced_bytes += normalized.normalize(part, byte, character);
        writer.set_origin(0, 0);
        Section section{};
        for (AddedTokenMatcher::Scan scan(added.normalized(), normalized.text()); scan.next(section);) {
          if (section.token == nullptr) {
            normalized.split(section.begin, section.end, writer);
          } else {
            writer.take_added(section.token->id, normalized.source(section.begin, section.end));
          }
        }
      },
      [&](const FoundToken& found) { writer.take_added(found.id, found.place); });
}

}  // namespace

namespace pipelines {

const PipelineEntry& bert() {
  static const PipelineEntry entry = {
      .name = "bert",
      .classes = {{.name = "BertTokenizer",
                   .other_names = {"DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer"},
                   .model_type = "bert"}},
      .saved_class = "BertTokenizer",
      .make_splitter =
          [](const TokenizerOptions& options, const Vocabulary&, const PieceTrie&) {
            return SplitterPtr(std::make_unique<BertSplitter>(bert_options(options)));
          },
      .normalize = normalize,
      .encode_normalized = encode_normalized};
  return entry;
}

}  // namespace pipelines
}  // namespace rf::text
