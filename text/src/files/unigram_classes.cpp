#include "files/unigram_classes.h"

#include <algorithm>
#include <iterator>

#include "rf/io/error.h"

namespace rf::text {
namespace {

using Kind = NormalizerStep::Kind;
using Prefix = ByteFallbackOptions::Prefix;

int32_t id_of_token(const Vocabulary& vocabulary, const std::string& token, std::string_view otherwise) {
  const std::string_view name = token.empty() ? otherwise : std::string_view(token);
  const int32_t id = vocabulary.find(name);
  if (id < 0) fail("tokenizer", "the vocabulary must have the token \"{}\" of its class, got none", name);
  return id;
}

SequenceTemplate roberta_frame(const Vocabulary& vocabulary, const SpecialNames& names) {
  return roberta_template(id_of_token(vocabulary, names.bos, "<s>"), id_of_token(vocabulary, names.eos, "</s>"));
}

SequenceTemplate t5_frame(const Vocabulary& vocabulary, const SpecialNames& names) {
  using Part = SequenceTemplate::Part;
  const SequenceTemplate::Piece first{Part::kFirst}, second{Part::kSecond},
      end{Part::kSpecial, id_of_token(vocabulary, names.eos, "</s>")};
  return {.single = {first, end}, .pair = {first, end, second, end}};
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
  options.prefix = prefix ? Prefix::kAlways : Prefix::kNever;
}

// The class looks up the unknown token.
void set_camembert(UnigramOptions& options, const TokenizerConfig& config) {
  set_steps(options, {});
  set_spaces(options, config.add_prefix_space.value_or(true));
}

// The ids of the unknown token are those of the class.
void set_xlm_roberta(UnigramOptions& options, const TokenizerConfig& config) {
  set_camembert(options, config);
  options.unk = 3;
}

void set_t5(UnigramOptions& options, const TokenizerConfig&) {
  set_steps(options, {});
  set_spaces(options, true);
  options.unk = 2;
}

void set_albert(UnigramOptions& options, const TokenizerConfig& config) {
  std::vector<NormalizerStep> steps = {{.kind = Kind::kReplace, .text = "``", .content = "\""},
                                       {.kind = Kind::kReplace, .text = "''", .content = "\""},
                                       {.kind = Kind::kNfkd},
                                       {.kind = Kind::kStripAccents}};
  if (config.do_lower_case.value_or(true)) steps.push_back({.kind = Kind::kLowercase});
  set_steps(options, std::move(steps));
  options.unk = 1;
  set_spaces(options, config.add_prefix_space.value_or(true));
}

void set_deberta(UnigramOptions& options, const TokenizerConfig& config) {
  options.normalizers.clear();  // without the character map
  if (config.do_lower_case.value_or(false)) options.normalizers.push_back({.kind = Kind::kLowercase});
  options.normalizers.push_back({.kind = Kind::kReplaceExpression, .text = R"(\s{2,}|[\n\r\t])", .content = " "});
  options.normalizers.push_back({.kind = Kind::kNfc});
  options.normalizers.push_back({.kind = Kind::kStrip, .right = true});
  options.split_spaces = options.byte_fallback = false;
  options.splits = true;
  options.prefix = config.add_prefix_space.value_or(true) ? Prefix::kAlways : Prefix::kFirst;
}

constexpr UnigramClass kClasses[] = {{"XLMRobertaTokenizer", set_xlm_roberta, roberta_frame},
                                     {"CamembertTokenizer", set_camembert, roberta_frame},
                                     {"T5Tokenizer", set_t5, t5_frame},
                                     {"AlbertTokenizer", set_albert},
                                     {"DebertaV2Tokenizer", set_deberta}};

}  // namespace

const UnigramClass* find_unigram_class(std::string_view name) {
  const auto* found = std::ranges::find(kClasses, name, &UnigramClass::name);
  return found == std::end(kClasses) ? nullptr : found;
}

}  // namespace rf::text
