#include "files/sentencepiece_classes.h"

#include <algorithm>

#include "pipelines/pipeline.h"
#include "rf/io/error.h"

namespace rf::text {
namespace {

using Kind = NormalizerStep::Kind;
using Part = SequenceTemplate::Part;
using Prefix = ByteFallbackOptions::Prefix;
using Config = TokenizerConfig;

int32_t id_of_token(const Vocabulary& vocabulary, const std::string& token, std::string_view otherwise) {
  const std::string_view name = token.empty() ? otherwise : std::string_view(token);
  const int32_t id = vocabulary.find(name);
  if (id < 0) fail("tokenizer", "the vocabulary must have the token \"{}\" of its class, got none", name);
  return id;
}

SequenceTemplate roberta_frame(const Vocabulary& vocabulary, const SpecialNames& names, const Config&) {
  return roberta_template(id_of_token(vocabulary, names.bos, "<s>"), id_of_token(vocabulary, names.eos, "</s>"));
}

SequenceTemplate bert_frame(const Vocabulary& vocabulary, const SpecialNames& names, const Config&) {
  return bert_template(id_of_token(vocabulary, names.cls, "[CLS]"), id_of_token(vocabulary, names.sep, "[SEP]"));
}

SequenceTemplate t5_frame(const Vocabulary& vocabulary, const SpecialNames& names, const Config&) {
  const SequenceTemplate::Piece first{Part::kFirst}, second{Part::kSecond},
      end{Part::kSpecial, id_of_token(vocabulary, names.eos, "</s>")};
  return {.single = {first, end}, .pair = {first, end, second, end}};
}

// Without settings, no special tokens.
SequenceTemplate decoder_frame(const Vocabulary& vocabulary, const SpecialNames& names, const Config& config) {
  SequenceTemplate frame;
  for (const uint8_t type : {uint8_t{0}, uint8_t{1}}) {
    const auto add = [&](const std::optional<bool>& wanted, const std::string& token) {
      if (wanted.value_or(false)) frame.pair.push_back({Part::kSpecial, id_of_token(vocabulary, token, ""), type});
    };
    add(config.add_bos_token, names.bos);
    frame.pair.push_back({type == 0 ? Part::kFirst : Part::kSecond, 0, type});
    add(config.add_eos_token, names.eos);
    if (type == 0) frame.single = frame.pair;
  }
  return frame;
}

// The ids of fairseq: these tokens, then the pieces from `kept` on, then the mask.
void put_in_front(SentencePieces& pieces, std::vector<SentencePiece> front, size_t kept, const SpecialNames& names) {
  front.insert(front.end(), pieces.begin() + static_cast<ptrdiff_t>(std::min(kept, pieces.size())), pieces.end());
  front.push_back({names.mask});
  pieces = std::move(front);
}

void arrange_xlm_roberta(SentencePieces& pieces, const SpecialNames& names, const Config&) {
  put_in_front(pieces, {{names.bos}, {names.pad}, {names.eos}, {names.unk}}, 3, names);
}

void arrange_camembert(SentencePieces& pieces, const SpecialNames& names, const Config&) {
  constexpr float kUnused = -100;
  put_in_front(pieces, {{"<s>NOTUSED"}, {names.pad}, {"</s>NOTUSED"}, {names.unk}, {"<unk>NOTUSED", kUnused}}, 1,
               names);
}

void arrange_t5(SentencePieces& pieces, const SpecialNames&, const Config& config) {
  for (int64_t i = config.extra_ids - 1; i >= 0; --i) {
    pieces.push_back({.text = fmt::format("<extra_id_{}>", i), .kind = SentencePiece::kControl});
  }
}

// The file's character map, after these steps.
void set_steps(UnigramOptions& options, std::vector<NormalizerStep> steps) {
  const auto map = std::ranges::find(options.normalizers, Kind::kPrecompiled, &NormalizerStep::kind);
  if (map != options.normalizers.end()) steps.push_back(*map);
  options.normalizers = std::move(steps);
  options.byte_fallback = false;
}

void set_spaces(UnigramOptions& options, bool prefix) {
  options.split_spaces = options.splits = true;
  options.split_punctuation = false;
  options.prefix = prefix ? Prefix::kAlways : Prefix::kNever;
}

// The class looks up the unknown token.
void set_camembert(UnigramOptions& options, const Config& config) {
  set_steps(options, {});
  set_spaces(options, config.add_prefix_space.value_or(true));
}

// The class sets the id of the unknown token, here and below.
void set_xlm_roberta(UnigramOptions& options, const Config& config) {
  set_camembert(options, config);
  options.unk = 3;
}

void set_t5(UnigramOptions& options, const Config&) {
  set_steps(options, {});
  set_spaces(options, true);
  options.unk = 2;
}

void set_albert(UnigramOptions& options, const Config& config) {
  std::vector<NormalizerStep> steps = {{.kind = Kind::kReplace, .text = "``", .content = "\""},
                                       {.kind = Kind::kReplace, .text = "''", .content = "\""}};
  if (!config.keep_accents.value_or(false))
    steps.insert(steps.end(), {{.kind = Kind::kNfkd}, {.kind = Kind::kStripAccents}});
  if (config.do_lower_case.value_or(true)) steps.push_back({.kind = Kind::kLowercase});
  set_steps(options, std::move(steps));
  options.unk = 1;
  set_spaces(options, config.add_prefix_space.value_or(true));
}

void set_deberta(UnigramOptions& options, const Config& config) {
  options.normalizers.clear();  // without the character map
  if (config.do_lower_case.value_or(false)) options.normalizers.push_back({.kind = Kind::kLowercase});
  options.normalizers.push_back({.kind = Kind::kReplaceExpression, .text = R"(\s{2,}|[\n\r\t])", .content = " "});
  options.normalizers.push_back({.kind = Kind::kNfc});
  options.normalizers.push_back({.kind = Kind::kStrip, .right = true});
  options.split_spaces = options.byte_fallback = false;
  options.split_punctuation = config.split_by_punct.value_or(false);
  options.splits = true;
  options.prefix = config.add_prefix_space.value_or(true) ? Prefix::kAlways : Prefix::kFirst;
}

ByteFallbackOptions llama_options(const Config& config) {
  ByteFallbackOptions options{.in_normalizer = false, .fuse_unk = true};
  if (config.add_prefix_space.value_or(true)) {
    options.prefix = config.legacy.value_or(false) ? Prefix::kAlways : Prefix::kFirst;
  }
  return options;
}

ByteFallbackOptions gemma_options(const Config&) { return {.fuse_unk = true}; }

std::span<const SentencePieceClass> classes() {
  static const SpecialNames roberta = roberta_names("<unk>");
  static const SentencePieceClass kClasses[] = {
      {.name = "XLMRobertaTokenizer",
       .model_types = "xlm-roberta gte jina_embeddings_v3",
       .special = roberta,
       .frame = roberta_frame,
       .set = set_xlm_roberta,
       .arrange = arrange_xlm_roberta},
      {.name = "CamembertTokenizer",
       .model_types = "camembert",
       .special = roberta,
       .frame = roberta_frame,
       .set = set_camembert,
       .arrange = arrange_camembert,
       .mask_strips_left = true},
      {.name = "T5Tokenizer",
       .model_types = "t5 mt5",
       .special = {"<pad>", "<unk>", "", "", "", "", "</s>"},
       .frame = t5_frame,
       .set = set_t5,
       .arrange = arrange_t5},
      {.name = "AlbertTokenizer",
       .model_types = "albert",
       .special = {.pad = "<pad>", .unk = "<unk>", .bos = "[CLS]", .eos = "[SEP]"},
       .frame = bert_frame,
       .set = set_albert,
       .file_has_frame = true},
      {.name = "DebertaV2Tokenizer",
       .model_types = "deberta-v2",
       .special = {.bos = "[CLS]", .eos = "[SEP]"},
       .frame = bert_frame,
       .set = set_deberta},
      {.name = "LlamaTokenizer",
       .special = {"", "<unk>", "", "", "", "<s>", "</s>"},
       .frame = decoder_frame,
       .set_bpe = llama_options,
       .file_has_frame = true},
      {.name = "GemmaTokenizer",
       .model_types = "gemma gemma2 gemma3 gemma3_text",
       .special = {"<pad>", "<unk>", "", "", "<mask>", "<bos>", "<eos>"},
       .frame = decoder_frame,
       .set_bpe = gemma_options,
       .file_has_frame = true},
  };
  return kClasses;
}

template <typename Matches>
const SentencePieceClass* find_row(Matches matches) {
  const auto found = std::ranges::find_if(classes(), matches);
  return found == classes().end() ? nullptr : &*found;
}

}  // namespace

const SentencePieceClass* find_sentencepiece_class(std::string_view name) {
  return find_row([name](const SentencePieceClass& known) { return known.name == name; });
}

const SentencePieceClass* find_sentencepiece_class_of_model(std::string_view type) {
  return find_row([type](const SentencePieceClass& known) { return has_word(known.model_types, type); });
}

}  // namespace rf::text
