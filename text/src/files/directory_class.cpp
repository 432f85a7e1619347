// Classes by name and by model (files/directory_class.h).
#include "files/directory_class.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace rf::text {

namespace {

// Further classes of transformers 5, each with its own rules. tests/oracles/test_tokenizer_files.py compares.
constexpr std::string_view kOthersOfTransformers =
    " BarthezTokenizer BartphoTokenizer BertGenerationTokenizer BertJapaneseTokenizer BertweetTokenizer "
    "BigBirdTokenizer BioGptTokenizer BlenderbotSmallTokenizer BlenderbotTokenizer ByT5Tokenizer CLIPTokenizer "
    "CTRLTokenizer CanineTokenizer ClvpTokenizer CodeGenTokenizer CodeLlamaTokenizer CohereTokenizer ConvBertTokenizer "
    "CpmAntTokenizer CpmTokenizer DPRContextEncoderTokenizer DPRQuestionEncoderTokenizer DPRReaderTokenizer "
    "DiaTokenizer EsmTokenizer EsmcTokenizer FNetTokenizer FSMTTokenizer FastSpeech2ConformerTokenizer "
    "FlaubertTokenizer FunnelTokenizer GPTNeoXJapaneseTokenizer GPTNeoXTokenizer GPTSw3Tokenizer HerbertTokenizer "
    "LasrTokenizer LayoutLMv2Tokenizer LayoutLMv3Tokenizer LayoutXLMTokenizer LukeTokenizer M2M100Tokenizer "
    "MBart50Tokenizer MBartTokenizer MLukeTokenizer MarianTokenizer MarkupLMTokenizer MgpstrTokenizer MyT5Tokenizer "
    "NllbTokenizer NougatTokenizer OpenAIGPTTokenizer PLBartTokenizer ParakeetTokenizer PegasusTokenizer "
    "PerceiverTokenizer PhobertTokenizer Pop2PianoTokenizer ProphetNetTokenizer Qwen3_5Tokenizer RagTokenizer "
    "ReformerTokenizer RemBertTokenizer RoCBertTokenizer SeamlessM4TTokenizer Siglip2Tokenizer SiglipTokenizer "
    "Speech2TextTokenizer SpeechT5Tokenizer SplinterTokenizer TapasTokenizer Tipsv2Tokenizer UdopTokenizer "
    "VideoPrismTokenizer VitsTokenizer Wav2Vec2CTCTokenizer Wav2Vec2PhonemeCTCTokenizer WhisperTokenizer XGLMTokenizer "
    "XLMTokenizer XLNetTokenizer ";

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

bool is_unsupported_class(std::string_view name) {
  return kOthersOfTransformers.find(fmt::format(" {} ", name)) != std::string_view::npos;
}

bool is_decoder_type(std::string_view type) {
  constexpr std::string_view kTypes[] = {"llama", "mistral", "qwen2", "gpt_neox"};
  return std::ranges::find(kTypes, type) != std::end(kTypes);
}

std::optional<DirectoryClass> class_of_model(std::string_view type) {
  if (type.empty()) return std::nullopt;
  if (type == "modernbert" || is_decoder_type(type)) return DirectoryClass{};
  if (type == "data2vec-text" || type == "roberta-prelayernorm") type = "roberta";
  return find_class([type](const TokenizerClass& known) { return known.model_type == type; });
}

}  // namespace rf::text
