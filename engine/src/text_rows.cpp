// The tokens of texts for an embedder (text_rows.h).
#include "text_rows.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "rf/engine/interrupt.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/io/warning.h"
#include "rf/model/model_types.h"

namespace rf::engine {

namespace {

constexpr const char* kRowsWhere = "embed";

void check_lower_case(const SentenceModules& modules, const text::Tokenizer& tokenizer) {
  if (!modules.lower_case || tokenizer.options().letter_case == text::Case::kLower) return;
  fail(modules.encoder_dir,
       "do_lower_case in sentence_bert_config.json needs a tokenizer that lower-cases, got one "
       "that keeps letter case");
}

// Prompts that begin with a token of the vocabulary, as sentence-transformers reads prompts of older files.
std::vector<std::string> marker_tokens(const std::vector<std::string>& prompts, const text::Tokenizer& tokenizer) {
  std::vector<std::string> tokens;
  for (const std::string& prompt : prompts) {
    const size_t begin = prompt.find_first_not_of(' ');
    if (begin == std::string::npos) continue;
    for (const std::string& token : {prompt, prompt.substr(begin, prompt.find(' ', begin) - begin)}) {
      const int32_t id = tokenizer.vocabulary().find(token);
      if (id < 0) continue;
      text::Encoding encoding;
      tokenizer.encode(token, encoding);
      if (encoding.ids != std::vector<int32_t>{id}) tokens.push_back(token);
      break;
    }
  }
  return tokens;
}

// A model that cannot be computed is refused before its tokenizer, which may be of another kind too.
text::Tokenizer load_tokenizer(const SentenceModules& modules) {
  if (modules.body == SentenceModules::Body::kTransformer)
    check_model_type(modules.encoder_dir, Opens::kEncodersAndDecoders);
  text::Tokenizer tokenizer = text::Tokenizer::load(modules.encoder_dir);
  const std::vector<std::string> markers = marker_tokens(modules.tokens.markers, tokenizer);
  return markers.empty() ? std::move(tokenizer) : tokenizer.with_special(markers);
}

// Appends the rows of distinct texts.
void append(std::span<const text::Row> rows, int64_t max_length, TokenizedTexts& out) {
  for (const text::Row& row : rows) {
    if (static_cast<int64_t>(row.size()) > max_length)
      fail<ArgumentError>(kRowsWhere, "texts must have at most {} tokens, got {}", max_length, row.size());
    if (static_cast<int64_t>(row.size()) == max_length) ++out.full_texts;
    out.replaced_bytes += row.tokens.replaced_bytes;
    out.ids.insert(out.ids.end(), row.tokens.ids.begin(), row.tokens.ids.end());
    if (out.types.empty() && std::ranges::any_of(row.types, [](uint8_t type) { return type != 0; }))
      out.types.resize(static_cast<size_t>(out.offsets.back()));
    out.offsets.push_back(static_cast<int64_t>(out.ids.size()));
    if (!out.types.empty()) out.types.insert(out.types.end(), row.types.begin(), row.types.end());
  }
  if (!out.types.empty()) out.types.resize(out.ids.size());
}

}  // namespace

std::string name_of_text(const TokenizedTexts& tokens, int64_t sequence, std::span<const std::string_view> texts) {
  const auto index = std::ranges::find(tokens.sequence_of_text, sequence) - tokens.sequence_of_text.begin();
  return fmt::format("text {}, {},", index, io::printable(texts[static_cast<size_t>(index)]));
}

TextRows::TextRows(const SentenceModules& modules)
    : modules_(modules), tokenizer_(load_tokenizer(modules)), settings_(text::read_row_settings(modules.encoder_dir)) {
  check_lower_case(modules, tokenizer_);
}

void TextRows::set(const EmbedderOptions& options, int64_t positions) {
  long_texts_ = options.long_texts;
  threads_ = options.threads;
  vectors_ = options.vectors;
  longest_ = options.max_length > 0 ? options.max_length : positions;
  std::vector<std::string> unknown;
  for (const std::string& word : modules_.tokens.skipped_words) {
    const int32_t id = tokenizer_.vocabulary().find(word);
    if (id >= 0) {
      skipped_ids_.push_back(id);
    } else {
      unknown.push_back(io::printable(word));
    }
  }
  if (!unknown.empty() && !modules_.tokens.skips_punctuation) {
    io::warn(kRowsWhere, "skipped words must be tokens of the vocabulary, and others are ignored, got {}",
             fmt::join(unknown, ", "));
  }
  const std::optional<QueryExpansion>& expansion = modules_.tokens.expansion;
  if (!expansion) return;
  const text::SpecialIds& special = tokenizer_.vocabulary().special();
  expansion_id_ = !expansion->token.empty() ? tokenizer_.vocabulary().find(expansion->token)
                  : special.mask >= 0       ? special.mask
                                            : special.eos;
  if (expansion_id_ < 0) {
    fail(modules_.encoder_dir, "query expansion needs a token of the vocabulary, got {}",
         expansion->token.empty() ? "no [MASK]" : io::printable(expansion->token));
  }
  if (expansion->length > positions)
    fail(modules_.encoder_dir, "queries must have at most {} tokens, got {}", positions, expansion->length);
}

int64_t TextRows::specials() const {
  return adds_specials() ? std::ssize(tokenizer_.sequence_template().single) - 1 : 0;
}

int64_t TextRows::length_of(TextRole role) const {
  const TokenRules& rules = modules_.tokens;
  const bool is_expanded = rules.expansion && rules.expansion->truncates;
  const int64_t length = role == TextRole::kDocument ? rules.document_length
                         : role == TextRole::kNone   ? 0
                         : is_expanded               ? rules.expansion->length
                                                     : rules.query_length;
  return std::min(length, longest_);
}

// Tokens that poolings leave out, counted as in sentence-transformers: without the special token at the end.
int64_t TextRows::count_prompt_tokens(const std::string& prompt) const {
  if (modules_.pooled_prompt != SentenceModules::PooledPrompt::kLeftOut || prompt.empty()) return 0;
  const text::Encoding tokens = tokenizer_.encode_with_specials(prompt);
  const bool ends_special = tokenizer_.sequence_template().single.back().part == text::SequenceTemplate::Part::kSpecial;
  return static_cast<int64_t>(tokens.size()) - (ends_special ? 1 : 0);
}

TextRows::IdleEncoder TextRows::take_encoder(int64_t max_length) const {
  const std::lock_guard lock(mutex_);
  if (const auto found = std::ranges::find(idle_, max_length, &IdleEncoder::max_length); found != idle_.end()) {
    IdleEncoder encoder = std::move(*found);
    idle_.erase(found);
    return encoder;
  }
  const bool truncates = long_texts_ == LongTexts::kTruncate && max_length != std::numeric_limits<int64_t>::max();
  const text::BatchOptions batch{.add_specials = adds_specials() ? text::AddSpecials::kYes : text::AddSpecials::kNo,
                                 .truncation = truncates ? text::Truncation::kLongestFirst : text::Truncation::kNone,
                                 .truncation_side = settings_.truncation_side,
                                 .max_length = truncates ? max_length : 0,
                                 .threads = threads_};
  return {max_length, std::make_unique<text::BatchEncoder>(tokenizer_, batch)};
}

void TextRows::give_back(IdleEncoder encoder) const {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(encoder));
}

// Adds tokens to short queries.
void TextRows::expand(TokenizedTexts& tokens) const {
  const QueryExpansion& expansion = *modules_.tokens.expansion;
  TokenizedTexts out;
  const auto append = [](auto& to, const auto& from, int64_t begin, int64_t end) {
    if (!from.empty()) to.insert(to.end(), from.begin() + begin, from.begin() + end);
  };
  for (int64_t i = 0; i < tokens.sequences(); ++i) {
    const int64_t begin = tokens.offsets[i], end = tokens.offsets[i + 1];
    const auto added = static_cast<size_t>(std::max<int64_t>(0, expansion.length - (end - begin)));
    append(out.ids, tokens.ids, begin, end);
    append(out.types, tokens.types, begin, end);
    out.ids.resize(out.ids.size() + added, expansion_id_);
    if (!tokens.types.empty()) out.types.resize(out.ids.size());
    out.attend.resize(out.ids.size() - added, 1);
    out.attend.resize(out.ids.size(), expansion.attends ? 1 : 0);
    out.offsets.push_back(std::ssize(out.ids));
  }
  if (expansion.attends) out.attend.clear();
  tokens.ids = std::move(out.ids);
  tokens.types = std::move(out.types);
  tokens.offsets = std::move(out.offsets);
  tokens.attend = std::move(out.attend);
  tokens.pooled.assign(tokens.ids.size(), 1);
}

// Marks the tokens whose vectors are left out.
void TextRows::mask(TextRole role, TokenizedTexts& tokens) const {
  const TokenRules& rules = modules_.tokens;
  const bool is_query = role == TextRole::kQuery, skips = is_query ? rules.skips_queries : rules.skips_documents;
  tokens.pooled.resize(tokens.ids.size(), 1);
  const auto has = [](const std::vector<int32_t>& ids, int32_t id) { return std::ranges::find(ids, id) != ids.end(); };
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    const bool is_left_out = (skips && has(skipped_ids_, tokens.ids[i])) ||
                             (!is_query && !rules.kept_ids.empty() && !has(rules.kept_ids, tokens.ids[i]));
    if (is_left_out) tokens.pooled[i] = 0;
  }
  for (int64_t i = 0; rules.skips_first && i < tokens.sequences(); ++i) {
    if (tokens.offsets[i] < tokens.offsets[i + 1]) tokens.pooled[tokens.offsets[i]] = 0;
  }
}

void TextRows::leave_out_prompt(const std::string& prompt, TokenizedTexts& tokens) const {
  const int64_t left_out = count_prompt_tokens(prompt);
  if (left_out == 0) return;
  tokens.pooled.assign(tokens.ids.size(), 1);
  for (int64_t i = 0; i < tokens.sequences(); ++i) {
    const int64_t size = tokens.offsets[i + 1] - tokens.offsets[i];
    std::fill_n(tokens.pooled.begin() + tokens.offsets[i], std::min(left_out, size), 0);
  }
}

TokenizedTexts TextRows::tokenize(std::span<const std::string_view> texts, const std::string& prompt, TextRole role,
                                  int64_t max_length) const {
  TokenizedTexts out;
  std::unordered_map<std::string_view, int64_t> sequences;
  std::vector<std::string_view> distinct;
  for (const std::string_view text : texts) {
    const auto [found, is_new] = sequences.emplace(text, static_cast<int64_t>(distinct.size()));
    if (is_new) distinct.push_back(text);
    out.sequence_of_text.push_back(found->second);
  }
  std::vector<std::string> prompted;  // must not move while it is viewed
  prompted.reserve(distinct.size());
  std::vector<text::TextPair> samples;
  for (const std::string_view text : distinct) {
    if (prompt.empty()) {
      samples.push_back({text});
    } else {
      samples.push_back({prompted.emplace_back(prompt).append(text)});
    }
  }
  IdleEncoder encoder = take_encoder(max_length);
  constexpr size_t kAtOnce = 4096;
  for (size_t begin = 0; begin < samples.size(); begin += kAtOnce) {
    check_interrupt();
    const auto part = std::span(samples).subspan(begin, std::min(kAtOnce, samples.size() - begin));
    append(encoder.encoder->encode(part), max_length, out);
  }
  give_back(std::move(encoder));
  if (role == TextRole::kQuery && modules_.tokens.expansion) expand(out);
  const bool has_tokens = vectors_ == VectorKind::kTokens || vectors_ == VectorKind::kAll;
  has_tokens ? mask(role, out) : leave_out_prompt(prompt, out);
  return out;
}

}  // namespace rf::engine
