// Classes by name and by model (files/directory_class.h).
#include "files/directory_class.h"

#include <algorithm>
#include <functional>

namespace rf::text {

namespace {

std::optional<DirectoryClass> find_class(const std::function<bool(const TokenizerClass&)>& matches) {
  for (const Pipeline pipeline : all_pipelines()) {
    for (const TokenizerClass& known : pipeline.entry().classes) {
      if (matches(known)) return DirectoryClass{pipeline, &known};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<DirectoryClass> class_of_name(std::string_view name) {
  constexpr std::string_view kByFile[] = {"PreTrainedTokenizer", "TokenizersBackend", "Qwen2Tokenizer"};
  const SentencePieceClass* const pieces = find_sentencepiece_class(name);
  if (pieces != nullptr || std::ranges::find(kByFile, name) != std::end(kByFile))
    return DirectoryClass{.pieces = pieces};
  return find_class([name](const TokenizerClass& known) {
    return known.name == name || std::ranges::find(known.other_names, name) != known.other_names.end();
  });
}

bool is_decoder_type(std::string_view type) {
  constexpr std::string_view kTypes[] = {"llama", "mistral", "qwen2", "gpt_neox"};
  return std::ranges::find(kTypes, type) != std::end(kTypes);
}

std::optional<DirectoryClass> class_of_model(std::string_view type) {
  if (type.empty()) return std::nullopt;
  if (type == "modernbert" || is_decoder_type(type)) return DirectoryClass{};
  return find_class([type](const TokenizerClass& known) { return known.model_type == type; });
}

}  // namespace rf::text
