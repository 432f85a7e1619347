// GPT-2's tokenizer: byte pair encoding over UTF-8 bytes (models/byte_level_encoder.h).
#include "pipelines/pipeline.h"
#include "unicode/nfc.h"

namespace rf::text::pipelines {

const PipelineEntry& byte_level_bpe() {
  constexpr char kEnd[] = "<|endoftext|>";
  static const PipelineEntry entry = {
      .name = "byte-level-bpe",
      .model = PieceModel::kBytePairs,
      .classes = {{.name = "GPT2Tokenizer",
                   .model_type = "gpt2",
                   .special = {.pad = "", .unk = kEnd, .cls = "", .sep = "", .mask = "", .bos = kEnd, .eos = kEnd},
                   .frame = nullptr},
                  {.name = "RobertaTokenizer",
                   .model_type = "roberta",
                   .special = {.pad = "<pad>",
                               .unk = "<unk>",
                               .cls = "<s>",
                               .sep = "</s>",
                               .mask = "<mask>",
                               .bos = "<s>",
                               .eos = "</s>"},
                   .frame = roberta_template,
                   .trims_offsets = true}},
      .saved_class = kPlainClass,
      .normalize = [](const TokenizerOptions& options, std::string_view text) {
        return options.byte_level.nfc ? to_nfc(text) : std::string(text);
      }};
  return entry;
}

}  // namespace rf::text::pipelines
