// Rows of texts (input_rows.h). To keep both ends of a text, two truncations are combined, one that keeps the beginning
// and one that keeps the end. Their rows have the same shape, and differ only in the tokens of truncated texts.
#include "input_rows.h"

#include <limits>

#include "rf/io/error.h"

namespace rf::tasks {

namespace {

text::BatchOptions options_of(const TaskSettings& settings, text::Overflow overflow, text::Side cut) {
  text::BatchOptions options;
  options.truncation = settings.truncation;
  options.truncation_side = cut;
  options.overflow = overflow;
  options.stride = overflow == text::Overflow::kRows ? settings.stride : 0;
  options.max_length = settings.max_length;
  options.threads = 1;
  return options;
}

text::Overflow overflow_of(const TaskSettings& settings, text::Overflow overflow) {
  return settings.windows > 1 ? text::Overflow::kRows : overflow;
}

// The first half of each text's tokens from `head`, the second from `tail`.
text::Row both_ends(const text::Row& head, const text::Row& tail) {
  text::Row row = head;
  row.tokens.clear();
  std::array<size_t, 2> lengths{}, seen{};
  for (const int8_t text : head.text_index) {
    if (text >= 0) ++lengths[static_cast<size_t>(text)];
  }
  for (size_t i = 0; i < head.size(); ++i) {
    const int8_t text = head.text_index[i];
    bool is_first_half = true;
    if (text >= 0) {
      const auto index = static_cast<size_t>(text);
      is_first_half = seen[index]++ < (lengths[index] + 1) / 2;
    }
    row.tokens.append((is_first_half ? head : tail).tokens, i, i + 1);
  }
  return row;
}

}  // namespace

TokenRow token_row(const text::Row& row) { return {row.tokens.ids, row.types, row.text_index}; }

InputRows::InputRows(std::shared_ptr<const text::Tokenizer> tokenizer, const TaskSettings& settings,
                     text::Overflow overflow)
    : tokenizer_(std::move(tokenizer)),
      max_rows_(settings.windows > 1 ? static_cast<size_t>(settings.windows) : std::numeric_limits<size_t>::max()),
      encoder_(*tokenizer_, options_of(settings, overflow_of(settings, overflow),
                                       settings.keep == Keep::kTail ? text::Side::kLeft : text::Side::kRight)) {
  if (settings.stride > 0 && overflow_of(settings, overflow) != text::Overflow::kRows) {
    fail("task", "a stride goes with windows, got {} where a text has one row", settings.stride);
  }
  if (settings.keep == Keep::kHeadTail) {
    tail_encoder_ = std::make_unique<text::BatchEncoder>(
        *tokenizer_, options_of(settings, text::Overflow::kDropped, text::Side::kLeft));
  }
}

std::span<const text::Row> InputRows::rows(const std::string& place, const text::TextPair& texts) {
  try {
    const std::span<const text::Row> rows = encoder_.encode({&texts, 1});
    if (!tail_encoder_) return rows.first(std::min(rows.size(), max_rows_));
    joined_ = {both_ends(rows[0], tail_encoder_->encode({&texts, 1})[0])};
    return joined_;
  } catch (const Error& error) {
    throw Error("input", fmt::format("{}: {}", place, error.what()));
  }
}

void add_input(std::span<const text::Row> rows, Example& example) {
  for (const text::Row& row : rows) example.rows.push_back(token_row(row));
  example.rows_of_input.push_back(static_cast<int64_t>(rows.size()));
}

void add_text_input(const data::Record& record, const TaskSettings& settings, InputRows& rows, Example& example) {
  const std::string first = settings.prompt + record.text(settings.columns.at("text"));
  std::string second;
  text::TextPair texts{first};
  const auto pair = settings.columns.find("pair");
  if (pair != settings.columns.end() && (!settings.pair_is_optional || record.find(pair->second) != nullptr)) {
    second = record.text(pair->second);
    texts.second = second;
  }
  add_input(rows.rows(record.place(), texts), example);
}

}  // namespace rf::tasks
