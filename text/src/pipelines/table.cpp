// The table of pipelines. The name of a pipeline appears in its own file and here.
#include <algorithm>
#include <iterator>

#include "pipelines/pipeline.h"
#include "rf/io/error.h"
#include "rf/io/nearest_name.h"
#include "rf/text/tokenizer.h"

namespace rf::text {

namespace pipelines {
const PipelineEntry &bert(), &bert_legacy(), &roformer(), &wobert(), &byte_level_bpe(), &byte_fallback_bpe(),
    &unigram(), &esm();
}

constinit const Pipeline Pipeline::kBert(pipelines::bert);
constinit const Pipeline Pipeline::kBertLegacy(pipelines::bert_legacy);
constinit const Pipeline Pipeline::kRoformer(pipelines::roformer);
constinit const Pipeline Pipeline::kWobert(pipelines::wobert);
constinit const Pipeline Pipeline::kByteLevelBpe(pipelines::byte_level_bpe);
constinit const Pipeline Pipeline::kByteFallbackBpe(pipelines::byte_fallback_bpe);
constinit const Pipeline Pipeline::kUnigram(pipelines::unigram);

std::span<const Pipeline> all_pipelines() {
  static constexpr Pipeline kTable[] = {Pipeline(pipelines::bert),           Pipeline(pipelines::bert_legacy),
                                        Pipeline(pipelines::roformer),       Pipeline(pipelines::wobert),
                                        Pipeline(pipelines::byte_level_bpe), Pipeline(pipelines::byte_fallback_bpe),
                                        Pipeline(pipelines::unigram),        Pipeline(pipelines::esm)};
  return kTable;
}

bool Pipeline::segments_words() const { return entry().segments_words; }

bool Pipeline::has_word_pieces() const { return entry().model == PieceModel::kWordPieces; }

std::string_view name(Pipeline pipeline) { return pipeline.entry().name; }

Pipeline pipeline_of_name(std::string_view given) {
  const auto found = std::ranges::find(all_pipelines(), given, name);
  if (found == all_pipelines().end()) {
    std::vector<std::string_view> names;
    std::ranges::transform(all_pipelines(), std::back_inserter(names), name);
    fail("tokenizer", "pipeline must be {}, got \"{}\"", io::listed(names, "or"), given);
  }
  return *found;
}

std::string segmenting_pipelines(std::string_view conjunction) {
  std::vector<std::string_view> names;
  for (const Pipeline pipeline : all_pipelines()) {
    if (pipeline.segments_words()) names.push_back(name(pipeline));
  }
  return io::listed(names, conjunction);
}

}  // namespace rf::text
